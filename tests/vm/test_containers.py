"""Jobs in containers of Podman on a machine with systemd, as an ordinary user and as root."""

from typing import Any

import pytest

from tests.vm.situations import Session
from tests.vm.summary import Summary

OUT_OF_MEMORY = 137
RUNTIME_S = 0.6  # the runtime becomes the program inside the container's group, and is emulated
EXIT_CODE = 7
CPU = "cpu_total_usec"
MEMORY = "memory_peak_bytes"


@pytest.fixture(params=["alice", "root"])
def caller(request: pytest.FixtureRequest, alice: Session, root: Session) -> Session:
    return alice if request.param == "alice" else root


def test_cpu_time_and_memory_of_a_container_are_counted_or_flagged(caller: Session, summary: Summary) -> None:
    found = caller.batch("containers")
    cpu, spike = found["cpu"], found["spike"]
    assert (cpu["code"], spike["code"]) == (0, 0), found
    truth_s = float(cpu["stdout"])
    above_s = cpu["cpu_s"] - truth_s
    summary.note(caller.name, "container CPU", f"{above_s:+.2f} s of {truth_s:.1f}{_flag(cpu, CPU)}")
    summary.note(caller.name, "container spike", f"{spike['peak_mb']:.0f} of 150 MB{_flag(spike, MEMORY)}")
    assert above_s <= RUNTIME_S, cpu
    assert above_s >= -0.01 * truth_s or CPU in cpu["lower_bounds"], cpu
    assert spike["peak_mb"] >= 150 or MEMORY in spike["lower_bounds"], spike
    assert found["left"] == [], found


def test_a_container_over_its_memory_is_killed_and_says_so(caller: Session) -> None:
    job = caller.batch("containers")["memory"]
    assert (job["status"], job["reason"], job["code"]) == ("failed", "out-of-memory", OUT_OF_MEMORY), job
    assert "survived" not in job["stdout"]


def test_the_exit_code_of_a_container_is_that_of_its_program(caller: Session) -> None:
    job = caller.batch("containers")["code"]
    assert (job["status"], job["code"]) == ("failed", EXIT_CODE), job


def _flag(job: dict[str, Any], number: str) -> str:
    return " flagged" if number in job["lower_bounds"] else ""
