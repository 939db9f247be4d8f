"""Finalization of a job without an owner: its true outcome if that is known, otherwise lost.

An outcome file of its launcher, its processes and its control groups may remain. Everything that is still
readable is read, and all of it is removed."""

import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.launcher.slot_ledger import LauncherOutcome, LedgerJob, read_launcher_outcome
from joblens.agent.measuring.accounting import PROCESS_TREE, Accountant, kill_marked
from joblens.agent.measuring.meter import JobMeter
from joblens.agent.measuring.outcome import Ending, outcome_of
from joblens.agent.session.context import container_handle
from joblens.agent.terminal.streams import NOTHING_NEW, OutputFiles
from joblens.analysis.numbers.sample_buffer import RunningSummary
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import JoblensError, ProbeError
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import NOTHING_REAPED, Attempt, ExitUsage, Job, Record
from joblens.model.jobs.sample import Sample
from joblens.model.redaction.secrets import REDACTED, is_secret_name
from joblens.model.writes import DetailsTaken, JobEnded, JobStarted, SamplesTaken, Write
from joblens.ports.clock import Clock
from joblens.ports.probe import Probe
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.proc.processes import IO_FIELDS

if TYPE_CHECKING:
    from joblens.agent.slots.after_kill import SlotReading


RESTARTED = "the machine was restarted while it ran"
_FROM_LAUNCHER = ("faults_minor", "faults_major", *IO_FIELDS)
_NO_HOST = dict.fromkeys(name for name in Sample.__struct_fields__ if name.startswith("host_"))
NOT_REAPED = "joblens and the job's launcher were killed, so its exit status is unknown"


class Circumstances(Struct, frozen=True, kw_only=True):
    """Facts that the caller has about the end of the job."""

    cause: EndCause = EndCause.NONE
    cancel_asked_at_us: int | None = None
    leftovers: int = 0
    owns_groups: bool = True  # False: its slot runs another job, which owns the groups


UNKNOWN = Circumstances()


class History(Struct, frozen=True):
    """Samples and details of the job so far."""

    samples: list[tuple[int, Sample]] = []
    details: Details = Details()
    meter: JobMeter | None = None  # of its last owner; closed when the job is finalized
    next_index: int = 0  # minimum index of the next sample


class Tools(Struct, frozen=True):
    spool_dir: str
    accountant: Accountant
    clock: Clock
    output_max_bytes: int


