"""Counters of a slot's groups, on files that stand for the kernel's."""

import os
from pathlib import Path

import pytest

from joblens.agent.left_slots import reading_of
from joblens.agent.owners import this_process
from joblens.agent.slot_counters import SlotCounters
from joblens.agent.slot_ledger import Begin, End, LedgerJob, SentJob
from joblens.model.job import Attempt, Job
from joblens.probes.host import read_host


@pytest.fixture
def group(tmp_path: Path) -> Path:
    for name, text in (("cgroup.procs", ""), ("memory.current", "5\n"), ("memory.peak", "900\n")):
        (tmp_path / name).write_text(text)
    return tmp_path


def counters_of(group: Path) -> SlotCounters:
    return SlotCounters({"unified": str(group)}, "cgroup-v2", None)


def test_the_owner_reads_the_peak_by_the_open_file_that_is_reset(group: Path) -> None:
    """cgroup v2 keeps a reset peak for each open file: by another one the jobs before would be read."""
    counters = counters_of(group)
    assert counters.peak >= 0
    os.unlink(group / "memory.peak")
    (group / "memory.peak").write_text("900\n")  # as any other open file has it
    os.pwrite(counters.peak, b"7\n\n\n", 0)
    assert counters.read()["memory_kernel_peak_bytes"] == 7
    counters.reset_peak()
    assert os.pread(counters.peak, 1, 0) == b"0"
    counters.close()
    counters.close()


def test_a_peak_that_cannot_be_reset_is_read_like_any_other_file(
    group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "pwrite", refuse)
    counters = counters_of(group)
    assert counters.peak == -1
    assert counters.read()["memory_kernel_peak_bytes"] == 900
    counters.reset_peak()
    counters.close()


def test_recovery_leaves_the_peak_of_a_job_that_still_runs_alone(group: Path) -> None:
    """cgroup v1 has one peak for all who open the file."""
    contents = [b"5\n", b"900\n"]
    begin = Begin(1, 1, "slot-x", can_reset_peak=True, reaped_s=(0.0, 0.0), counters=contents)
    end = End(2, ("done", 0, (), 5, 1, 2, 0, 0, "", False, contents))
    job = LedgerJob(
        sent=SentJob(Job(uuid="u", argv=("x",), created_at_us=1)), begin=begin, end=end, path="", place=0
    )
    attempt = Attempt(
        started_at_us=1,
        owner=this_process(read_host()),
        accounting="cgroup-v2",
        groups={"unified": str(group)},
    )
    assert reading_of(job, attempt) is not None
    assert (group / "memory.peak").read_text() == "900\n"
