import os

import pytest

from joblens.agent.measuring.accounting import BY_TIMER, BY_WATCHING, Accountant, Limits, limit
from joblens.model.errors import AccountingUnavailable
from joblens.model.jobs.job import Accounting, Job, Requirements
from tests.unit.agent.fake_clock import FakeClock

MIB = 1 << 20


def a_job(*, enforce: bool = True, **asked: float) -> Job:
    return Job(uuid="u", argv=("x",), created_at_us=0, enforce=enforce, requirements=Requirements(**asked))  # type: ignore[arg-type]


def test_who_asks_for_nothing_is_limited_by_nothing() -> None:
    assert limit(a_job(), None) == Limits()


def test_who_is_not_to_be_held_is_not() -> None:
    asked = a_job(enforce=False, cpus=1, memory_bytes=1, pids=1, timeout_s=1)
    assert limit(asked, None) == Limits()


def test_without_groups_memory_and_processes_are_watched() -> None:
    limits = limit(a_job(memory_bytes=100 * MIB, pids=5), None)
    assert (limits.watched_memory_bytes, limits.watched_pids) == (100 * MIB, 5)
    assert limits.enforced_by == {"memory": BY_WATCHING, "pids": BY_WATCHING}


def test_a_time_out_is_a_timers() -> None:
    assert limit(a_job(timeout_s=5), None).enforced_by == {"timeout": BY_TIMER}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU is all there is")
@pytest.mark.parametrize(("cpus", "given"), [(0.5, 1), (1, 1)])
def test_without_groups_whole_cpus_are_given(cpus: float, given: int) -> None:
    limits = limit(a_job(cpus=cpus), None)
    assert limits.affinity is not None
    assert len(limits.affinity) == given
    assert set(limits.affinity) <= os.sched_getaffinity(0)
    assert limits.enforced_by == {"cpus": "CPU affinity (1 whole CPU)"}


def test_more_cpus_than_there_are_is_no_limit() -> None:
    limits = limit(a_job(cpus=100_000), None)
    assert (limits.affinity, limits.enforced_by) == (None, {})


def test_a_configured_parent_that_cannot_be_used_is_reported_once() -> None:
    messages: list[str] = []
    accountant = Accountant(FakeClock(), "/no/such/group", messages.append)
    assert accountant.groups_for_process("a", Accounting.PROCESS_TREE, None) is None
    assert messages == []
    assert accountant.groups_for_process("b", Accounting.AUTO, None) is None
    assert accountant.groups_for_process("c", Accounting.AUTO, None) is None
    (warning,) = messages
    assert "limits.cgroup_parent /no/such/group" in warning
    assert "process tree" in warning
    with pytest.raises(AccountingUnavailable):
        accountant.groups_for_process("d", Accounting.CGROUP, None)
    accountant.close()


def test_a_machine_without_groups_is_nothing_to_warn_of() -> None:
    accountant = Accountant(FakeClock(), None, pytest.fail)
    accountant._unavailable = AccountingUnavailable("no control groups here")
    assert accountant.groups_for_process("a", Accounting.AUTO, None) is None
    accountant.close()
