"""Operators of users' own through a whole recipe, and `joblens operators`."""

import json
from pathlib import Path

import pytest

from tests.conftest import Finished, RunJoblens
from tests.integration import recipe_executor as executors

pytest.importorskip("pyarrow")

OWN = '''
import joblens

@joblens.operator
def shorten(row: dict, length: int = 10) -> dict:
    """Cuts texts."""
    if row.get("bad"):
        raise ValueError("it is bad")
    row["text"] = row["text"][:length]
    row["seen"] = True
    return row

@joblens.operator(fields=["n"])
def even_filter(row: dict) -> bool:
    """Keeps every other row."""
    return row["n"] % 2 == 0
'''


def _line_of(words: str) -> int:
    return next(number for number, line in enumerate(OWN.splitlines(), 1) if words in line)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_own_operators_work_beside_built_in_ones(joblens: RunJoblens, tmp_path: Path, own: Path) -> None:
    rows = [{"n": number, "x": 1.5, "text": f"row {number} of the dataset"} for number in range(40)]
    rows[4] |= {"bad": True}
    del rows[6]["n"]
    lines = [json.dumps(row).replace("1.5", "1.50") for row in rows]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    recipe = {
        "dataset_path": str(tmp_path / "in.jsonl"),
        "export_path": str(tmp_path / "out.jsonl"),
        "work_dir": str(tmp_path / "work"),
        "np": 1,
        "custom_operator_paths": [str(own)],
        "checkpoint": {"strategy": "every_op"},
        "process": [
            {"text_length_filter": {"min_len": 5}},
            {"shorten": {"length": 6}},
            {"even_filter": {}},
            {"text_length_filter": {"min_len": 6}},
        ],
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    ran = joblens("process", str(tmp_path / "recipe.yaml"), "--job-id", "own")
    assert ran.code == 0, ran.stderr
    kept = [number for number in range(0, 40, 2) if number not in (4, 6)]
    expected = [
        f'{{"n":{number},"x":1.50,"text":{json.dumps(f"row {number} of"[:6])},"seen":true}}'
        for number in kept
    ]
    assert (tmp_path / "out.jsonl").read_text().splitlines() == expected
    (rejects,) = (tmp_path / "work" / "own" / "rejects").iterdir()
    document = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert [(row["line"], row["operator"], row["reason"]) for row in document] == [
        (5, "shorten", f"ValueError: it is bad (own.py, line {_line_of('it is bad')})"),
        (7, "even_filter", f"KeyError: 'n' (own.py, line {_line_of('% 2 == 0')})"),
    ]


BROKEN = """
import os
import joblens

@joblens.operator
def forgot_to_say_bool(row: dict):
    return len(row["text"]) > 5

@joblens.operator
def asks_a_service(row: dict) -> dict:
    if not os.path.exists(__file__ + ".asked"):
        if row["n"] == 59:
            open(__file__ + ".asked", "w").close()
        raise ConnectionError("refused")
    if row["n"] == 7:
        raise FileNotFoundError("its picture")
    return row
"""


def _process(joblens: RunJoblens, folder: Path, operator: str, rows: int) -> Finished:
    (folder / "own.py").write_text(BROKEN)
    lines = [json.dumps({"n": number, "text": f"row {number} of the dataset"}) for number in range(rows)]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
    recipe = {
        "dataset_path": str(folder / "in.jsonl"),
        "export_path": str(folder / "out.jsonl"),
        "work_dir": str(folder / "work"),
        "np": 1,
        "custom_operator_paths": [str(folder / "own.py")],
        "process": [{operator: None}],
    }
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    return joblens("process", str(folder / "recipe.yaml"), "--job-id", "own")


@pytest.mark.parametrize(
    ("rows", "message"),
    [(60, "forgot_to_say_bool failed on 60 of 60 rows"), (5, "no rows left to export: 5 were")],
)
def test_an_operator_that_works_on_no_row_fails_the_job_and_leaves_the_export_as_it_was(
    joblens: RunJoblens, tmp_path: Path, rows: int, message: str
) -> None:
    (tmp_path / "out.jsonl").write_text("of an earlier job\n")
    ran = _process(joblens, tmp_path, "forgot_to_say_bool", rows)
    assert ran.code == 1
    assert message in ran.stderr + ran.stdout
    assert "TypeError: a mapper must return a dict" in ran.stderr + ran.stdout
    assert (tmp_path / "out.jsonl").read_text() == "of an earlier job\n"


def test_a_service_that_is_away_for_a_moment_costs_a_try_and_no_rows(
    joblens: RunJoblens, tmp_path: Path
) -> None:
    ran = _process(joblens, tmp_path, "asks_a_service", 60)
    assert ran.code == 0, ran.stderr
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 59
    (rejects,) = (tmp_path / "work" / "own" / "rejects").iterdir()
    assert json.loads(rejects.read_text())["reason"].startswith("FileNotFoundError: its picture (own.py, ")


VARIES = """
import joblens

@joblens.operator
def vary(row: dict) -> dict:
    if row["id"] >= 30:
        row["new"] = [row["id"], row["id"] / 2, str(row["id"])][row["id"] // 40]
    return row
"""


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_fields_that_are_new_in_a_table_do_not_depend_on_partitions(tmp_path: Path, kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    vary = f"vary_{kind}"  # a program has one operator of each name
    (tmp_path / "own.py").write_text(VARIES.replace("vary", vary))
    rows = [{"id": number, "text": f"see https://example.org/{number} now"} for number in range(120)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet", row_group_size=15)
    made = []
    for count in (1, 4):
        folder = tmp_path / str(count)
        folder.mkdir()
        job = executors.plan(
            folder,
            tmp_path / "in.parquet",
            [{vary: None}, executors.MAPPERS[0]],
            custom_operator_paths=[str(tmp_path / "own.py")],
            export_path=str(folder / f"out.{kind}"),
            partition={"mode": "manual", "num_of_partitions": count},
        )
        assert executors.carry_out(job) == 0
        assert executors.summary_of(job)["total_partitions"] == count
        out = folder / f"out.{kind}"
        made.append(out.read_text() if kind == "jsonl" else pq.read_table(out))
    assert made[0] == made[1]
    if kind == "jsonl":
        found = [json.loads(line).get("new", "absent") for line in made[0].splitlines()]
        assert found[29:31] + found[39:41] + found[79:81] == ["absent", 30, 39, 20.0, 39.5, "80"]


@pytest.mark.parametrize("where", ["__init__", "check"])
def test_an_own_operator_that_says_it_cannot_work_refuses_the_recipe(
    joblens: RunJoblens, tmp_path: Path, where: str
) -> None:
    own = f"""
import joblens

class Needy(joblens.Mapper):
    name = "needy"

    def {where}(self):
        open("no-such-model.bin")
"""
    (tmp_path / "own.py").write_text(own)
    (tmp_path / "in.jsonl").write_text('{"text":"a"}\n')
    recipe = (
        "dataset_path: in.jsonl\nexport_path: o.jsonl\ncustom_operator_paths: [own.py]\nprocess: [needy: ]\n"
    )
    (tmp_path / "recipe.yaml").write_text(recipe)
    ran = joblens("process", "recipe.yaml", cwd=tmp_path)
    assert ran.code == 2
    assert "recipe.yaml:4:" in ran.stderr
    assert "needy: FileNotFoundError" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_operators_are_listed_with_ones_own(joblens: RunJoblens, own: Path) -> None:
    shown = joblens("operators", "--path", str(own)).stdout
    for name in ("shorten", "even_filter", "clean_links_mapper", "document_deduplicator", "random_selector"):
        assert f"  {name} " in shown
    listed = json.loads(joblens("operators", "--path", str(own), "--json").stdout)
    assert {info["name"]: info["source"] for info in listed}["shorten"] == str(own)
    assert {info["kind"] for info in listed} == {"mapper", "filter", "deduplicator", "selector"}


def test_one_operator_is_reported_with_all_its_parameters(joblens: RunJoblens, own: Path) -> None:
    output = json.loads(joblens("operators", "shorten", "--path", str(own), "--json").stdout)
    assert output["summary"] == "Cuts texts."
    assert output["parameters"] == [
        {"name": "length", "type": "int", "meaning": "", "default": 10, "is_required": False}
    ]


def test_an_unknown_operator_is_refused_with_the_nearest(joblens: RunJoblens) -> None:
    ran = joblens("operators", "clean_link_mapper")
    assert ran.code == 2
    assert "did you mean 'clean_links_mapper'?" in ran.stderr


def test_a_file_that_cannot_be_run_is_refused(joblens: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module_here\n")
    ran = joblens("operators", "--path", str(tmp_path / "broken.py"))
    assert ran.code == 2
    assert "ModuleNotFoundError" in ran.stderr
    assert "Traceback" not in ran.stderr


TRACED = """
import joblens

@joblens.operator
def title_case(row: dict) -> dict:
    row["title"] = row["title"].title()
    row["seen"] = True
    return row

@joblens.operator
def even_filter(row: dict) -> bool:
    return row["n"] % 2 == 0
"""


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_the_tracer_shows_rows_of_own_operators(tmp_path: Path, ending: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"n": number, "title": f"page {number}"} for number in range(4)]
    data = tmp_path / f"in.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), data)
    else:
        executors.write_lines(data, rows)
    (tmp_path / "own.py").write_text(TRACED)
    job = executors.plan(
        tmp_path,
        data,
        [{"title_case": None}, {"even_filter": None}],
        open_tracer=True,
        trace_keys=["n"],
        custom_operator_paths=[str(tmp_path / "own.py")],
    )
    assert executors.carry_out(job) == 0
    changed, dropped = sorted(Path(executors.folder_of(job).trace).iterdir())
    assert [json.loads(line) for line in changed.read_text().splitlines()[:2]] == [
        {"partition": 0, "row": 0, "keys": {"n": 0}, "field": "title", "before": "page 0", "after": "Page 0"},
        {"partition": 0, "row": 0, "keys": {"n": 0}, "field": "seen", "before": None, "after": True},
    ]
    assert [json.loads(line)["dropped"] for line in dropped.read_text().splitlines()] == [
        {"n": 1, "title": "Page 1", "seen": True},
        {"n": 3, "title": "Page 3", "seen": True},
    ]


def test_the_tracer_may_be_limited_to_some_operators(tmp_path: Path) -> None:
    data = executors.write_lines(tmp_path / "in.jsonl", [{"n": 1, "title": "a page"}])
    (tmp_path / "own.py").write_text(TRACED)
    job = executors.plan(
        tmp_path,
        data,
        [{"title_case": None}, {"even_filter": None}],
        open_tracer=True,
        op_list_to_trace=["even_filter"],
        custom_operator_paths=[str(tmp_path / "own.py")],
    )
    assert executors.carry_out(job) == 0
    assert [path.name for path in Path(executors.folder_of(job).trace).iterdir()] == [
        "op_001_even_filter.jsonl"
    ]


PRINTING = """
import logging
import os
import subprocess
import joblens

@joblens.operator
def chatty(row: dict) -> dict:
    print("looked at", row["n"])
    if row["n"] == 0:
        logging.getLogger("mine").info("a \\x1b[31mred\\x1b[0m word")
        subprocess.run(["sh", "-c", "echo a program; echo its error >&2"])
        os.write(1, b"no text: \\xff\\n")
    return row
"""


@pytest.mark.parametrize("executor", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_words_of_own_operators_are_in_a_file_per_partition(tmp_path: Path, executor: str) -> None:
    if executor == "ray":
        pytest.importorskip("ray")
    data = executors.write_lines(tmp_path / "in.jsonl", [{"n": number} for number in range(6)])
    (tmp_path / "own.py").write_text(PRINTING)
    job = executors.plan(
        tmp_path,
        data,
        [{"chatty": None}],
        executor_type=executor,
        ray_address="local",
        custom_operator_paths=[str(tmp_path / "own.py")],
        partition={"num_of_partitions": 2},
    )
    assert executors.carry_out(job) == 0
    logs = sorted((tmp_path / "work" / "job" / "logs" / "operators").iterdir())
    assert [path.name for path in logs] == ["partition_000000.log", "partition_000001.log"]
    text = logs[0].read_text().splitlines()
    for line in (
        "looked at 0",
        "looked at 2",
        "INFO mine: a \\x1b[31mred\\x1b[0m word",
        "a program",
        "its error",
        "no text: \\xff",
    ):
        assert line in text
    assert logs[1].read_text().splitlines() == ["looked at 3", "looked at 4", "looked at 5"]
