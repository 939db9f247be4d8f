"""Whoever runs a job notes what it ran in: in front, in the background, in a workflow, on a worker."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import joblens as api
from joblens.model.history import HistoryQuery
from joblens.model.jobs.details import Provenance
from joblens.model.jobs.job import Record
from joblens.stores.sqlite import SqliteStore
from tests.conftest import RunJoblens, wait_until
from tests.integration.worker_jobs import WorkerCli, worker_cli
from tests.integration.workflow_cli import WorkflowCli

SCRIPT = "import sys\nopen(sys.argv[2], 'w').write(open(sys.argv[1]).read() * 2)\n"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A repository with a script."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "double.py").write_text(SCRIPT)
    (folder / "in.txt").write_text("abc")
    person = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
    for words in (("init", "-q", "-b", "main", "."), ("add", "double.py"), (*person, "commit", "-qm", "one")):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return folder


def records(store_path: Path) -> list[Record]:
    store = SqliteStore(str(store_path))
    try:
        return list(store.records(HistoryQuery(ascending=True)))
    finally:
        store.close()


def ran_in(store_path: Path, record: Record) -> Provenance:
    assert record.attempt is not None
    assert record.attempt.provenance, record
    store = SqliteStore(str(store_path))
    try:
        found = store.provenance(record.attempt.provenance)
    finally:
        store.close()
    assert found is not None
    return found


def test_a_command_in_front(joblens: RunJoblens, store_path: Path, code: Path) -> None:
    joblens(
        *("run", "-p", "random_state=4", "--output", "*.out", "--output", "never.txt", "--"),
        *(sys.executable, "double.py", "in.txt", "two.out", "--seed=7"),
        cwd=code,
        env={"OMP_NUM_THREADS": "3", "MY_TOKEN": "hush"},
        code=0,
    )
    (record,) = records(store_path)
    found = ran_in(store_path, record)
    assert record.outcome is not None
    assert found.code is not None
    words = ["git", "-C", str(code), "rev-parse", "HEAD"]
    head = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    assert (found.code.commit, found.code.branch, found.code.root) == (head, "main", str(code))
    assert found.code.is_dirty is False
    assert [program.path for program in found.programs] == [sys.executable, str(code / "double.py")]
    assert found.programs[1].sha256 == sha256(SCRIPT)
    assert {"joblens", "python", "msgspec"} <= found.versions.keys()
    assert found.environment["OMP_NUM_THREADS"] == "3"
    assert "hush" not in repr(found)
    assert (found.host, found.hardware.cpus) == (os.uname().nodename, os.cpu_count())
    assert {"umask", "stack"} <= found.limits.keys()
    assert record.job.seeds == {"seed": "7", "random_state": "4"}
    assert [(one.path, one.size, one.digest) for one in record.inputs] == [("in.txt", 3, sha256("abc"))]
    assert [(one.path, one.size, one.digest) for one in record.outcome.outputs] == [
        ("two.out", 6, sha256("abcabc")),
        ("never.txt", None, None),
    ]


def test_no_secret_is_remembered_as_a_seed_or_of_a_remote(
    joblens: RunJoblens, store_path: Path, code: Path, cli: WorkflowCli
) -> None:
    remote = ("remote", "add", "origin", "https://bob:hush@5@example.org/x.git")
    subprocess.run(["git", "-C", str(code), *remote], check=True)
    given = ("--env", "SECRET_SEED=hush1", "--env", "WALLET_SEED=hush2", "-p", "password_seed=hush3")
    joblens("run", "--name", "s", *given, "--env", "SEED=7", "--", "true", cwd=code, code=0)
    cli.run("""
name: flow
jobs:
  - {name: a, command: "true", env: {SECRET_SEED: hush4, WALLET_SEED: hush5, SEED: "8"}}
