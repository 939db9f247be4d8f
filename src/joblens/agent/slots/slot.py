"""Slot: control groups with a resident launcher inside, which runs one job after another.

A job starts in the groups of its slot; its usage is the difference of the groups' counters before and after,
less that of the launcher. A slot is reused only while its launcher is alone inside and little cache is
charged; a job with leftovers or an out-of-memory kill retires the slot.

All methods but `take_sample` are called on one thread. The launcher goes from one job to the next by itself,
so a later job than `current` may be running while an answer of the launcher is unread: nothing is sampled or
signalled then."""

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Container, Mapping
from typing import Any

from msgspec import Struct

from joblens.agent.launcher.launch import exit_usage_of
from joblens.agent.launcher.slot_ledger import JobDone, SentJob, SlotLedger, StartFailed, report_of
from joblens.agent.measuring.accounting import kill_marked
from joblens.agent.measuring.outcome import Origins
from joblens.agent.measuring.readings import NO_SAMPLES, SlotNumbers, keep_monotonic
from joblens.agent.session.context import AgentContext
from joblens.agent.slots.groups import NO_PACKETS, SlotHome, SlotOrder
from joblens.agent.slots.instruments import UNSAMPLED, SlotInstruments
from joblens.agent.terminal.streams import STDERR, STDOUT, CappedFile
from joblens.analysis.numbers.rates import NO_GRID_FACTOR
from joblens.analysis.numbers.sample_buffer import RunningSummary
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import LauncherLost, ProbeError
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Accounting, Attempt, ExitUsage, Job
from joblens.model.jobs.sample import Sample
from joblens.probes.host.machine_load import HostProbe
from joblens.probes.proc.process_tree import ProcessTreeProbe

_CACHE_TOLERATED = 4 << 20
_PEAK = "memory_kernel_peak_bytes"
_ENDING_S = 0.02  # a process that is just ending is not a leftover
# Jobs that the launcher can begin before this process receives the last one's end, by its duration: enough
# for some milliseconds.
_AHEAD_BY_DURATION = ((0.003, 8), (0.02, 2))
_LEAST_AHEAD = 1
_NOTHING_MORE: dict[str, str] = {}
_NO_CO2 = {"co2": NO_GRID_FACTOR}  # for jobs without a factor
_NO_DETAILS = Details()


class SlotJob(Struct, frozen=True):
    """Job without limits of its own, and its real command."""

    job: Job
    argv: tuple[str, ...]
    env: dict[str, str]  # changes to the owner's environment
    folder: str = ""  # for its output; '': named by its uuid
    streams: str = ""  # differences of its output (slot_launcher)
    shape: Any = None  # jobs of one shape can run in the same slots
    end_signal: int = signal.SIGTERM  # requests its end


class Finished(Struct, kw_only=True):
    """Facts about an ended job of a slot, for its outcome."""

    status: int | None = 0  # None: unknown, the launcher was killed
    cause: EndCause = EndCause.NONE
    reaped: ExitUsage | None = None
    samples: list[Sample] = []  # a selection, if there were many
    sample_count: int = 0
    origins: Origins = Origins()
    details: Details = _NO_DETAILS
    duration_s: float = 0.0
    ended_at_us: int = 0
    leftovers: int = 0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    logs_dir: str = ""
    ended_ns: int | None = None
    is_clean: bool = True  # nothing is left behind, so a job that was sent ahead runs by now
    error: StartFailed | None = None


