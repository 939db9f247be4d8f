import os
import subprocess

from joblens.files.processes import is_running, process_start_ticks


def test_an_ended_child_does_not_run_even_before_it_is_waited_for() -> None:
    child = subprocess.Popen(["sleep", "100"])
    ticks = process_start_ticks(child.pid)
    assert is_running(child.pid, ticks)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(child.pid, ticks)
    child.wait()