""")
    single, of_flow = records(store_path)
    assert (single.job.seeds, of_flow.job.seeds) == ({"SEED": "7"}, {"SEED": "8"})
    found = ran_in(store_path, single)
    assert found.code is not None
    assert found.code.remote == "https://example.org/x.git"
    assert "hush" not in repr((single, of_flow, found))


def test_changes_in_the_repository_are_noted(joblens: RunJoblens, store_path: Path, code: Path) -> None:
    (code / "double.py").write_text(SCRIPT + "\n")
    joblens("run", "--", "true", cwd=code, code=0)
    joblens("run", "--", "true", cwd=code.parent, code=0)
    inside, outside = (ran_in(store_path, record) for record in records(store_path))
    assert inside.code is not None
    assert inside.code.is_dirty is True
    assert inside.code.changes_digest
    assert outside.code is None


def test_show_tells_it_shortly_and_all_of_it(joblens: RunJoblens, code: Path) -> None:
    joblens("run", "--name", "twice", "--", sys.executable, "double.py", "in.txt", "x", cwd=code, code=0)
    short = joblens("show", "twice", code=0).stdout
    assert "Provenance" in short
    assert "on main" in short
    assert "--provenance" in short
    whole = joblens("show", "twice", "--provenance", code=0).stdout
    assert sha256(SCRIPT)[:20] in whole.replace("\n", "").replace(" ", "")
    assert "msgspec" in whole
    document = joblens("show", "twice", "--json", code=0).json
    assert document["provenance"]["programs"][1]["sha256"] == sha256(SCRIPT)


def test_it_can_be_switched_off(joblens: RunJoblens, store_path: Path, code: Path) -> None:
    off = {"JOBLENS_PROVENANCE_ENABLED": "false"}
    joblens("run", "--name", "x", "--", "cat", "in.txt", cwd=code, env=off, code=0)
    (record,) = records(store_path)
    assert record.attempt is not None
    assert (record.attempt.provenance, record.inputs) == ("", ())
    assert "was not recorded" in joblens("show", "x", "--provenance", code=0).stdout


def test_large_files_are_known_by_size_alone(joblens: RunJoblens, store_path: Path, code: Path) -> None:
    joblens("run", "--", "cat", "in.txt", cwd=code, env={"JOBLENS_PROVENANCE_MAX_HASH_SIZE": "2"}, code=0)
    (record,) = records(store_path)
    assert [(one.size, one.digest) for one in record.inputs] == [(3, None)]


@pytest.mark.parametrize("option", ["--input", "--input=gone*"])
def test_an_input_that_is_not_there_is_refused(joblens: RunJoblens, store_path: Path, option: str) -> None:
    words = [option, "gone.txt"] if "=" not in option else [option]
    refused = joblens("run", *words, "--", "true", code=2)
    assert "there is no such file" in refused.stderr
    assert not store_path.exists() or records(store_path) == []


def test_a_folder_is_noted_as_one(joblens: RunJoblens, store_path: Path, code: Path) -> None:
    (code / "meshes").mkdir()
    joblens("run", "--name", "x", "--input", "meshes", "--output", "meshes", "--", "true", cwd=code, code=0)
    output = joblens("show", "x", "--provenance", code=0).stdout
    assert output.count("meshes  a directory") == 2
    crate = code / "crate"
    joblens("export", "ro-crate", "x", "-o", crate, code=0)
    graph = json.loads((crate / "ro-crate-metadata.json").read_text())["@graph"]
    (folder,) = [entity for entity in graph if entity.get("name") == "meshes"]
    assert folder["@type"] == "Dataset"
    action = next(entity for entity in graph if entity["@type"] == "CreateAction")
    assert {"@id": folder["@id"]} in (action["result"], *_listed(action["object"]))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_a_job_in_the_background(joblens: RunJoblens, store_path: Path, code: Path) -> None:
    words = ("--", sys.executable, "double.py", "in.txt", "two.out")
    joblens(
        *("submit", "--wait", "--input", "double.py", *words), cwd=code, env={"OMP_NUM_THREADS": "5"}, code=0
    )
    (record,) = records(store_path)
    found = ran_in(store_path, record)
    assert found.environment["OMP_NUM_THREADS"] == "5"  # its own, not that of who looks after it
    assert found.code is not None
    assert [one.path for one in record.inputs] == ["double.py", "in.txt"]
    assert all(one.digest for one in record.inputs)


def test_jobs_of_a_workflow_share_one_and_their_outputs_are_stamped(cli: WorkflowCli) -> None:
    cli.run(
        """
