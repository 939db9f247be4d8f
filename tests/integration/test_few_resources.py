"""Few descriptors, few processes: a clear line and exit code 125 where joblens cannot run the job, never a
traceback. `python -m tests.integration.test_few_resources` tries every limit and prints counts."""

import collections
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from joblens.agent.runtime.loop import Sampler
from joblens.agent.runtime.recorder import Recorder
from joblens.app.wiring.drivers import SystemClock
from joblens.stores.sqlite import SqliteStore
from tests.builders.writes import whole_job

FLOW = "name: w\njobs: [{name: a, command: 'true'}]\n"
COMMANDS = (
    ("run", "--", "true"),
    ("run", "w.yaml"),
    ("map", "echo {}", ":::", "1", "2"),
    ("history",),
    ("stats", "--json"),
    ("doctor",),
)
_PIDS = Path("/sys/fs/cgroup/pids")


def with_descriptors(limit: int, words: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    return _call(words, folder, limited)


def with_processes(group: Path, limit: int, words: tuple[str, ...], folder: Path) -> Any:
    def limited() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    (group / "pids.max").write_text(str(limit))
    return _call(words, folder, limited)


def _call(words: tuple[str, ...], folder: Path, limited: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "joblens", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=limited,
    )


@pytest.fixture
def folder(tmp_path: Path, store_path: Path) -> Path:
    (tmp_path / "w.yaml").write_text(FLOW)
    SqliteStore(str(store_path)).close()
    return tmp_path


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Path]:
    """Where the kernel counts processes for us."""
    made = _PIDS / f"joblens-test-{os.getpid()}"
    try:
        made.mkdir()
    except OSError:
        pytest.skip("no control group of processes can be made here")
    yield made
    made.rmdir()


# A few of them here; the fault run has all.
@pytest.mark.parametrize("limit", [12, 16, 24, 32, 63])
def test_few_descriptors_are_reported_before_a_job_begins(folder: Path, limit: int) -> None:
    words = COMMANDS[limit % 3]
    done = with_descriptors(limit, words, folder)
    assert "Traceback" not in done.stderr
    assert done.returncode == 125
    assert "ulimit -n" in done.stderr


def test_enough_descriptors_are_enough(folder: Path) -> None:
    for words in COMMANDS[:3]:
        assert with_descriptors(64, words, folder).returncode == 0


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
@pytest.mark.parametrize("words", COMMANDS[:3])
def test_few_processes_end_in_no_traceback(
    folder: Path, group: Path, limit: int, words: tuple[str, ...]
) -> None:
    done = with_processes(group, limit, words, folder)
    assert "Traceback" not in done.stderr
    # A run or map whose job could not be started has failed (1); `true` itself never ends with 1.
    assert done.returncode in ((0, 125) if words == COMMANDS[0] else (0, 1, 125))
    if limit < 3:
        assert done.returncode == 125


# threads that cannot be had


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_a_recorder_without_a_thread_writes_at_once(no_threads: None, tmp_path: Path) -> None:
    recorder = Recorder(SqliteStore(str(tmp_path / "joblens.db")), [], print)
    ticket = recorder.put(whole_job("aaaa1111-0000-4000-8000-000000000000"))
    assert recorder.applied >= ticket
    assert recorder.read(lambda store: store.find("aaaa1111")).number == 1
    recorder.close()


def test_a_sampler_without_a_thread_warns_and_can_be_closed(no_threads: None) -> None:
    warnings: list[str] = []
    sampler = Sampler(SystemClock(), warnings.append)
    sampler.add("aaaa1111", 1.0, bool)
    sampler.remove("aaaa1111")
    sampler.close()
    assert warnings == ["no samples are taken and no limits watched: can't start new thread"]


def main() -> None:
    """The fault run: every limit on descriptors from 3 to 64 and on processes from 1 to 12."""
    import tempfile

    counts: collections.Counter[tuple[str, int]] = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"HOME": name, "JOBLENS_STORE": str(folder / "joblens.db")}
        (folder / "w.yaml").write_text(FLOW)
        SqliteStore(str(folder / "joblens.db")).close()
        group = _PIDS / f"joblens-faults-{os.getpid()}"
        group.mkdir()
        done = [
            ("descriptors", limit, words, with_descriptors(limit, words, folder))
            for limit in range(3, 65)
            for words in COMMANDS
        ] + [
            ("processes", limit, words, with_processes(group, limit, words, folder))
            for limit in range(1, 13)
            for words in COMMANDS
        ]
        group.rmdir()
    for kind, limit, words, ended in done:
        counts[kind, ended.returncode] += 1
        if "Traceback" in ended.stderr:
            counts[f"{kind}: tracebacks", 0] += 1
            print(kind, limit, words, ended.stderr.splitlines()[-1])  # noqa: T201
    print(dict(counts))  # noqa: T201


if __name__ == "__main__":
    main()
