"""RO-Crates by the real command line, judged by the validator that RO-Crate's makers recommend."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from joblens.analysis.crates.profiles import job_crate
from tests.conftest import REPOSITORY, RunJoblens
from tests.integration.workflow_cli import WorkflowCli
from tests.unit.analysis.crates.test_graph import ABOUT, rich_job

VALIDATOR = Path(sys.prefix, "crate-validator")
SECRET = "s3cretsauce-of-ours"
WORKFLOW = f"""
name: shapes
description: A sweep with a job that is tried again
files:
  - {{name: raw, path: in.csv}}
  - {{name: mid, path: "mid file.csv"}}
  - {{name: "out_{{n}}", path: "out_{{n}}.txt", parameters: {{n: "1:3"}}}}
failure_handlers:
  - name: again
    rules: [{{exit_codes: [7], max_retries: 2}}]
jobs:
  - {{name: prepare, command: "cat in.csv > 'mid file.csv'", input_files: [raw], output_files: [mid]}}
  - name: "square_{{n}}"
    command: "expr {{n}} \\\\* {{n}} > out_{{n}}.txt"
    input_files: [mid]
    output_files: ["out_{{n}}"]
    parameters: {{n: "1:3"}}
  - {{name: flaky, command: "test $JOBLENS_ATTEMPT = 2 || exit 7", failure_handler: again}}
  - name: broken
    command: "echo no room >&2; exit 3"
    env: {{API_TOKEN: {SECRET}, DB_PW: outside-9, OMP_NUM_THREADS: "2"}}
  - {{name: never, command: "true", depends_on: [broken], cancel_on_blocking_job_failure: true}}
