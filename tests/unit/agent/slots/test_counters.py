"""Counters of a slot's groups, on files that stand for the kernel's."""

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from joblens.agent.launcher.launcher import TOTALS
from joblens.agent.launcher.slot_ledger import Begin, End, JobDone, LedgerJob, SentJob
from joblens.agent.measuring.accounting import Accountant
from joblens.agent.recovery.finalization import UNKNOWN, Finalization, History, Tools
from joblens.agent.runtime.ownership import this_process
from joblens.agent.slots.after_kill import reading_of
from joblens.agent.slots.groups import SlotCounters
from joblens.agent.slots.marks import SlotMark, write_mark
from joblens.app.wiring.drivers import SystemClock
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Attempt, ExitUsage, Job, Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.values.ids import new_uuid
from joblens.model.writes import JobEnded
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.host.machine_load import read_host
from joblens.probes.network.cgroup_network import FIELDS, SOURCE


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


def ended_in(group: Path, peak: bytes) -> tuple[LedgerJob, Record]:
    """A job that ended in the slot with this group, as its launcher noted it."""
    counters = CgroupProbe({"unified": str(group)}, "cgroup-v2")
    before, after = [
        [value if path.endswith("peak") else b"5\n" for path in counters.files()] for value in (b"0\n", peak)
    ]
    files = tuple(counters.files())
    counters.close()
    owner, paths = this_process(read_host()), {"unified": str(group)}
    mark = SlotMark(owner, "", "cgroup-v2", paths, 1, 1, files)
    write_mark(str(group), "slot-x", mark)
    begin = Begin(1, 1, "slot-x", can_reset_peak=True, reaped_s=(0.0, 0.0), counters=before)
    end = End(2, JobDone("done", 0, (0,) * len(TOTALS), 5, 1, 2, 0, 0, "", False, after))
    job = Job(uuid=new_uuid(), argv=("x",), created_at_us=1)
    attempt = Attempt(
        started_at_us=1,
        started_mono_ns=1,
        owner=owner,
        accounting="cgroup-v2",
        groups=paths,
    )
    record = Record(status=Status.RUNNING, job=job, attempt=attempt)
    ledger = str(group / "slots.ledger")
    return LedgerJob(sent=SentJob(job), begin=begin, end=end, path=ledger, offset=0), record


def test_recovery_leaves_the_peak_of_a_job_that_still_runs_alone(group: Path) -> None:
    """cgroup v1 has one peak for all who open the file."""
    job, _ = ended_in(group, b"800\n")
    reading = reading_of(job)
    assert reading is not None
    assert reading.last["memory_kernel_peak_bytes"] == 795
    assert (group / "memory.peak").read_text() == "900\n"


def test_noted_counters_are_read_when_the_group_is_gone(group: Path) -> None:
    job, _ = ended_in(group, b"800\n")
    packets = [struct.pack("=5Q24x5Q24x", *[value] * len(FIELDS)) for value in (7, 50)]
    assert job.end is not None
    assert isinstance(job.end.report, JobDone)
    begin = structs.replace(job.begin, counters=[*job.begin.counters, packets[0]])
    end = structs.replace(
        job.end, report=job.end.report._replace(counters=[*job.end.report.counters, packets[1]])
    )
    for name in ("cgroup.procs", "memory.current", "memory.peak"):
        (group / name).unlink()
    reading = reading_of(structs.replace(job, begin=begin, end=end))
    assert reading is not None
    assert reading.last["memory_kernel_peak_bytes"] == 795
    assert {reading.last[name] for name in FIELDS} == {43}
    assert reading.origins.sources["network"] == SOURCE
    assert reading.origins.has_end


def test_packets_that_nobody_counted_have_a_reason(group: Path) -> None:
    reading = reading_of(ended_in(group, b"800\n")[0])
    assert reading is not None
    assert FIELDS[0] not in reading.last
    assert reading.origins.unknown[FIELDS[0]]


def test_a_slot_without_a_mark_gives_no_reading(group: Path) -> None:
    job, _ = ended_in(group, b"800\n")
    (group / "slot-x.slot").unlink()
    assert reading_of(job) is None


class NoGroups:
    """In offset of the groups of a slot."""

    paths: Mapping[str, str] = {"unified": ""}

    def is_empty(self) -> bool:
        return True

    def kill(self) -> None: ...

    def remove(self) -> None: ...


class SlotMeter:
    """Of an adopter: it reads the peak of all jobs that the slot ever had."""

    others = SimpleNamespace(origins=lambda: ({}, {}, frozenset()))
    probe = SimpleNamespace(sources={"memory_kernel_peak": "memory.peak"}, unknown={})
    details = None
    has_end = True

    def read_others(self) -> dict[str, int]:
        return {"instructions": 8}

    def sample(self, _reaped: ExitUsage, *, final: bool) -> Sample:
        return Sample(at_us=2, elapsed_us=1, memory_file_bytes=0, memory_kernel_peak_bytes=9000 * final)

    def close(self) -> None: ...


@pytest.mark.parametrize("is_noted", [True, False])
def test_an_adopted_job_has_the_peak_that_its_launcher_noted(
    group: Path, monkeypatch: pytest.MonkeyPatch, *, is_noted: bool
) -> None:
    monkeypatch.setattr("joblens.agent.recovery.finalization.standing_groups", lambda _: NoGroups())
    job, record = ended_in(group, b"800\n")
    if not is_noted:
        job = structs.replace(job, end=None)
    clock = SystemClock()
    tools = Tools(str(group), Accountant(clock), clock, 0)
    seen = History([], Details(), SlotMeter())  # type: ignore[arg-type]
    writes = Finalization(record, seen, UNKNOWN, tools, job, has_valid_pid=True).writes()
    ended = writes[-1]
    assert isinstance(ended, JobEnded)
    assert ended.outcome.usage.memory_kernel_peak_bytes == (795 if is_noted else None)
    assert ended.outcome.usage.instructions == (8 if is_noted else None)  # read beside the groups