class Slot:
    """One launcher in its groups. Busy while `current` is set."""

    def __init__(
        self,
        context: AgentContext,
        accounting: Accounting,
        logs_dir: str,
        output_max_bytes: int,
        env: Mapping[str, str] = _NOTHING_MORE,
        ledger: SlotLedger | None = None,
    ) -> None:
        """`env`: variables of its jobs, added to the owner's environment. `ledger`: None if no process has to
        recover its jobs. Raises LaunchError."""
        self._context = context
        self._output_max_bytes = output_max_bytes
        self._ledger = ledger
        self._home = SlotHome(context, accounting, logs_dir, env, ledger.path if ledger is not None else "")
        self.socket = self._home.launcher.socket
        self._probe = self._home.probe
        self._numbers = SlotNumbers(self._home.first_reading, can_reset_peak=self._home.can_reset_peak)
        self._origins = self._origins_without_sample()
        self.current: SlotJob | None = None
        self.is_spent = False
        self._must_reclaim = False
        self._cause = EndCause.NONE
        self._kill_at_ns = 0
        self._ahead: deque[SlotJob] = deque()  # sent to the launcher, not known to have begun
        self._skipped_jobs: list[SlotJob] = []  # skipped by the launcher, not yet fetched
        self._most_ahead = _LEAST_AHEAD
        self._skips_due = 0  # jobs that were taken back, which the launcher has not skipped yet
        self._lock = threading.Lock()  # for everything below, and `current`
        self._is_answered = False  # the end of `current` is reported, and another job may run
        self._tree: ProcessTreeProbe | None = None
        self._instruments: SlotInstruments | None = None
        self._first: Sample | None = None
        self._samples: RunningSummary | None = None  # created for jobs that run long enough to be sampled
        self._started_ns = self._started_at_us = 0

    # ---- jobs to run ---------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Returns whether a job runs, or was sent ahead and not reported yet."""
        return self.current is not None or bool(self._ahead)

    @property
    def free_ahead(self) -> int:
        """Returns how many jobs may be sent: one to run, and a few ahead that follow it without a pause."""
        if self.current is None:
            return 0 if self.is_spent else 1
        if self._skips_due or self._must_reclaim or self._cause is not EndCause.NONE:
            return 0
        # Filled again when half empty: several at once cost hardly more than one.
        return 0 if len(self._ahead) > self._most_ahead // 2 else self._most_ahead - len(self._ahead)

    @property
    def jobs_ahead(self) -> int:
        return len(self._ahead)

    def has_ahead(self, uuids: Container[str]) -> bool:
        return any(slot_job.job.uuid in uuids for slot_job in self._ahead)

    @property
    def running_since_ns(self) -> int:
        """Start of `current`, by the monotonic clock."""
        return self._started_ns

    def send(self, slot_jobs: list[SlotJob]) -> None:
        """Makes the launcher run them one after the other, after its present job. Call `begin` if the first
        of them starts at once."""
        has_one = self.current is not None
        self._home.launcher.send_jobs([self._order(slot_job) for slot_job in slot_jobs], has_one=has_one)
        self._ahead += slot_jobs if has_one else slot_jobs[1:]

    def _order(self, slot_job: SlotJob) -> SlotOrder:
        job, env, folder, streams = slot_job.job, slot_job.env, slot_job.folder, slot_job.streams
        changes = {os.fsencode(name): os.fsencode(value) for name, value in env.items()} if env else {}
        argv = [os.fsencode(word) for word in slot_job.argv]
        offset = -1 if self._ledger is None else self._ledger.add(SentJob(job, folder, streams))
        return SlotOrder(job.uuid, argv, changes, job.cwd, folder, streams, offset)

    def take_back(self) -> SlotJob | None:
        """Returns the last job that was sent ahead, unless the launcher has begun it."""
        if not self._ahead or not self._home.launcher.revoke_permit():
            return None
        self._skips_due += 1
        return self._ahead.pop()

    def take_skipped(self) -> list[SlotJob]:
        """Returns the jobs that the launcher skipped during another request."""
        skipped, self._skipped_jobs = self._skipped_jobs, []
        return skipped

    def next_job(self) -> SlotJob | None:
        """Returns the job that was sent ahead and runs now, after a clean end."""
        return self._ahead.popleft() if self._ahead else None

    def skipped(self, uuid: str) -> SlotJob | None:
        """Handles a job that was sent ahead and not run. Returns it, unless it was taken back before."""
        for slot_job in self._ahead:
            if slot_job.job.uuid == uuid:
                self._ahead.remove(slot_job)
                return slot_job
        self._skips_due -= 1
        return None

    # ---- one job -------------------------------------------------------------------------------

    def begin(self, slot_job: SlotJob, host: dict[str, Any], started_ns: int | None = None) -> Attempt:
        """Sets the running job and returns its attempt. The base was read at the end of the previous job;
        `host`: present numbers of the machine."""
        context, home = self._context, self._home
        now_ns, now_us = context.clock.mono_ns(), context.clock.now_us()
        with self._lock:
            self._started_ns = started_ns or now_ns
            self._started_at_us = now_us - (now_ns - self._started_ns) // 1000
            self._first = Sample(at_us=self._started_at_us, elapsed_us=0, **self._numbers.at_start(), **host)
            self._samples = None
            self._cause = EndCause.NONE
            self._is_answered = False
            self.current = slot_job
        return Attempt(
            started_at_us=self._started_at_us,
            started_mono_ns=self._started_ns,
            owner=context.owner,
            launcher_pid=home.launcher.pid,
            launcher_start_ticks=home.launcher.start_ticks,
            accounting=home.kind,
            accounting_reason=context.accountant.reason_for(slot_job.job),
            groups=home.paths,
            base=self._numbers.base_of_attempt(),
            kernel=context.host.kernel,
            cpu_count=context.host.cpu_count,
            memory_total_bytes=context.host.memory_total_bytes,
            provenance=context.begin_provenance(slot_job.job),
            gpu_devices=slot_job.job.gpu_devices,
        )

    def receive(self) -> tuple[Any, ...] | None:
        """Returns the launcher's answer, or None if it is gone."""
        with self._lock:
            try:
                message = self._home.launcher.receive()
            except LauncherLost:
                message = None
            self._is_answered = message is None or message[0] != "skipped"
            return message

    def finish(self, message: tuple[Any, ...] | None, host: dict[str, Any]) -> tuple[SlotJob, Finished]:
        """Returns the job's usage, from the launcher's answer, and prepares the slot for the next job."""
        with self._lock:
            slot_job = self.current
            assert slot_job is not None
            if message is None:
                finished = self._on_launcher_lost(slot_job.job.uuid, host)
            elif isinstance(report := report_of(message), StartFailed):
                finished = Finished(error=report)
            else:
                finished = self._done(report, host)
            finished.cause = self._cause
            self.current = None
            self._close_instruments()
            return slot_job, finished

    def _done(self, done: JobDone, host: dict[str, Any]) -> Finished:
        leftovers, totals, own_usec = 0, done.totals, done.own_cpu_usec
        after = self._home.parse(done.counters)
        if done.has_leftovers:
            leftovers, totals = self._end_leftovers(totals)
            peak = after.get(_PEAK)  # of the main process: the launcher has reset it since
            after = self._probe.read() if self._probe is not None else {}
            if peak is not None and peak > after.get(_PEAK, 0):
                after[_PEAK] = peak
        reaped = exit_usage_of(totals)
        if self._probe is None:
            after, own_usec = _counters_of(reaped), 0
        sample = self._sample(after, host, own_usec, done.ended_ns)
        if done.logs_dir and max(done.stdout_bytes, done.stderr_bytes) > self._output_max_bytes:
            self._cut_output(done.logs_dir)
        samples, count = self._all_samples(sample)
        finished = Finished(
            status=done.wait_status,
            reaped=reaped,
            samples=samples,
            sample_count=count,
            origins=self._origins_now(),
            details=self._last_details(),
            duration_s=(done.ended_ns - done.started_ns) / 1e9,
            ended_at_us=sample.at_us,
            leftovers=leftovers,
            stdout_bytes=done.stdout_bytes,
            stderr_bytes=done.stderr_bytes,
            logs_dir=done.logs_dir,
            ended_ns=done.ended_ns,
            is_clean=not done.has_leftovers and not os.WIFSIGNALED(done.wait_status),
        )
        self._most_ahead = _most_ahead(finished.duration_s)
        self._make_ready(after, leftovers)
        return finished

    def _on_launcher_lost(self, uuid: str, host: dict[str, Any]) -> Finished:
        """Kills the rest of the job: its launcher was killed, so nothing can wait for it. The group still has
        its usage."""
        self.is_spent = True
        if self._home.groups is not None:
            self._home.groups.kill()
        kill_marked(uuid)
        origins, last = self._origins_now(), None
        try:
            last = self._sample(self._probe.read(), host) if self._probe is not None else None
        except ProbeError:  # systemd removed the groups with the last process in them
            origins = origins.without_end()
        samples, count = self._all_samples(last)
        return Finished(
            status=None,
            samples=samples,
            sample_count=count,
            origins=origins,
            details=self._last_details(),
            duration_s=(self._context.clock.mono_ns() - self._started_ns) / 1e9,
            ended_at_us=max(samples[-1].at_us, self._context.clock.now_us()),
        )

    def _all_samples(self, last: Sample | None) -> tuple[list[Sample], int]:
        """Returns (selected samples, their total number)."""
        assert self._first is not None
        if self._samples is None:
            samples = [self._first, last] if last is not None else [self._first]
            return samples, len(samples)
        if last is not None:
            self._samples.add(last)
        return self._samples.samples, self._samples.count

    def _sample(
        self, reading: dict[str, Any], host: dict[str, Any], own_usec: int = 0, at_ns: int | None = None
    ) -> Sample:
        """`at_ns`: time of the reading, if not now."""
        now_ns = self._context.clock.mono_ns()
        at_ns = at_ns or now_ns
        at_us = self._context.clock.now_us() - (now_ns - at_ns) // 1000
        elapsed_us = max(0, at_ns - self._started_ns) // 1000
        fields = self._numbers.since_start(reading, own_usec, was_sampled=self._samples is not None)
        if self._samples is not None:  # the last sample may be between the end and its report
            before = self._samples.samples[-1]
            elapsed_us, at_us = max(elapsed_us, before.elapsed_us), max(at_us, before.at_us)
            if self._probe is None:
                keep_monotonic(fields, lambda name: getattr(before, name))
            return Sample(at_us=at_us, elapsed_us=elapsed_us, **{**host, **fields})
        return Sample(at_us=at_us, elapsed_us=elapsed_us, **fields, **host)

    def _make_ready(self, after: dict[str, Any], leftovers: int) -> None:
        if leftovers or after.get("oom_kills", 0):
            self.is_spent = True
        if self._home.groups is None or self._probe is None:
            return
        self._numbers.rebase(after)
        if not self._must_reclaim:
            # Known only now, when the next job may run already: the cache is subtracted from its numbers, and
            # reclaimed before the first job that was not sent ahead.
            self._must_reclaim = after.get("memory_file_bytes", 0) > _CACHE_TOLERATED
        elif not self._ahead:
            self._must_reclaim = False
            self._home.groups.reclaim()
            self._probe.reset_peak()
            self._numbers.rebase(self._probe.read())

    def _end_leftovers(self, totals: tuple[Any, ...]) -> tuple[int, tuple[Any, ...]]:
        """Counts and kills processes that outlived the job's main process. Returns (their number, totals with
        theirs)."""
        time.sleep(_ENDING_S)
        count = len(self._home.job_pids())
        self._kill()
        self._home.launcher.send("reap")
        try:
            answer = self._home.launcher.receive()
            while answer[0] == "skipped":  # jobs that were sent ahead do not follow this one
                slot_job = self.skipped(answer[1])
                if slot_job is not None:
                    self._skipped_jobs.append(slot_job)
                answer = self._home.launcher.receive()
            return count, answer[1]
        except LauncherLost:
            self.is_spent = True
            return count, totals

    def _cut_output(self, folder: str) -> None:
        for name in (STDOUT, STDERR):
            with contextlib.suppress(OSError):
                CappedFile(os.path.join(folder, name), self._output_max_bytes, is_used=False).finish()

    # ---- on the sampler's thread -----------------------------------------------------------------

    def take_sample(self, host: HostProbe) -> tuple[Job, int, Sample] | None:
        """Samples a running job. Returns (job, index, sample)."""
        self._open_instruments()
        with self._lock:
            slot_job = self.current
            if slot_job is None or self._instruments is None:
                return None
            try:
                reading = self._probe.read() if self._probe is not None else self._read_tree()
            except (ProbeError, OSError):
                return None
            others = self._instruments.read()
            # Checked after reading: without an answer, the reading belongs to this job.
            if self._is_answered or self._home.launcher.has_answered():
                return None
            if self._samples is None:
                assert self._first is not None
                self._samples = RunningSummary()
                self._samples.add(self._first)
            self._instruments.read_details()
            sample = self._sample(reading, {**others, **host.read()})
            self._samples.add(sample)
            return slot_job.job, self._samples.count - 1, sample

    def _open_instruments(self) -> None:
        """Opens instruments without the lock, which the end of the job needs: opening takes a while, most at
        first."""
        slot_job = self.current
        if slot_job is None or self._instruments is not None:
            return
        opened = SlotInstruments(slot_job.job, self._context, self._home)
        with self._lock:
            # They measure this job, and no other that has begun meanwhile.
            if self.current is slot_job and not (self._is_answered or self._home.launcher.has_answered()):
                self._instruments = opened
                return
        opened.close()

    def _read_tree(self) -> dict[str, Any]:
        """Reads live processes and those that they waited for. Opened only for jobs that run long enough to
        be sampled."""
        if self._tree is None:
            self._tree = ProcessTreeProbe(self._home.launcher.pid, include_root=False)
        return self._tree.read()

    def _close_instruments(self) -> None:
        if self._tree is not None:
            self._tree.close()
            self._tree = None
        if self._instruments is not None:
            self._instruments.close()
            self._instruments = None

    def _origins_without_sample(self) -> Origins:
        if self._probe is None:
            uncounted = dict.fromkeys(("processes", "threads", "open_files"), NO_SAMPLES)
            return Origins({}, {**UNSAMPLED, **uncounted, **NO_PACKETS, **_NO_CO2})
        unknown = {**UNSAMPLED, **self._numbers.unknown(), **self._probe.unknown, **_NO_CO2}
        return Origins(dict(self._probe.sources), unknown)

    def _last_details(self) -> Details:
        return _NO_DETAILS if self._instruments is None else self._instruments.end()

    def _origins_now(self) -> Origins:
        tree, origins = self._tree, self._origins
        if tree is not None and self._samples is not None:
            unknown = {**NO_PACKETS, **tree.unknown, **_NO_CO2}
            origins = Origins(dict(tree.sources), unknown, frozenset(tree.lower_bounds))
        return self._instruments.add_origins(origins) if self._instruments is not None else origins

    # ---- the end ---------------------------------------------------------------------------------

    def stop(self, *, at_once: bool = False) -> None:
        """Sends TERM the first time, KILL once the grace time is over or `at_once`; never to the launcher.
        Call it until the job has ended. Withdraw jobs sent ahead first: one that cannot be withdrawn runs,
        and the requested job has ended by itself."""
        if self.current is None or self._ahead or self._home.launcher.has_answered():
            return
        now_ns = self._context.clock.mono_ns()
        if self._cause is EndCause.NONE:
            if self._home.signal_job(self.current.end_signal):
                self._cause = EndCause.CANCELLED
                self._kill_at_ns = now_ns + int(self.current.job.grace_s * 1e9)
        elif at_once or now_ns >= self._kill_at_ns:
            self._kill()

    def _kill(self) -> None:
        self._home.kill_job()
        self.is_spent = self.is_spent or self._home.groups is not None

    def close(self) -> None:
        """Kills a running job, and closes the slot."""
        with self._lock:
            if self.is_busy:
                self._kill()
            self.current = None
            self._close_instruments()
        self._home.close()


def _most_ahead(duration_s: float) -> int:
    return next((most for below_s, most in _AHEAD_BY_DURATION if duration_s < below_s), _LEAST_AHEAD)


def _counters_of(reaped: ExitUsage) -> dict[str, Any]:
    """Returns the last sample without a group: everything has been waited for."""
    return {
        "cpu_total_usec": reaped.user_usec + reaped.system_usec,
        "cpu_user_usec": reaped.user_usec,
        "cpu_system_usec": reaped.system_usec,
        "faults_minor": reaped.faults_minor,
        "faults_major": reaped.faults_major,
        "processes": 0,
        "threads": 0,
    }