"""


def validated(crate: Path, scratch: Path) -> dict[str, Any]:
    """What the validator says, without a network."""
    if not (VALIDATOR / "cache.sqlite").exists():
        if not Path(sys.prefix).is_relative_to(REPOSITORY):
            pytest.skip("only the environment of `make test` has a validator")
        pytest.fail(f"there is no validator: `scripts/crate-validator {sys.prefix}` sets it up")
    shutil.copy(VALIDATOR / "cache.sqlite", scratch / "cache.sqlite")
    report = scratch / "report.json"
    program = [VALIDATOR / "bin" / "rocrate-validator", "-y", "--disable-color", "validate", "--offline"]
    options = ["--cache-path", scratch / "cache", "--no-paging", "-f", "json", "-o", report, crate]
    done = subprocess.run(
        [*map(str, program), *map(str, options)], capture_output=True, text=True, timeout=120, check=False
    )
    assert report.exists(), done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(report.read_text())
    return answer


def problems(result: dict[str, Any]) -> list[str]:
    return [issue["message"] for issue in result["issues"]]


def entities(crate: Path) -> dict[str, dict[str, Any]]:
    document = json.loads((crate / "ro-crate-metadata.json").read_text())
    return {entity["@id"]: entity for entity in document["@graph"]}


def of_kind(found: dict[str, dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {entity["name"]: entity for entity in found.values() if entity["@type"] == kind}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the workflow has run once, with its store and a crate: made once, only looked at."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "in.csv").write_text("a,b\n")
    (folder / "flow.yaml").write_text(WORKFLOW)
    home = {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "JOBLENS_STORE": str(folder / "store.db")}
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JOBLENS_", "XDG_"))}
    joblens = [sys.executable, "-m", "joblens"]
    subprocess.run([*joblens, "run", "flow.yaml", "-q"], cwd=folder, env={**env, **home}, check=False)
    export = [*joblens, "export", "ro-crate", "1.1", "-o", "crate", "--with-files"]
    subprocess.run(export, cwd=folder, env={**env, **home}, check=True)
    return folder


@pytest.fixture
def crate(finished: Path) -> Path:
    return finished / "crate"


@pytest.fixture
def ran(finished: Path, cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch) -> WorkflowCli:
    """For tests that export it in another way."""
    monkeypatch.setenv("JOBLENS_STORE", str(finished / "store.db"))
    return cli


def test_a_crate_of_a_run_is_valid_and_tells_every_attempt(crate: Path, tmp_path: Path) -> None:
    result = validated(crate, tmp_path)
    assert result["passed"], problems(result)
    assert result["validation_settings"]["profile_identifier"].startswith("provenance-run-crate")
    actions = of_kind(entities(crate), "CreateAction")
    assert {"prepare", "square_1", "square_3", "flaky", "flaky, attempt 2", "broken"} <= set(actions)
    status = {name: action["actionStatus"].rsplit("/", 1)[-1] for name, action in actions.items()}
    assert status["flaky"] == status["broken"] == "FailedActionStatus"
    assert status["flaky, attempt 2"] == "CompletedActionStatus"
    assert "exit code 3" in actions["broken"]["error"]
    assert "never" not in actions


def test_files_of_a_run_are_copied_and_named_by_their_hash(crate: Path) -> None:
    found = entities(crate)
    made = found["files/mid%20file.csv"]
    assert made["sha256"] == hashlib.sha256(b"a,b\n").hexdigest()
    assert (crate / "files" / "mid file.csv").read_text() == "a,b\n"
    assert of_kind(found, "CreateAction")["square_1"]["object"][0] == {"@id": "files/mid%20file.csv"}
    assert found["#workflow-output-mid"]["workExample"] == {"@id": "files/mid%20file.csv"}


def test_every_reference_leads_to_something(ran: WorkflowCli) -> None:
    crate = ran.folder / "crate"
    ran.call("export", "ro-crate", "1.1", "-o", crate, code=0)
    found = entities(crate)
    referred = {
        one["@id"]
        for entity in found.values()
        for value in entity.values()
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, dict)
    }
    outside = {ident for ident in referred - set(found) if not ident.startswith("https://")}
    assert outside == set()


def test_numbers_have_units_and_sources(joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("run", "-q", "--", sys.executable, "-c", "x = bytearray(20 << 20)", code=0)
    joblens("export", "ro-crate", "job:1", "-o", tmp_path / "crate", code=0)
    usage = {
        entity["propertyID"]: entity
        for entity in entities(tmp_path / "crate").values()
        if str(entity.get("propertyID", "")).startswith("joblens:")
    }
    memory = usage["joblens:memory_peak_bytes"]
    assert memory["value"] > 20 << 20
    assert memory["unitCode"] == "https://qudt.org/vocab/unit/BYTE"
    assert usage["joblens:cpu_total_usec"]["unitCode"].endswith("MicroSEC")
    assert memory["description"]


def test_a_crate_of_a_job_is_valid_and_a_spoilt_one_is_not(joblens: RunJoblens, tmp_path: Path) -> None:
    """The second half shows that the validator, offline, does look."""
    joblens("run", "-q", "--", "sh", "-c", "echo gone wrong >&2; exit 4", code=4)
    crate = tmp_path / "crate"
    joblens("export", "ro-crate", "job:1", "-o", crate, code=0)
    result = validated(crate, tmp_path)
    assert result["passed"], problems(result)
    assert result["validation_settings"]["profile_identifier"].startswith("process-run-crate")
    metadata = crate / "ro-crate-metadata.json"
    metadata.write_text(metadata.read_text().replace('"instrument"', '"isBasedOn"'))
    assert any("MUST have an instrument" in problem for problem in problems(validated(crate, tmp_path)))


def test_a_crate_with_container_code_and_placement_is_valid(tmp_path: Path) -> None:
    crate = tmp_path / "crate"
    crate.mkdir()
    (crate / "ro-crate-metadata.json").write_text(json.dumps(job_crate(rich_job(), ABOUT)))
    result = validated(crate, tmp_path)
    assert result["passed"], problems(result)


def test_a_run_on_workers_makes_a_valid_crate(
    cli: WorkflowCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "500ms")
    (cli.folder / "in.csv").write_text("a,b\n")
    cli.run(WORKFLOW, "--engine", "celery", code=1)
    crate = cli.folder / "crate"
    cli.call("export", "ro-crate", "1.1", "-o", crate, code=0)
    result = validated(crate, tmp_path)
    assert result["passed"], problems(result)
    placed = {
        entity["name"] for entity in entities(crate).values() if entity["@id"].startswith("#placement-")
    }
    assert "worker" in placed


def test_no_secret_gets_into_a_crate(crate: Path) -> None:
    texts = [path.read_bytes() for path in crate.rglob("*") if path.is_file()]
    assert any(b"OMP_NUM_THREADS" in text for text in texts)
    for secret in (SECRET.encode(), b"outside-9"):
        assert not any(secret in text for text in texts)


def test_a_zip_file_has_the_same_in_it(ran: WorkflowCli, crate: Path) -> None:
    ran.call("export", "ro-crate", "1.1", "-o", ran.folder / "crate.zip", "--with-files", code=0)
    with zipfile.ZipFile(ran.folder / "crate.zip") as archive:
        inside = set(archive.namelist())
        assert archive.testzip() is None
    assert inside == {str(path.relative_to(crate)) for path in crate.rglob("*") if path.is_file()}


def test_records_of_a_crate_can_be_imported_elsewhere(ran: WorkflowCli, crate: Path, tmp_path: Path) -> None:
    other = str(tmp_path / "other.db")
    ran.call("import", "history", crate / "joblens" / "records.jsonl", "--store", other, code=0)
    names = [job["name"] for job in ran.call("history", "--store", other, "-l", "0", "--json", code=0).json]
    assert names.count("flaky") == 2


def test_a_file_that_changed_since_is_reported_and_not_copied(cli: WorkflowCli) -> None:
    before = hashlib.sha256(b"a,b\n").hexdigest()
    (cli.folder / "in.csv").write_text("a,b\n")
    cli.run(
        "name: w\nfiles: [{name: raw, path: in.csv}]\njobs: [{name: a, command: 'true', input_files: [raw]}]"
    )
    (cli.folder / "in.csv").write_text("something else\n")
    crate = cli.folder / "crate"
    done = cli.call("export", "ro-crate", "1.1", "-o", crate, "--with-files", code=0)
    assert "1 file missing or changed since" in done.stderr
    [raw] = [one for one in entities(crate).values() if one.get("name") == "in.csv"]
    assert raw["@id"].startswith("file://")
    assert raw.get("sha256", before) == before
    assert not (crate / "files" / "in.csv").exists()


def test_a_file_above_the_limit_is_reported_with_its_hash(ran: WorkflowCli) -> None:
    crate = ran.folder / "crate"
    done = ran.call("export", "ro-crate", "1.1", "-o", crate, "--with-files", "--files-limit", "3", code=0)
    assert "too large to include" in done.stderr
    [raw] = [one for one in entities(crate).values() if one.get("name") == "in.csv"]
    assert raw["sha256"] == hashlib.sha256(b"a,b\n").hexdigest()
    assert (crate / "files" / "out_1.txt").exists()


def test_only_its_owner_may_read_a_crate(crate: Path) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) for path in [crate, *crate.rglob("*")]}
    assert modes <= {0o700, 0o600}


def test_the_page_has_the_jobs_the_failure_and_the_files(crate: Path) -> None:
    page = (crate / "ro-crate-preview.html").read_text()
    assert "Run 1.1 of the workflow shapes" in page
    assert '<a href="files/mid%20file.csv">mid file.csv</a>' in page
    assert "exit code 3" in page
    assert 'src="' not in page


def test_a_script_beside_the_data_is_taken_along(joblens: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "sim.sh").write_text("cp data out\n")
    (tmp_path / "data").write_text("x")
    files = ("--input", "data", "--output", "out")
    joblens("run", "-q", *files, "--", "sh", "sim.sh", code=0)
    joblens("export", "ro-crate", "job:1", "-o", tmp_path / "crate", "--with-files", code=0)
    found = of_kind(entities(tmp_path / "crate"), "File")
    assert found["sim.sh"]["sha256"] == hashlib.sha256(b"cp data out\n").hexdigest()
    copied = {path.name for path in (tmp_path / "crate" / "files").iterdir()}
    assert copied == {"sim.sh", "data", "out"}


def test_a_licence_is_reported_as_given(joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("run", "-q", "--", "true", code=0)
    url = "https://spdx.org/licenses/CC-BY-4.0"
    joblens("export", "ro-crate", "job:1", "-o", tmp_path / "crate", "--license", url, code=0)
    found = entities(tmp_path / "crate")
    assert found["./"]["license"] == {"@id": url}
    assert found[url]["name"] == "CC-BY-4.0"


def test_a_folder_that_is_there_is_left_alone(ran: WorkflowCli) -> None:
    crate = ran.folder / "crate"
    crate.mkdir()
    (crate / "mine").write_text("precious")
    done = ran.call("export", "ro-crate", "1.1", "-o", crate, code=2)
    assert "already exists" in done.stderr
    assert os.listdir(crate) == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ro-crate", "-o", "crate"), "needs a run or a job"),
        (("ro-crate", "job:1"), "needs an output path"),
        (("ro-crate", "job:1", "-o", "crate", "--tag", "x"), "without filters"),
        (("ro-crate", "job:1", "-o", "crate", "--files-limit", "1m"), "--files-limit needs --with-files"),
        (("ro-crate", "nobody", "-o", "crate"), "no job, workflow or run has the ID 'nobody'"),
        (("csv", "job:1"), "'job:1' does not apply to 'csv'"),
        (("csv", "--license", "x"), "--license does not apply to 'csv'"),
        (("ro-crate", "job:1", "-o", "/proc/crate"), "/proc/crate: cannot be written"),
    ],
)
def test_what_makes_no_sense_is_reported(
    joblens: RunJoblens, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    joblens("run", "-q", "--", "true", code=0)
    done = joblens("export", *arguments, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "crate").exists()


ENABLED = """
name: described
project: climate
metadata: {team: physics, grant: {number: 7}}
enable_ro_crate: true
datasets: [{name: parts, path: parts/, hash_mode: content}]
files:
  - {name: genome, path: genome.fa, identifier: "https://doi.org/10.5524/100001"}