class Finalization:
    """`slot_job`: the job in the ledger of its slot, if any. `has_valid_pid` False: neither processes nor
    groups of the job can exist; others may have their pids and names now."""

    def __init__(
        self,
        record: Record,
        history: History,
        end: Circumstances,
        tools: Tools,
        slot_job: LedgerJob | None,
        *,
        has_valid_pid: bool,
    ) -> None:
        assert record.attempt is not None
        self._record = record
        self._attempt = record.attempt
        self._history = history
        self._next_index = max(history.next_index, history.samples[-1][0] + 1 if history.samples else 0)
        self._end = end
        self._tools = tools
        self._is_within_reach = has_valid_pid
        self._launcher_outcome = read_launcher_outcome(tools.spool_dir, record.job.uuid, slot_job)
        self._groups = standing_groups(record.attempt) if has_valid_pid and end.owns_groups else None
        self._may_read_groups = self._groups is not None and (
            self._groups.paths.keys() == record.attempt.groups.keys()
            or not (self._launcher_outcome is not None and self._launcher_outcome.counters)
        )
        self._slot_job = slot_job
        self._slot_reading = self._read_slot()
        # Better than the present groups of its slot, unless the job was measured to its end.
        self._slot = self._slot_reading if history.meter is None else None
        self._container = container_handle(record.job, tools.spool_dir, tools.clock)
        if self._container is not None:
            self._container.processes.groups = self._groups
        self._was_alive = False
        self._summary = RunningSummary()
        self._first = self._first_in_slot()
        if self._first is not None:
            self._summary.add(self._first)
        for _, sample in history.samples:
            self._summary.add(sample)

    def writes(self) -> list[Write]:
        uuid = self._record.job.uuid
        # Before its processes are killed: systemd may remove the groups with the last of them.
        meter = self._meter() if self._container is None else None
        before_end = self._sample_of_living(meter)
        if self._is_within_reach:
            self._end_processes()
        writes: list[Write] = []
        if self._first is not None:
            writes.append(SamplesTaken(uuid, 0, (self._first,)))
        details = self._history.details
        if self._container is not None:
            self._container.remove_container()
            facts = self._container.last_facts()
            details = details.updated(facts)
            if facts.container is not None:
                writes.append(DetailsTaken(uuid, facts))
            meter = self._history.meter or self._container_meter()
        final = self._final_sample(meter) or before_end
        if final is not None:
            self._summary.add(final)
            writes.append(SamplesTaken(uuid, self._next_index, (final,)))
        record = self._with_logs()
        if record.attempt is not None and record.attempt != self._attempt:
            writes.append(JobStarted(uuid, record.attempt))
        output = self._output(record)
        origins = self._slot.origins if self._slot is not None else None
        outcome = outcome_of(record, self._ending(), self._summary, meter, output, details, origins=origins)
        if (
            output is None
            and self._launcher_outcome is not None
            and self._launcher_outcome.slot_job is not None
        ):
            outcome = replace(outcome, stdout_bytes=0, stderr_bytes=0)  # otherwise it would have a folder
        if meter is not None:
            meter.close()
        if self._groups is not None:
            self._groups.remove()
        if self._container is not None:
            self._container.forget()
        writes.append(JobEnded(uuid, outcome))
        return writes

    def _read_slot(self) -> "SlotReading | None":
        """Returns the reading that its slot's launcher recorded at its end."""
        if self._launcher_outcome is None or self._launcher_outcome.slot_job is None:
            return None
        from joblens.agent.slots.after_kill import reading_of

        return reading_of(self._launcher_outcome.slot_job)

    def _first_in_slot(self) -> Sample | None:
        """Returns the first sample of a job in a slot, which its owner would have written together with the
        last one."""
        if self._slot is None or (self._history.samples and self._history.samples[0][0] == 0):
            return None
        self._next_index = max(1, self._next_index)
        return Sample(at_us=self._attempt.started_at_us, elapsed_us=0, **self._slot.first)

    def _end_processes(self) -> None:
        groups, uuid = self._groups, self._record.job.uuid
        if groups is not None:
            self._was_alive = not groups.is_empty()
            groups.kill()
        if self._container is not None:
            self._was_alive |= bool(self._container.processes.pids())
        self._was_alive |= kill_marked(uuid)

    def _meter(self) -> JobMeter | None:
        """Returns None if there is no reading to take."""
        if self._slot is not None:
            return None
        if self._history.meter is not None:
            return self._history.meter
        accountant, others = self._tools.accountant, self._orphan_instruments()
        if self._may_read_groups or self._is_in_tree:
            try:
                meter = accountant.meter(self._groups, self._attempt.launcher_pid or 0, others)
            except ProbeError:  # the groups have just been removed
                self._may_read_groups = False
            else:
                self._resume(meter)
                return meter
        noted = self._saved_counters()
        if noted is None:
            return None
        meter = accountant.meter_of(noted, list, others)
        self._resume(meter)
        return meter

    def _resume(self, meter: JobMeter) -> None:
        if self._attempt.started_mono_ns is not None:
            meter.resume(self._attempt.base, self._attempt.started_mono_ns)

    def _saved_counters(self) -> CgroupProbe | None:
        """Returns its groups as its launcher read them after all its processes had ended, or None without
        such a reading."""
        if (
            self._launcher_outcome is None
            or not self._launcher_outcome.counters
            or self._container is not None
        ):
            return None
        try:
            attempt = self._attempt
            return CgroupProbe(attempt.groups, attempt.accounting, contents=self._launcher_outcome.counters)
        except (ProbeError, ValueError):  # not in the form of this version
            return None

    def _container_meter(self) -> JobMeter | None:
        assert self._container is not None
        others = self._orphan_instruments()
        try:
            meter = self._tools.accountant.meter_of(
                self._container.probe(), self._container.processes.pids, others
            )
        except ProbeError:
            return None
        self._resume(meter)
        return meter

    @property
    def _is_in_tree(self) -> bool:
        is_tree = self._attempt.accounting == PROCESS_TREE and self._container is None
        return is_tree and self._attempt.launcher_pid is not None

    def _orphan_instruments(self) -> tuple[Probe, ...]:
        from joblens.agent.instruments.network import (
            orphan_instruments,  # not for callers that only ask who died
        )

        return orphan_instruments(self._record.job, self._attempt.groups)

    def _sample_of_living(self, meter: JobMeter | None) -> Sample | None:
        """Takes a sample of a job that is about to be killed, in case its groups vanish with it."""
        if meter is None or self._groups is None or self._attempt.started_mono_ns is None:
            return None
        try:
            sample = None if self._groups.is_empty() else meter.sample(self._reaped())
        except (ProbeError, OSError):
            return None
        return self._with_own_peak(sample) if sample is not None else None

    def _final_sample(self, meter: JobMeter | None) -> Sample | None:
        """Returns None if the last counters of its groups are unknown."""
        if self._slot is not None:
            ended_at_us, elapsed_us = self._end_time()
            return Sample(at_us=ended_at_us, elapsed_us=elapsed_us, **self._slot.last)
        if meter is None or self._attempt.started_mono_ns is None:
            return None
        if self._is_in_tree:
            return self._final_of_tree(meter)
        # A slot's launcher is in its groups, and has subtracted itself from its reading.
        may_read = self._may_read_groups and self._slot_reading is None
        if may_read or self._container is not None:
            with contextlib.suppress(ProbeError):  # the groups have just been removed
                return self._read_groups(meter)
        return self._final_as_saved(meter)

    def _final_of_tree(self, meter: JobMeter) -> Sample | None:
        left = self._launcher_outcome
        if left is None:
            return None
        meter.has_end = True
        # Its last owner has just stopped: present counters are those of the end.
        beside = meter.read_others() if self._history.meter is not None else {}
        return _sample_of(left, *self._end_time(), self._summary.last, beside)

    def _final_as_saved(self, meter: JobMeter) -> Sample | None:
        """Builds the sample from the files of its groups that a launcher saved."""
        ended_at_us, elapsed_us = self._end_time()
        if self._slot_reading is not None:
            from joblens.agent.measuring.readings import keep_monotonic

            meter.has_end = True
            fields = {**meter.read_others(), **self._slot_reading.last}
            keep_monotonic(fields, lambda name: getattr(self._summary.last, name, None))
            return Sample(at_us=ended_at_us, elapsed_us=elapsed_us, **fields)
        noted = self._saved_counters()
        if noted is None:
            return None
        meter.read_totals_by(noted)
        sample = replace(meter.sample(self._reaped(), final=True), at_us=ended_at_us, elapsed_us=elapsed_us)
        # The machine's counters are current, perhaps days later.
        return sample if self._history.meter is not None else replace(sample, **_NO_HOST)

    def _read_groups(self, meter: JobMeter) -> Sample:
        left = self._launcher_outcome
        sample = meter.sample(self._reaped(), final=True)
        sample = self._with_own_peak(sample)
        if self._was_alive and left is None:
            return sample
        # Its counters are those of the end, which was earlier than now.
        ended_at_us, duration_us = self._end_time()
        return replace(sample, at_us=ended_at_us, elapsed_us=duration_us)

    def _with_own_peak(self, sample: Sample) -> Sample:
        if self._slot_job is None:
            return sample
        from joblens.agent.slots.after_kill import without_peak

        return without_peak(sample)

    def _reaped(self) -> ExitUsage:
        if self._container is not None:
            return NOTHING_REAPED  # the launcher waited only for the engine's client
        return self._launcher_outcome.reaped if self._launcher_outcome else ExitUsage()

    def _end_time(self) -> tuple[int, int]:
        """Returns (µs UTC, µs since the start): from its launcher, or of its last sample."""
        ended_at_us, duration_us = self._recorded_end()
        if not self._summary.samples:
            return ended_at_us, duration_us
        last = self._summary.samples[-1]  # may be just after the end of the main process
        return max(ended_at_us, last.at_us), max(duration_us, last.elapsed_us)

    def _recorded_end(self) -> tuple[int, int]:
        started_at_us, started_ns = self._attempt.started_at_us, self._attempt.started_mono_ns
        left = self._launcher_outcome
        if left is not None and started_ns is not None and self._is_within_reach:
            return left.ended_at_us, max(0, left.ended_mono_ns - started_ns) // 1000
        if left is not None:
            return left.ended_at_us, max(0, left.ended_at_us - started_at_us)
        return started_at_us, 0

    def _ending(self) -> Ending:
        ended_at_us, duration_us = self._end_time()
        left = self._launcher_outcome
        ending = Ending(
            wait_status=left.wait_status if left else None,
            cause=self._cause(ended_at_us),
            duration_s=duration_us / 1e6,
            ended_at_us=ended_at_us,
            leftovers=self._end.leftovers,
            reaped=left.reaped if left else None,
            why_lost=NOT_REAPED if self._is_within_reach else RESTARTED,
        )
        return ending if self._container is None else self._container.with_note(ending)

    def _cause(self, ended_at_us: int) -> EndCause:
        """Returns why it ended. A request after the job's end is ignored."""
        asked_at_us = self._end.cancel_asked_at_us
        if self._end.cause is EndCause.NONE and asked_at_us is not None:
            return EndCause.CANCELLED if self._was_alive or ended_at_us >= asked_at_us else EndCause.NONE
        return self._end.cause

    def _with_logs(self) -> Record:
        """Jobs in slots get an output folder only if they print something."""
        if self._launcher_outcome is None or not self._launcher_outcome.logs_dir or self._attempt.logs_dir:
            return self._record
        return replace(self._record, attempt=replace(self._attempt, logs_dir=self._launcher_outcome.logs_dir))

    def _output(self, record: Record) -> OutputFiles | None:
        folder = record.attempt.logs_dir if record.attempt else ""
        if not folder or not os.path.isdir(folder):
            return None
        try:
            output = OutputFiles(folder, self._tools.output_max_bytes, NOTHING_NEW)
            output.finish(_nothing if had_secrets(record.job) else str)
        except OSError:
            return None
        return output


