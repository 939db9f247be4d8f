"""Attaching to a process and to a job that run already."""

import pytest

from tests.vm.situations import Session


@pytest.mark.parametrize("user", ["alice", "root"])
def test_attaching_measures_a_process_and_a_job_from_then_on(
    user: str, alice: Session, root: Session
) -> None:
    found = (alice if user == "alice" else root).program("attach")
    for name in ("process", "attached"):
        assert found[name]["code"] == 0, found[name]
        assert 1.4 <= found[name]["cpu_s"] <= 2.5, found[name]
    assert found["job"]["code"] == 0, found["job"]
    assert found["job"]["cpu_s"] >= found["attached"]["cpu_s"] - 0.1, found
