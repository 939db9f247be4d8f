"""When a background process notices that joblens was replaced, and when it may be restarted."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import python_path

RESTARTED = """
import os, signal, sys
from joblens.app.wiring import background_process as restarting

restarting._POLL_S = 0.2
signals = []
signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
if "AGAIN" in os.environ:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
    print("asked to end" if signals else "goes on")
    sys.exit()
if "EARLY" in os.environ:
    os.kill(os.getpid(), signal.SIGTERM)
print("restarts", flush=True)
restarting.restart(sys.argv[1], {"AGAIN": "1"}, is_stopping=lambda: bool(signals))
"""


def restarting_process(module: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RESTARTED, module],
        env={**os.environ, "PYTHONPATH": python_path(), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_end_that_comes_during_the_restart_reaches_the_restarted_process(number: int) -> None:
    with restarting_process("json") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "restarts\n"
        time.sleep(0.1)
        process.send_signal(number)
        assert process.communicate(timeout=60) == ("asked to end\n", "")


def test_a_signal_to_end_that_came_before_the_restart_reaches_the_restarted_process() -> None:
    with restarting_process("json", EARLY="1") as process:
        assert process.communicate(timeout=60) == ("restarts\nasked to end\n", "")


def test_a_second_demand_to_restart_does_not_end_the_process() -> None:
    with restarting_process("json") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "restarts\n"
        time.sleep(0.1)
        for _ in range(20):
            process.send_signal(signal.SIGUSR2)
            time.sleep(0.01)
        assert process.communicate(timeout=60) == ("goes on\n", "")


def test_who_is_asked_to_end_does_not_wait_for_a_broken_installation() -> None:
    with restarting_process("missing_module_of_the_new_version") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "restarts\n"
        process.send_signal(signal.SIGTERM)
        assert "cannot be imported" in process.communicate(timeout=60)[1]
