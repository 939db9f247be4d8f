"""Standard output, standard error, a terminal, the log file or a sink that cannot be written: every job runs
to its end all the same, its exit code is returned and its record is kept (rule 7 of ARCHITECTURE.md)."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record
from joblens.stores.sqlite import SqliteStore
from tests.conftest import wait_until

JOBLENS = (sys.executable, "-m", "joblens")
# Gives joblens something to say while the job runs, and makes background processes leave soon.
TALKATIVE = {
    "JOBLENS_LIMITS_CGROUP_PARENT": "/there/is/none",
    "JOBLENS_LOGS_LEVEL": "DEBUG",
    "JOBLENS_SUPERVISOR_IDLE": "0.2",
    "JOBLENS_QUEUE_IDLE": "200ms",
}
FAILING = "sleep 0.2; echo done >> mark; exit 6"  # prints nothing: without joblens it would end the same way
FLOW = """
name: flow
jobs:
  - {name: first, command: "sleep 0.2; echo done >> mark; exit 6"}
  - {name: limited, command: "echo done >> mark; exit 6", resource_requirements: lim}
resource_requirements:
  - {name: lim, num_cpus: 1, memory: 64m, runtime: PT1M}
"""
RECIPE = """
project_name: small
dataset_path: rows.jsonl
export_path: out.jsonl
process:
  - whitespace_normalization_mapper: {}
"""


class Owner(Struct, frozen=True):
    """A command that looks after jobs: what it is called with, its exit code, how many jobs end."""

    arguments: tuple[str, ...]
    code: int
    jobs: int = 1
    job_code: int = 6
    needs: str = ""  # a module


OWNERS = {
    "run": Owner(("run", "-v", "--", "sh", "-c", FAILING), 6),
    "run-printing": Owner(("run", "-q", "--", "sh", "-c", "echo out; echo err >&2; " + FAILING), 6),
    "run-quiet": Owner(("run", "-q", "--", "sh", "-c", FAILING), 6),
    "run-json": Owner(("run", "--json", "--report", "r.json", "--", "sh", "-c", FAILING), 6),
    "run-with-click": Owner(("--json", "run", "-v", "--", "sh", "-c", FAILING), 6),
    "run-without-capture": Owner(("run", "-v", "--no-capture", "--", "sh", "-c", FAILING), 6),
    "submit": Owner(("submit", "--wait", "--", "sh", "-c", FAILING), 6),
    "submit-json": Owner(("submit", "--wait", "--json", "--", "sh", "-c", FAILING), 6),
    "workflow": Owner(("run", "flow.yaml"), 1, 2),
    "workflow-json": Owner(("run", "flow.yaml", "--json"), 1, 2),
    "map": Owner(("map", FAILING + " # {}", ":::", "a", "b"), 1, 2),
    "map-json": Owner(("map", "--json", FAILING + " # {}", ":::", "a", "b"), 1, 2),
    "recipe": Owner(("process", "recipe.yaml"), 0, 1, 0, needs="pyarrow"),
    "recipe-json": Owner(("process", "recipe.yaml", "--json"), 0, 1, 0, needs="pyarrow"),
    "bench": Owner(("bench", "--runs", "2", "--warmup", "0", "--", "sh", "-c", "echo done >> mark"), 0, 2, 0),
    "rerun": Owner(("rerun", "last"), 6, 2),
    "wait": Owner(("wait", "last"), 6, 1),
}


class Place:
    """A folder with a store, and joblens started in it with streams that fail."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder = folder
        self._store = store

    def start(self, *arguments: str, **popen: object) -> "subprocess.Popen[bytes]":
        given: dict[str, object] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        given |= {"stderr": subprocess.DEVNULL, "cwd": self.folder, **popen}
        return subprocess.Popen([*JOBLENS, *arguments], **given)  # type: ignore[call-overload,no-any-return]

    def records(self) -> list[Record]:
        store = SqliteStore(str(self._store))
        try:
            return list(store.records(HistoryQuery(limit=100)))
        finally:
            store.close()


@pytest.fixture
def place(tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    folder = tmp_path / "place"
    folder.mkdir()
    (folder / "flow.yaml").write_text(FLOW)
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "rows.jsonl").write_text('{"text": "a  b"}\n')
    for name, value in TALKATIVE.items():
        monkeypatch.setenv(name, value)
    return Place(folder, store_path)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system without a byte to spare."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        with contextlib.suppress(OSError), (disk / "fill").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@contextlib.contextmanager
def _dev_full(_request: pytest.FixtureRequest) -> Iterator[int]:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    yield descriptor
    os.close(descriptor)


