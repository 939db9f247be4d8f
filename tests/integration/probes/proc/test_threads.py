import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from joblens.model.jobs.details import ThreadTable
from joblens.model.values.units import format_cpu_list
from joblens.probes.proc import threads
from joblens.probes.proc.threads import (
    ThreadsProbe,
)

_BUSY = """
import ctypes, sys, threading, time
def burn(seconds):
    ctypes.CDLL(None).prctl(15, b"burner", 0, 0, 0)
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
hot = threading.Thread(target=burn, args=(0.3,))
hot.start()
hot.join()
print("burnt", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def a_look_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_TIMES_NS", "_SCAN_NS", "_SCAN_WALL_NS"):
        monkeypatch.setattr(threads, name, 10**10)


def _never(_tid: int, _start_ticks: int) -> bool:
    return False


def _table(probe: ThreadsProbe) -> ThreadTable:
    table = probe.read().threads
    assert table is not None
    return table


@contextmanager
def _program(code: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-I", "-S", "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_real_hot_thread_is_seen_with_its_name_time_and_cpus() -> None:
    with _program(_BUSY) as process:
        probe = ThreadsProbe(lambda: [process.pid] if process.poll() is None else [], _never)
        deadline = time.monotonic() + 20
        hot = None
        while time.monotonic() < deadline and not hot:
            table = probe.read().threads
            if table is not None:
                hot = next(
                    (use for use in table.threads if use.name == "burner" and use.cpu_usec > 50_000), None
                )
        assert hot is not None
        assert hot.cpus_allowed == format_cpu_list(os.sched_getaffinity(0))
        assert hot.last_cpu in os.sched_getaffinity(0)
        assert hot.tid != hot.pid == process.pid
        assert process.stdout is not None
        assert process.stdout.readline() == "burnt\n"
        while os.path.exists(f"/proc/{process.pid}/task/{hot.tid}"):  # Python has joined it a little before
            time.sleep(0.001)
        last = _table(probe)
        ended = next(use for use in last.threads if use.name == "burner")
        assert not ended.is_alive
        assert ended.cpu_usec >= hot.cpu_usec