jobs:
  - name: make
    command: mkdir -p parts; cat ${files.input.genome} > parts/a
    output_datasets: [parts]
  - {name: read, command: "test -f there", input_datasets: [parts]}
"""


def test_enable_ro_crate_writes_the_crate_when_the_run_ends(cli: WorkflowCli, tmp_path: Path) -> None:
    (cli.folder / "genome.fa").write_text("ACGT")
    cli.run(ENABLED, code=1)
    crate = cli.folder / "output" / "ro_crate" / "1_1"
    assert "failed" in (crate / "ro-crate-preview.html").read_text()
    (cli.folder / "there").touch()
    cli.call("rerun", "1.1", "--failed", code=0)
    again = cli.folder / "output" / "ro_crate" / "1_2"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert validated(again, scratch)["issues"] == []
    graph = json.loads((again / "ro-crate-metadata.json").read_text())["@graph"]
    [genome] = [one for one in graph if one.get("name") == "genome.fa"]
    assert genome["identifier"] == "https://doi.org/10.5524/100001"
    values = {one["name"]: one["value"] for one in graph if one["@id"].startswith("#about-")}
    assert values == {"project": "climate", "metadata.team": "physics", "metadata.grant": '{"number":7}'}
    [parts] = [one for one in graph if one.get("name") == "parts/"]
    assert (parts["@type"], parts["fileCount"], parts["contentSize"]) == ("Dataset", 1, "4")
    assert sorted(path.name for path in crate.parent.iterdir()) == ["1_1", "1_2"]


def test_a_crate_of_a_run_that_is_resumed_replaces_the_one_before(cli: WorkflowCli) -> None:
    text = """
name: resumed
enable_ro_crate: true
datasets: [{name: parts, path: parts/}]
jobs:
  - {name: make, command: "true", output_datasets: [parts]}
"""
    cli.run(text, code=1)
    crate = cli.folder / "output" / "ro_crate" / "1_1"
    before = (crate / "ro-crate-metadata.json").read_text()
    (cli.folder / "parts").mkdir()
    cli.call("resume", "1.1", code=0)
    assert (crate / "ro-crate-metadata.json").read_text() != before
    assert [path.name for path in crate.parent.iterdir()] == ["1_1"]