@contextlib.contextmanager
def _on_full_disk(request: pytest.FixtureRequest) -> Iterator[int]:
    disk: Path = request.getfixturevalue("full_disk")
    descriptor = os.open(disk / "stream", os.O_WRONLY | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


@contextlib.contextmanager
def _without_reader(_request: pytest.FixtureRequest) -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@contextlib.contextmanager
def _closed_terminal(_request: pytest.FixtureRequest) -> Iterator[int]:
    master, slave = os.openpty()
    os.close(master)
    yield slave
    os.close(slave)


FAULTS: dict[str, Callable[[pytest.FixtureRequest], contextlib.AbstractContextManager[int]]] = {
    "dev-full": _dev_full,
    "full-disk": _on_full_disk,
    "no-reader": _without_reader,
    "closed-terminal": _closed_terminal,
}
STREAMS = {"stdout": (1,), "stderr": (2,), "both": (1, 2)}
# JOBLENS_TEST_EVERY_FAULT=1 runs every combination: four minutes.
IN_DEPTH = OWNERS if os.environ.get("JOBLENS_TEST_EVERY_FAULT") else ("run-printing", "workflow")
CASES = [
    (owner, fault, stream)
    for owner in OWNERS
    for fault in (*FAULTS, "closed")
    for stream in STREAMS
    if owner in IN_DEPTH or (stream == "both" and fault in ("dev-full", "closed"))
    if (owner, fault) != ("run-printing", "no-reader")  # SIGPIPE ends such a job, as it does without joblens
]


@pytest.mark.slow
@pytest.mark.parametrize(("owner", "fault", "stream"), CASES, ids=map("-".join, CASES))
def test_a_stream_that_cannot_be_written_changes_nothing(
    place: Place, request: pytest.FixtureRequest, owner: str, fault: str, stream: str
) -> None:
    called = OWNERS[owner]
    if called.needs:
        pytest.importorskip(called.needs)
    numbers = STREAMS[stream]
    arguments = list(called.arguments)
    if "last" in arguments:
        place.start("submit", "--wait", "--", "sh", "-c", FAILING).wait(timeout=30)
        arguments[arguments.index("last")] = place.records()[0].job.uuid
    if fault == "closed":
        line = 'exec "$@" ' + " ".join(f"{number}>&-" for number in numbers)
        job = subprocess.Popen(
            ["sh", "-c", line, "sh", *JOBLENS, *arguments],
            cwd=place.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        code = job.wait(timeout=60)
    else:
        with FAULTS[fault](request) as descriptor:
            names = {1: "stdout", 2: "stderr"}
            streams = {names[number]: descriptor for number in numbers}
            code = place.start(*arguments, start_new_session=True, **streams).wait(timeout=60)
    assert code == called.code
    records = place.records()
    assert [record.outcome.exit_code for record in records if record.outcome] == [
        called.job_code
    ] * called.jobs
    if called.job_code:
        assert (place.folder / "mark").read_text() == "done\n" * called.jobs


@pytest.mark.parametrize("fault", FAULTS)
def test_a_worker_goes_on_without_its_streams(
    place: Place, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """And so does the job it runs."""
    pytest.importorskip("celery")
    monkeypatch.setenv("JOBLENS_QUEUE_BROKER", str(place.folder / "broker"))  # no worker is started on demand
    with FAULTS[fault](request) as descriptor:
        worker = place.start("worker", "-v", "-c", "1", "-Q", "mine", stdout=descriptor, stderr=descriptor)
        try:
            done = place.start("submit", "--queue", "mine", "--wait", "--", "sh", "-c", FAILING)
            assert done.wait(timeout=60) == 6
            worker.terminate()
            assert worker.wait(timeout=30) == 0
        finally:
            worker.kill()
            worker.wait()
    assert [record.outcome.exit_code for record in place.records() if record.outcome] == [6]


@pytest.mark.parametrize("fault", FAULTS)
def test_attach_measures_to_the_end_without_its_streams(
    place: Place, request: pytest.FixtureRequest, fault: str
) -> None:
    with (
        subprocess.Popen(["sleep", "30"]) as target,
        FAULTS[fault](request) as descriptor,
    ):
        looking = place.start("attach", str(target.pid), stdout=descriptor, stderr=descriptor)
        wait_until((place.folder.parent / "store" / "joblens.db").exists)
        wait_until(lambda: [record for record in place.records() if record.attempt], what="a record")
        target.kill()
        target.wait()
        looking.wait(timeout=30)
        assert looking.returncode in (0, 137)
    assert [record.status.is_final for record in place.records()] == [True]


@pytest.mark.parametrize("ignored", [(), (signal.SIGHUP,)])
@pytest.mark.parametrize(
    "owner",
    [
        "run",
        "workflow",
        "map",
        pytest.param("recipe", marks=pytest.mark.needs("pyarrow")),
        "attach",
        "submit",
    ],
)
def test_a_terminal_that_is_closed_under_a_job(
    place: Place, owner: str, ignored: tuple[signal.Signals, ...]
) -> None:
    """Without SIGHUP, because this process ignores it or has another terminal that controls it."""
    endless = "while [ ! -e gone ]; do sleep 0.05; done; sleep 1.3; exit 6"
    (place.folder / "wf.yaml").write_text(f"name: wf\njobs:\n  - {{name: a, command: '{endless}'}}\n")
    (place.folder / "own.py").write_text(OWN_OPERATOR)
    (place.folder / "recipe.yaml").write_text(
        RECIPE.replace("whitespace_normalization_mapper", "patient_mapper")
        + "custom_operator_paths: [own.py]\n"
    )
    target = subprocess.Popen(["sh", "-c", endless], cwd=place.folder) if owner == "attach" else None
    arguments = {
        "run": ("run", "--", "sh", "-c", endless),
        "workflow": ("run", "wf.yaml"),
        "map": ("map", endless + " # {}", ":::", "a"),
        "recipe": ("process", "recipe.yaml"),
        "attach": ("attach", str(target.pid if target else 0)),
        "submit": ("submit", "--wait", "--", "sh", "-c", endless),
    }[owner]
    code = _run_on_closing_terminal(place, arguments, ignored)
    if target is not None:
        target.wait()
    else:
        assert code == {"run": 6, "submit": 6, "recipe": 0}.get(owner, 1)
    expected = 0 if owner == "recipe" else 6
    (record,) = place.records()
    assert record.outcome is not None
    assert record.outcome.exit_code in ((None, 6) if owner == "attach" else (expected,))


OWN_OPERATOR = '''
import os, time
import joblens

@joblens.operator
def patient_mapper(row: dict) -> dict:
    """Waits for a file."""
    while not os.path.exists("gone"):
        time.sleep(0.01)
    time.sleep(1)
    return row
'''


def _run_on_closing_terminal(
    place: Place, arguments: tuple[str, ...], ignored: tuple[signal.Signals, ...]
) -> int:
    """With `ignored` it controls the process, which then gets SIGHUP. -> the exit code"""
    process: subprocess.Popen[bytes] | None = None
    if ignored:
        pid, master = pty.fork()
        if pid == 0:
            try:
                for number in ignored:
                    signal.signal(number, signal.SIG_IGN)
                os.chdir(place.folder)
                os.execve(sys.executable, [*JOBLENS, *arguments], {**os.environ, "TERM": "xterm"})
            finally:
                os._exit(99)
    else:
        master, slave = os.openpty()
        process = place.start(
            *arguments,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
        )
        os.close(slave)
        pid = process.pid
    wait_until(lambda: _has_begun(place), what="the job")
    _read_for(master, 0.3)
    os.close(master)
    (place.folder / "gone").touch()
    end = time.monotonic() + 30
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            if process is not None:
                process.returncode = 0
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("joblens did not end")


def _has_begun(place: Place) -> bool:
    with contextlib.suppress(Exception):
        return any(record.attempt for record in place.records())
    return False


def _read_for(master: int, seconds: float) -> None:
    """Somebody looks at the terminal for a while."""
    os.set_blocking(master, False)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(BlockingIOError, OSError):
            os.read(master, 65536)
        time.sleep(0.02)


@pytest.mark.parametrize("what", ["log file", "history", "samples"])
@pytest.mark.parametrize("owner", ["run", "workflow", "map", "submit"])
def test_a_full_disk_under_the_log_file_or_a_sink(
    place: Place, full_disk: Path, monkeypatch: pytest.MonkeyPatch, owner: str, what: str
) -> None:
    if what == "log file":
        (full_disk / "own.log").touch()
        monkeypatch.setenv("JOBLENS_LOGS_FILE", str(full_disk / "own.log"))
    elif what == "history":
        monkeypatch.setenv("JOBLENS_SINKS_HISTORY_ENABLED", "true")
        monkeypatch.setenv("JOBLENS_SINKS_HISTORY_PATH", str(full_disk / "sink" / "history.jsonl"))
    else:
        monkeypatch.setenv("JOBLENS_JOB_METRICS_STORAGE_DIR", str(full_disk / "sink"))
    called = OWNERS[owner]
    assert place.start(*called.arguments).wait(timeout=60) == called.code
    codes = [record.outcome.exit_code for record in place.records() if record.outcome]
    assert codes == [called.job_code] * called.jobs


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("owner", ["run", "workflow", "map"])
def test_a_store_that_is_gone_in_the_end_changes_no_exit_code(
    place: Place, owner: str, options: tuple[str, ...]
) -> None:
    """What happened waits in a journal for the next joblens that opens it."""
    folder = place.folder.parent / "store"
    job = f"mv {folder} {folder}.away; touch {folder}; exit 0"
    (place.folder / "wf.yaml").write_text(f"name: wf\njobs:\n  - {{name: a, command: '{job}'}}\n")
    arguments = {
        "run": ("run", *options, "--", "sh", "-c", job.replace("exit 0", "exit 6")),
        "workflow": ("run", "wf.yaml", *options),
        "map": ("map", *options, job + " # {}", ":::", "a"),
    }[owner]
    assert place.start(*arguments).wait(timeout=60) == (6 if owner == "run" else 0)
    folder.unlink()
    (place.folder.parent / "store.away").rename(folder)
    assert place.start("history").wait(timeout=30) == 0  # brings it in
    assert [record.status.is_final for record in place.records()] == [True]
