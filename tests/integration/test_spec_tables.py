"""Tables, lists and variables that a workflow's sweeps are made from."""

from pathlib import Path

import pytest

from joblens.app.workflows.loader import load_spec, plan_of_run
from joblens.model.errors import SpecError
from joblens.model.runs.run import Run, RunOptions

ROWS = {
    "csv": "site,year\nnorth,2001\nsouth,2002\n",
    "json": '[{"site": "north", "year": 2001}, {"site": "south", "year": 2002}]',
    "jsonl": '{"site": "north", "year": 2001}\n\n{"site": "south", "year": 2002}\n',
    "ndjson": '{"site": "north", "year": 2001}\r\n{"site": "south", "year": 2002}\r\n',
}
SHARED = """\
name: stations
parameters_file: rows.csv
files:
  - name: raw_{site}
    path: raw/{site}-{year}.grb
    use_parameters_file: true
user_data:
  - name: about_{site}
    data: {station: "{site}", since: ["{year}"]}
    use_parameters_file: true
jobs:
  - name: read_{site}
    command: ./read ${files.input.raw_{site}}
    input_user_data: ["about_{site}"]
    use_parameters_file: true
"""


def problems(path: Path, **given: object) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_spec(str(path), **given)  # type: ignore[arg-type]
    return [problem.removeprefix(f"{path}:") for problem in caught.value.problems]


def spec_in(folder: Path, text: str, **files: str) -> Path:
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_bytes(content.encode())
    path = folder / "flow.yaml"
    path.write_text(text)
    return path


def test_files_and_user_data_are_repeated_for_the_rows_of_the_shared_table(tmp_path: Path) -> None:
    plan = load_spec(str(spec_in(tmp_path, SHARED, rows__csv=ROWS["csv"]))).plan
    assert [(file.name, file.path) for file in plan.files] == [
        ("raw_north", "raw/north-2001.grb"),
        ("raw_south", "raw/south-2002.grb"),
    ]
    assert [data.data for data in plan.user_data] == [
        {"station": "north", "since": ["2001"]},
        {"station": "south", "since": ["2002"]},
    ]
    assert [job.command for job in plan.jobs] == ["./read raw/north-2001.grb", "./read raw/south-2002.grb"]


@pytest.mark.parametrize("ending", ROWS)
def test_tables_are_read_by_their_ending(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"rows.{ending}").write_bytes(ROWS[ending].encode())
    text = SHARED.replace("parameters_file: rows.csv\n", "").replace(
        "use_parameters_file: true", f"parameters_file: rows.{ending}"
    )
    plan = load_spec(str(spec_in(tmp_path, text))).plan
    assert [job.parameter_values for job in plan.jobs] == [("north", 2001), ("south", 2002)]
    assert [file.path for file in plan.files] == ["raw/north-2001.grb", "raw/south-2002.grb"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"a": 1}\n[2]\n', 'rows.jsonl:2: a row must be an object, as {"name": value}'),
        ('{"a": 1}\n\n{"a": \n', "rows.jsonl:3: not JSON: Input data was truncated"),
        ("", "rows.jsonl: the table has no rows"),
        ('{"a": 1}\n{"b": 1}\n', "rows.jsonl: row 2 of the table differs from the first in 'a', 'b'"),
    ],
)
def test_lines_that_are_no_rows_are_mistakes(tmp_path: Path, lines: str, message: str) -> None:
    text = 'name: w\njobs: [{name: "j_{a}", command: x, parameters_file: rows.jsonl}]\n'
    assert problems(spec_in(tmp_path, text, rows__jsonl=lines)) == [f"2:36: {message}"]


def test_nested_values_of_a_table_stand_for_their_json_text(tmp_path: Path) -> None:
    text = "name: w\njobs: [{name: 'j_{n}', command: 'x {a}', parameters_file: rows.json}]\n"
    rows = '[{"n": 1, "a": {"b": [1, "c"]}}, {"n": 2, "a": null}, {"n": 3, "a": true}, {"n": 4, "a": [2.5]}]'
    plan = load_spec(str(spec_in(tmp_path, text, rows__json=rows))).plan
    assert [job.command for job in plan.jobs] == ['x {"b":[1,"c"]}', "x null", "x true", "x [2.5]"]


@pytest.mark.parametrize(
    "entry",
    [
        'files: [{name: "f_{a}", path: "p_{a}", %s}]',
        'user_data: [{name: "d_{a}", data: 1, %s}]',
    ],
)
def test_a_table_stands_beside_no_other_parameters(tmp_path: Path, entry: str) -> None:
    table = {"t__csv": "a\n1\n"}
    head = "name: w\njobs: [{name: j, command: x}]\n"
    for other in ("parameters: {a: 1}", "use_parameters: [a]", "parameter_mode: zip"):
        key = other.split(":")[0]
        found = problems(spec_in(tmp_path, f"{head}{entry % f'parameters_file: t.csv, {other}'}\n", **table))
        assert any(f"{key} in " in one and "cannot be combined with parameters_file" in one for one in found)
    (found_one,) = problems(spec_in(tmp_path, f"{head}{entry % 'use_parameters_file: true'}\n"))
    assert "requires a parameters_file at the top of the file" in found_one


