"""Slot jobs of a killed owner, read from its ledger: records those that are missing in the store, and returns
the counters that their launchers noted at their ends."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.launcher.slot_ledger import LedgerJob, StartFailed, ledger_owner, ledgers, started_jobs
from joblens.agent.measuring.accounting import PROCESS_TREE
from joblens.agent.measuring.outcome import Origins
from joblens.agent.runtime.ownership import is_gone
from joblens.agent.slots.marks import SlotMark, end_slot, read_mark, slot_marks
from joblens.analysis.numbers.rates import NO_GRID_FACTOR
from joblens.files.private import age_s
from joblens.files.processes import is_running
from joblens.model.errors import ProbeError
from joblens.model.jobs.job import Attempt, Outcome, Owner, Record
from joblens.model.jobs.sample import Sample
from joblens.model.writes import JobEnded, JobQueued, JobStarted, Write
from joblens.probes.host.machine_load import HostFacts

if TYPE_CHECKING:  # commands that find nothing left do without
    from joblens.agent.measuring.readings import SlotNumbers
    from joblens.probes.cgroup.probe import CgroupProbe

_TIMEOUT_S = 3.0  # for a launcher that has not noticed yet that its owner is gone
_POLL_EVERY_S = 0.005
_OLD_S = 86_400.0


class SlotReading(Struct, frozen=True):
    """First and last sample of a slot job, from the counters that its launcher read before and after it."""

    first: dict[str, Any]
    last: dict[str, Any]
    origins: Origins


def abandoned_ledgers(spool_dir: str, host: HostFacts) -> dict[str, Owner]:
    """Returns the paths and owners of ledgers whose owner is gone."""
    found = {path: ledger_owner(path) for path in ledgers(spool_dir)}
    return {path: owner for path, owner in found.items() if owner is not None and is_gone(owner, host)}


def read_abandoned(path: str, owner: Owner, unfinished: Iterable[Record]) -> list[LedgerJob]:
    """Returns the jobs of an abandoned ledger that a launcher has begun; none begins later. `unfinished`:
    jobs in the store. Call it in one process at a time (`runtime.ownership.exclusive_lock`)."""
    marks = slot_marks(os.path.dirname(path))
    of_owner = {name: mark for name, mark in marks.items() if mark.owner == owner}
    _kill_unrecorded(of_owner, lambda: started_jobs(path), unfinished)
    return started_jobs(path)


def unrecorded(
    jobs: Iterable[LedgerJob], owner: Owner, host: HostFacts, find: Callable[[str], Record | None]
) -> list[Write]:
    """Returns writes for jobs of an abandoned ledger that are missing in the store. Jobs of a queue are
    omitted: they are delivered again."""
    writes: list[Write] = []
    marks: dict[str, SlotMark] = {}
    for job in jobs:
        if not job.sent.job.queue and find(job.uuid) is None:
            marks = marks or slot_marks(os.path.dirname(job.path))
            writes += _writes(job, owner, marks.get(job.begin.slot), host)
    return writes


def kill_unrecorded(spool_dir: str, logs_dir: str, host: HostFacts, unfinished: Iterable[Record]) -> None:
    """Kills launchers whose job is not recorded, for slots with output in `logs_dir` whose owner is gone and
    had no ledger (no file could be made). The next driver of the run starts such a job again."""
    in_ledgers = [ledger_owner(path) for path in ledgers(spool_dir)]
    marks = {
        name: mark
        for name, mark in slot_marks(spool_dir).items()
        if os.path.dirname(mark.files) == logs_dir
        and mark.owner not in in_ledgers
        and is_gone(mark.owner, host)
    }
    _kill_unrecorded(marks, list, unfinished)


def _kill_unrecorded(
    marks: Mapping[str, SlotMark], begun: Callable[[], list[LedgerJob]], unfinished: Iterable[Record]
) -> None:
    """Waits until each launcher runs a job that is recorded or noted, or has ended. Kills the others: no
    record would ever have their job."""
    unfinished = list(unfinished)
    deadline_s = time.monotonic() + _TIMEOUT_S
    while True:
        jobs = begun()
        busy = {job.begin.slot for job in jobs if job.end is None}
        ended = {job.uuid for job in jobs if job.end is not None}
        recorded = {
            (one.attempt.launcher_pid, one.attempt.launcher_start_ticks)
            for one in unfinished
            if one.attempt is not None and one.job.uuid not in ended
        }
        unknown = [
            mark
            for name, mark in marks.items()
            if name not in busy
            and (mark.launcher_pid, mark.launcher_start_ticks) not in recorded
            and is_running(mark.launcher_pid, mark.launcher_start_ticks)
        ]
        if not unknown:
            return
        if time.monotonic() > deadline_s:
            for mark in unknown:
                end_slot(mark)
            return
        time.sleep(_POLL_EVERY_S)


def _writes(job: LedgerJob, owner: Owner, mark: SlotMark | None, host: HostFacts) -> list[Write]:
    failure = start_failure(job)
    if failure is not None:
        return [JobQueued(job.sent.job), JobEnded(job.uuid, failure)]
    attempt = Attempt(
        started_at_us=job.begin.at_us,
        started_mono_ns=job.begin.mono_ns,
        owner=owner,
        launcher_pid=mark.launcher_pid if mark else None,
        launcher_start_ticks=mark.launcher_start_ticks if mark else None,
        accounting=(mark.kind if mark else "") or PROCESS_TREE,
        groups=mark.paths if mark else {},
        base=_base(job, mark),
        kernel=host.kernel,
        cpu_count=host.cpu_count,
        memory_total_bytes=host.memory_total_bytes,
    )
    return [JobQueued(job.sent.job), JobStarted(job.uuid, attempt)]


def start_failure(job: LedgerJob) -> Outcome | None:
    """Returns the outcome of a job whose program could not be started, otherwise None."""
    if job.end is None or not isinstance(job.end.report, StartFailed):
        return None
    from joblens.agent.slots.records import not_started_outcome
    from joblens.agent.slots.slot import SlotJob

    sent = job.sent
    slot_job = SlotJob(sent.job, sent.job.argv, {}, sent.folder, sent.streams)
    return not_started_outcome(slot_job, job.end.report, job.end.at_us)


def reading_of(job: LedgerJob) -> SlotReading | None:
    """Returns the reading from the contents of the slot's counters in the ledger: its groups may be gone.
    None: they are too large for the ledger, or there are none."""
    mark = read_mark(os.path.dirname(job.path), job.begin.slot)
    before = _parse_counters(job.begin.counters, mark)
    if job.end is None or isinstance(job.end.report, StartFailed) or mark is None or before is None:
        return None
    after = _parse_counters(job.end.report.counters, mark)
    if after is None:
        return None
    from joblens.agent.slots.instruments import UNSAMPLED
    from joblens.probes.network.cgroup_network import FIELDS, NOT_COUNTED, SOURCE, may_count, v2_group

    numbers, (fields, probe) = _numbers(job, before[0]), after
    sources, unknown = dict(probe.sources), {**UNSAMPLED, **numbers.unknown(), **probe.unknown}
    unknown["co2"] = NO_GRID_FACTOR
    if FIELDS[0] in fields:
        sources["network"] = SOURCE
    else:
        unknown |= dict.fromkeys(FIELDS, v2_group(mark.paths)[1] or may_count() or NOT_COUNTED)
    last = numbers.since_start(fields, job.end.report.own_cpu_usec, was_sampled=False)
    return SlotReading(numbers.at_start(), last, Origins(sources, unknown))


def _parse_counters(
    contents: list[bytes], mark: SlotMark | None
) -> "tuple[dict[str, Any], CgroupProbe] | None":
    """Returns numbers and their probe from the contents of a slot's counters; packet counts, if any, come
    last."""
    if mark is None or not mark.counter_files or len(contents) < len(mark.counter_files):
        return None
    from joblens.probes.cgroup.probe import CgroupProbe
    from joblens.probes.network.cgroup_network import parse_counters

    by_path = dict(zip(mark.counter_files, contents, strict=False))
    try:
        probe = CgroupProbe(mark.paths, mark.kind, contents=by_path)
    except (ProbeError, ValueError):
        return None
    packets = contents[len(mark.counter_files) :]
    fields = {**probe.read(), **(parse_counters(packets[0]) if packets else {}), "processes": 1}
    return fields, probe


def _numbers(job: LedgerJob, before: dict[str, Any]) -> "SlotNumbers":
    from joblens.agent.measuring.readings import SlotNumbers

    return SlotNumbers(before, can_reset_peak=job.begin.can_reset_peak)


def without_peak(sample: Sample) -> Sample:
    """Removes the peak from a sample of a slot's groups that another process than the slot's owner read:
    it may belong to an earlier job, and includes the launcher. The launcher notes the job's own peak at
    its end."""
    return replace(sample, memory_kernel_peak_bytes=None)


def _base(job: LedgerJob, mark: SlotMark | None) -> dict[str, int]:
    """Returns the counters of its groups when it began."""
    before = _parse_counters(job.begin.counters, mark)
    return _numbers(job, before[0]).base_of_attempt() if before is not None else {}


def remove_finished_ledgers(
    spool_dir: str, host: HostFacts, is_over: Callable[[str], bool], now_us: int
) -> None:
    """Removes ledgers of which every job has ended, with launchers that have ended; also old ones without an
    owner, which was killed before it could write its name."""
    for path in ledgers(spool_dir):
        if ledger_owner(path) is None and age_s(path, now_us) > _OLD_S:
            with contextlib.suppress(OSError):
                os.unlink(path)
    for path, owner in abandoned_ledgers(spool_dir, host).items():
        marks = [mark for mark in slot_marks(spool_dir).values() if mark.owner == owner]
        if not _is_any_running(marks) and all(
            job.sent.job.queue or is_over(job.uuid) for job in started_jobs(path)
        ):
            with contextlib.suppress(OSError):
                os.unlink(path)


def _is_any_running(marks: Iterable[SlotMark]) -> bool:
    return any(is_running(mark.launcher_pid, mark.launcher_start_ticks) for mark in marks)
