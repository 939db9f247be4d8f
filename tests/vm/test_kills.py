"""Totals of jobs whose joblens, supervisor, both, or driver of a map were killed with SIGKILL.

systemd removes the control groups of such a job together with its last process. JOBLENS_VM_KILLS: tries of
each as the ordinary user (default: 50); a fifth of it elsewhere."""

import os

import pytest

from tests.vm.machine import IS_QUICK
from tests.vm.situations import ALICE_SCOPE, ALICE_SSH, ROOT_SERVICE, ROOT_SSH, SessionOf, Situation
from tests.vm.summary import Summary

TRIES = int(os.environ.get("JOBLENS_VM_KILLS") or (5 if IS_QUICK else 50))
AT_ONCE = 5
TRY_S = 20.0  # emulated, five at a time


@pytest.mark.parametrize("target", ["joblens", "supervisor", "both", "driver"])
def test_totals_of_an_ordinary_user_are_exact_after_a_kill(
    session_of: SessionOf, summary: Summary, target: str
) -> None:
    _assert_exact(session_of, summary, ALICE_SSH, target, TRIES)


@pytest.mark.parametrize("target", ["both", "driver"])
@pytest.mark.parametrize(
    "launched", [ALICE_SCOPE, ROOT_SSH, ROOT_SERVICE], ids=lambda situation: situation.id
)
def test_totals_are_exact_after_a_kill_in_other_situations(
    session_of: SessionOf, summary: Summary, launched: Situation, target: str
) -> None:
    _assert_exact(session_of, summary, launched, target, max(1, TRIES // 5))


def _assert_exact(
    session_of: SessionOf, summary: Summary, launched: Situation, target: str, tries: int
) -> None:
    session = session_of(launched)
    found = session.program("kills", target, str(tries), str(AT_ONCE), timeout=60 + tries * TRY_S)
    text = f"{found['right']}/{found['tries']} exact, worst {found['worst_percent']:.1f} %"
    before, after = found["cpu_before_the_job_s"], found["cpu_after_the_truth_s"]
    if before and after:
        ends = f"after {1000 * after[0]:+.0f} to {1000 * after[1]:+.0f} ms"
        window = f"before {1000 * before[0]:.0f} ms (most {1000 * before[1]:.0f}), {ends}"
        summary.note(session.name, f"CPU outside the truth, {target}", window)
    summary.note(session.name, f"kill -9 {target}", text)
    summary.exact(f"totals after kill -9 of {target}", found["right"], found["tries"])
    assert found["modes"] == ["cgroup-v2"], found
    assert found["right"] == found["tries"], found["others"][:5]