VARIED = """\
name: varied
variables: {n: "3", dir: tables, small: 2g, wall: "00:30:00", word: y}
parameters: {shared: "1:{n}"}
resource_requirements: [{name: some, num_cpus: 1, memory: "{small}", runtime: "PT{n}M"}]
slurm_schedulers: [{name: s, account: a, walltime: "{wall}"}]
files: [{name: "f_{site}", path: "{dir}/{site}", parameters_file: "{dir}/rows.csv"}]
jobs:
  - {name: "range_{i}", command: x, parameters: {i: "1:{n}"}, resource_requirements: some}
  - {name: "step_{i}", command: x, parameters: {i: "0:{n}:{n}"}}
  - {name: "shared_{shared}", command: x, use_parameters: [shared]}
  - {name: "listed_{i}", command: x, parameters: {i: "@{dir}/values.txt"}}
  - {name: "native_{i}", command: x, parameters: {i: [a, "{word}"]}}
  - {name: "text_{i}", command: x, parameters: {i: "['a', '{word}']"}}
  - {name: "row_{site}", command: x, parameters_file: "{dir}/rows.csv"}
"""


def varied(folder: Path, text: str = VARIED) -> Path:
    tables = folder / "tables"
    tables.mkdir()
    (tables / "rows.csv").write_text(ROWS["csv"])
    (tables / "values.txt").write_text("# the first two\n7\n\n  # not this\n9\n")
    return spec_in(folder, text)


def test_variables_stand_in_values_ranges_lists_and_paths_of_tables(tmp_path: Path) -> None:
    loaded = load_spec(str(varied(tmp_path)))
    assert [job.name for job in loaded.plan.jobs] == [
        *("range_1", "range_2", "range_3"),
        *("step_0", "step_3"),
        *("shared_1", "shared_2", "shared_3"),
        *("listed_7", "listed_9"),
        *("native_a", "native_y"),
        *("text_a", "text_y"),
        *("row_north", "row_south"),
    ]
    first = loaded.plan.jobs[0]
    assert (first.requirements.memory_bytes, first.requirements.timeout_s) == (2 << 30, 180.0)
    assert loaded.plan.slurm_schedulers[0]["walltime"] == "00:30:00"
    assert [file.path for file in loaded.plan.files] == ["tables/north", "tables/south"]


def test_a_variable_given_for_one_run_stands_there_too(tmp_path: Path) -> None:
    path = varied(tmp_path)
    (tmp_path / "tables").rename(tmp_path / "others")
    given = {"n": 1, "dir": "others", "small": "4g"}
    loaded = load_spec(str(path), given)
    names = [job.name for job in loaded.plan.jobs]
    assert names[:4] == ["range_1", "step_0", "step_1", "shared_1"]
    assert loaded.plan.jobs[0].requirements.memory_bytes == 4 << 30
    run = Run(
        uuid="0" * 32,
        workflow_uuid="1" * 32,
        created_at_us=0,
        spec_text=loaded.text,
        spec_format=loaded.format,
        tables=loaded.tables,
        options=RunOptions(parameters=given),
    )
    (tmp_path / "others" / "rows.csv").unlink()
    assert plan_of_run(run) == loaded.plan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('"1:{n}"}\nres', '"1:{m}"}\nres'), "'{m}' is neither a variable nor a parameter here"),
        (
            ('"@{dir}/v', '"@{dri}/v'),
            "'{dri}' is neither a variable nor a parameter here; did you mean 'dir'?",
        ),
        (('"{dir}/rows.csv"}]', '"{dri}/rows.csv"}]'), "'{dri}' is neither"),
        (
            ('memory: "{small}"', 'memory: "{smal}"'),
            "must be a size such as 512m, 2g or 1.5GiB, not '{smal}'",
        ),
        (("word: y", 'word: "{i}"'), "variable 'word' contains '{i}'; a variable is literal text"),
        (
            ("word: y", "word: y, site: z"),
            "'site' is a variable and a column of tables/rows.csv; rename one of them",
        ),
    ],
)
def test_names_that_stand_for_nothing_are_mistakes(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    before, after = change
    assert before in VARIED
    found = problems(varied(tmp_path, VARIED.replace(before, after)))
    assert [one for one in found if message in one]
    assert not [one for one in found if "there is no file" in one or "was not read" in one], found


def test_shared_parameters_of_one_value_stand_in_the_environment_of_the_workflow(tmp_path: Path) -> None:
    text = """\
name: w
parameters: {region: north, years: "[1, 2]"}
env: {REGION: "{region}", YEARS: "{years}", SHELL_WORD: "${region}"}
jobs: [{name: "j_{region}", command: x, use_parameters: [region]}]
"""
    (job,) = load_spec(str(spec_in(tmp_path, text))).plan.jobs
    assert job.env == {"REGION": "north", "YEARS": "[1, 2]", "SHELL_WORD": "${region}"}