def had_secrets(job: Job) -> bool:
    """Returns whether values were hidden in its description. Only the process that is gone knew them, so its
    output cannot be stored."""
    return REDACTED in repr((job.argv, job.params)) or any(map(is_secret_name, job.env_given))


def _nothing(_text: str) -> str:
    return ""


def standing_groups(attempt: Attempt) -> JobGroups | None:
    """Returns the job's groups that still exist. Their names are never reused."""
    standing = {key: path for key, path in attempt.groups.items() if os.path.isdir(path)}
    if not standing:
        return None
    try:
        return JobGroups.open(attempt.accounting, standing)
    except JoblensError:
        return None


def _sample_of(
    left: LauncherOutcome, ended_at_us: int, elapsed_us: int, last: Sample | None, beside: Mapping[str, Any]
) -> Sample:
    """Returns a sample of the end without a group: only reaped processes are known. A counter that was higher
    before, in the kernel's coarser ticks, does not decrease. Ticks divide CPU time into user and system
    otherwise than wait4, so the total is not the sum of the larger parts."""
    reaped = left.reaped
    counters: dict[str, Any] = {
        "cpu_total_usec": reaped.user_usec + reaped.system_usec,
        "cpu_user_usec": reaped.user_usec,
        "cpu_system_usec": reaped.system_usec,
        **{name: getattr(reaped, name) for name in _FROM_LAUNCHER},
    }
    for name, value in counters.items():
        seen = getattr(last, name) if last is not None else None
        if value is not None and seen is not None:
            counters[name] = max(value, seen)
    return Sample(
        at_us=ended_at_us,
        elapsed_us=elapsed_us,
        processes=0,
        threads=0,
        **{**beside, **counters},
    )