name: files
files: [{name: a, path: a.txt}, {name: b, path: b.txt}]
jobs:
  - {name: make, command: "sh -c 'printf abc > a.txt'", output_files: [a]}
  - {name: use, command: "cp a.txt b.txt", input_files: [a], output_files: [b], resource_requirements: r}
  - {name: "more{n}", command: "true --seed {n}", parameters: {n: "1:8"}}
resource_requirements: [{name: r, num_cpus: 1, memory: 64m}]
"""
    )
    by_name = {record.job.name: record for record in records(cli.store_path)}
    digests = {name: record.attempt.provenance for name, record in by_name.items() if record.attempt}
    assert len({digests[f"more{n}"] for n in range(1, 9)} - {""}) == 1
    assert all(digests.values()), digests
    made, used = by_name["make"].outcome, by_name["use"]
    assert made is not None
    assert used.outcome is not None
    assert [(one.path, one.digest) for one in made.outputs] == [("a.txt", sha256("abc"))]
    assert [(one.path, one.digest) for one in used.inputs] == [("a.txt", sha256("abc"))]
    assert [(one.path, one.digest) for one in used.outcome.outputs] == [("b.txt", sha256("abc"))]
    assert by_name["more3"].job.seeds == {"seed": "3"}


def test_from_python(store_path: Path, code: Path) -> None:
    result = api.run(["cp", "in.txt", "copy"], cwd=code, inputs=[code / "in.txt"], outputs=["copy"])
    assert [each.path for each in result.record.inputs] == [str(code / "in.txt"), "in.txt"]
    assert result.record.outcome is not None
    assert result.record.outcome.outputs[0].digest == sha256("abc")
    results = list(api.map_commands([["true", str(n)] for n in range(20)], cwd=code))
    found = {each.record.attempt.provenance for each in results if each.record.attempt}
    assert len(found) == 1
    assert ran_in(store_path, results[0].record).code is not None


def test_a_running_job_has_it_before_its_end(joblens: RunJoblens, store_path: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    joblens("submit", "--shell", f"until [ -e {go} ]; do sleep 0.02; done", code=0)
    try:

        def is_known() -> bool:
            attempts = [record.attempt for record in records(store_path)]
            return bool(attempts) and attempts[0] is not None and bool(attempts[0].provenance)

        wait_until(is_known, what="what it runs in")
    finally:
        go.touch()
    assert joblens("wait", records(store_path)[0].job.uuid).code == 0


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerCli]:
    with worker_cli("cgroup", tmp_path) as one:
        yield one


def test_a_job_on_a_worker(worker: WorkerCli, code: Path) -> None:
    uuid = worker.queue(sys.executable, "double.py", "in.txt", "two.out", cwd=str(code))
    worker.start_worker(OMP_NUM_THREADS="7")
    record = worker.ended(uuid)
    found = ran_in(worker.store, record)
    assert found.environment["OMP_NUM_THREADS"] == "7"
    assert found.programs[1].sha256 == sha256(SCRIPT)


def test_a_program_that_measures_itself(store_path: Path, code: Path) -> None:
    program = code / "self.py"
    program.write_text("import joblens\n@joblens.measured\ndef f(): pass\nf()\nf()\n")
    subprocess.run([sys.executable, "self.py"], cwd=code, check=True)
    first, second = records(store_path)
    found = ran_in(store_path, first)
    assert second.attempt is not None
    assert first.attempt is not None
    assert second.attempt.provenance == first.attempt.provenance
    assert [each.path for each in found.programs] == [sys.executable, str(program)]
    assert found.code is not None
    assert (len(found.code.commit), found.code.is_dirty) == (40, None)
    assert "changes" in found.unknown
