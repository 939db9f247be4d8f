"""Commands on files of the version before packages: its stores, stopped runs and exports, recorded by
`tests/record_older_store.py`; and the names of modules that its processes start."""

import gzip
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import apsw
import pytest

from joblens.agent.runtime.ownership import SupervisorLock
from joblens.app.wiring.drivers import spool_dir
from tests.conftest import REPOSITORY, RunJoblens, wait_until

FIXTURE = REPOSITORY / "tests" / "fixtures" / "older_store"
OLDER = 7
READING = [
    *(["history"], ["show", "1"], ["metrics", "1"], ["stats"], ["results", "1.1"], ["workflows"]),
    *(["export", "history"], ["store", "check"], ["sql", "SELECT count(*) FROM jobs"], ["doctor"]),
]


def unpacked(name: str, path: Path) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_bytes(gzip.decompress((FIXTURE / name).read_bytes()))
    path.chmod(0o600)


def moved(store: Path, **names: str) -> None:
    """Replaces names of the machine that recorded a store by those of this one."""
    connection = apsw.Connection(str(store))
    places = [("detail", "job"), ("detail", "attempt"), ("workflow", "source")]
    places += [("workflow", "detail"), ("run", "detail"), ("run_event", "fact")]
    for table, column in places:
        for old, new in names.items():
            connection.execute(
                f"UPDATE {table} SET {column} = CASE typeof({column}) "
                f"WHEN 'blob' THEN CAST(replace(CAST({column} AS TEXT), ?1, ?2) AS BLOB) "
                f"ELSE replace({column}, ?1, ?2) END",
                (old, new),
            )
    connection.close()


def version_of(store: Path) -> int:
    connection = apsw.Connection(str(store))
    version = connection.pragma("user_version")
    connection.close()
    assert isinstance(version, int)
    return version


def test_commands_that_read_leave_an_older_store_as_it_is(joblens: RunJoblens, store_path: Path) -> None:
    unpacked("stopped.db.gz", store_path)
    for command in READING:
        assert "upgraded" not in joblens(*command, code=0).stderr, command
    assert version_of(store_path) == OLDER
    assert joblens("run", "--", "true", code=0).stderr.endswith("joblens.db.schema-7 is a copy from before\n")
    assert version_of(store_path) > OLDER
    assert version_of(store_path.with_name("joblens.db.schema-7")) == OLDER


def test_a_run_that_an_older_version_began_is_resumed(
    joblens: RunJoblens, store_path: Path, tmp_path: Path
) -> None:
    unpacked("stopped.db.gz", store_path)
    names = {"/tmp/older-joblens/stopped": str(tmp_path), "older-host": os.uname().nodename}
    moved(store_path, **names)
    (tmp_path / "pid").touch()  # the second job does not wait this time
    joblens("resume", "1.1", code=0)
    assert (tmp_path / "ran").read_text().split() == ["second", "third"]
    results = joblens("results", "1.1", "--json", code=0).json["results"]
    assert [(one["status"], one["attempts"]) for one in results] == [("completed", n) for n in (1, 2, 1)]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("history", "history.jsonl"),
        ("history", "crate.zip"),
        ("samples", "sampled.jsonl.gz"),
        ("time-series", "time-series.db"),
    ],
)
def test_exports_of_an_older_version_are_imported(
    joblens: RunJoblens, tmp_path: Path, kind: str, name: str
) -> None:
    file = FIXTURE / "exports" / name
    if name == "crate.zip":
        file = Path(zipfile.ZipFile(file).extract("joblens/records.jsonl", tmp_path))
    elif not file.exists():
        file = tmp_path / name
        unpacked(f"exports/{name}.gz", file)
    assert joblens("import", kind, file, code=0).stdout.startswith("1 job imported")
    (job,) = joblens("export", "history", code=0).json_lines
    assert job["tool"] in ("sleep", "")


# -- modules under names that processes of the older version start


def test_a_supervisor_that_was_replaced_executes_the_new_one(
    joblens: RunJoblens, store_path: Path, processes_to_end: list[subprocess.Popen[bytes]]
) -> None:
    joblens("run", "--", "true", code=0)
    command = [sys.executable, "-P", "-m", "joblens.app.supervising", "--store", str(store_path)]
    supervisor = subprocess.Popen(command, cwd=store_path.parent, stderr=subprocess.DEVNULL)
    processes_to_end.append(supervisor)
    lock = SupervisorLock(spool_dir(str(store_path)))
    wait_until(lambda: lock.holder() == supervisor.pid, what="the supervisor")
    assert joblens("submit", "--wait", "--", "sh", "-c", "exit 3").code == 3


@pytest.mark.parametrize(
    ("module", "answer"),
    [("working", "arguments are required: --store"), ("hired", "the run has ended"), ("worker_running", "")],
)
def test_earlier_names_of_workers_start_the_new_ones(module: str, answer: str) -> None:
    command = [sys.executable, "-P", "-m", f"joblens.app.{module}", "/no/such/file"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith(answer)
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if module == "working" else 0)
