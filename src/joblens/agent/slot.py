"""A slot: control groups with a resident launcher inside, that run one job after another.

A job is born in the groups of its slot; what it used is the difference of the groups' counters before and
after, less the launcher's own. A slot is used again only while nothing but its launcher is inside and little
cache is left charged; a job that left processes behind or met an out-of-memory kill retires the slot."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Collection
from typing import Any

from msgspec import Struct

from joblens.agent.accounting import PROCESS_TREE
from joblens.agent.launch import exit_usage_of
from joblens.agent.marked import end_marked
from joblens.agent.meter import COUNTERS
from joblens.agent.output import CappedFile
from joblens.agent.session import Kit
from joblens.agent.slot_marks import SlotMark, remove_mark, write_mark
from joblens.agent.slot_process import SlotProcess
from joblens.engine.job_life import EndCause
from joblens.model.errors import LauncherLost, ProbeError
from joblens.model.exit_usage import ExitUsage
from joblens.model.ids import new_uuid
from joblens.model.job import Accounting, Attempt, Job
from joblens.model.sample import Sample
from joblens.probes.cgroup import CgroupProbe
from joblens.probes.host import HostProbe
from joblens.probes.process_tree import ProcessTreeProbe

_CACHE_TOLERATED = 4 << 20
_ENDING_S = 0.02  # a process that is just ending is not a leftover
_GAUGES = (  # what the launcher itself holds is taken off these
    "memory_current_bytes",
    "memory_anon_bytes",
    "memory_file_bytes",
    "memory_kernel_bytes",
    "memory_shmem_bytes",
    "memory_swap_bytes",
    "memory_kernel_stack_bytes",
    "memory_slab_bytes",
    "memory_sock_bytes",
    "memory_file_mapped_bytes",
    "memory_file_dirty_bytes",
    "memory_file_writeback_bytes",
    "processes",
    "threads",
)
_LESS_BASE = frozenset((*COUNTERS, *_GAUGES))
_SINCE_START = _LESS_BASE | {"memory_kernel_peak_bytes"}
_COUNTED_BY_LOOKING = ("processes", "threads")


class SlotJob(Struct, frozen=True):
    """A job without limits of its own, and what really runs."""

    job: Job
    argv: tuple[str, ...]
    env: dict[str, str]  # changes to the owner's environment


class Finished(Struct, kw_only=True):
    """What is known when a slot's job has ended; turned into an outcome later."""

    status: int | None = 0  # None: the launcher was killed, and nobody knows
    cause: EndCause = EndCause.NONE
    reaped: ExitUsage = ExitUsage()
    samples: list[Sample] = []
    duration_s: float = 0.0
    ended_at_us: int = 0
    leftovers: int = 0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    logs_dir: str = ""
    pid: int = 0
    ended_ns: int | None = None
    is_clean: bool = True  # nothing is left behind, so that a job that was sent ahead runs by now
    error: tuple[Any, ...] | None = None


class Slot:
    """One launcher in its groups. Busy while `current` is set."""

    def __init__(self, kit: Kit, accounting: Accounting, logs_dir: str, output_max_bytes: int) -> None:
        """Raises LaunchError."""
        self._kit = kit
        self._output_max_bytes = output_max_bytes
        self._lock = threading.Lock()
        self.current: SlotJob | None = None
        self.is_spent = False
        self._must_reclaim = False
        self._cause = EndCause.NONE
        # Never used again: whoever comes to clear up after this process must not meet another's groups.
        self._name = f"slot-{new_uuid()}"
        self.groups = kit.accountant.groups_named(self._name, accounting)
        files = os.path.join(logs_dir, f".{self._name}")
        kind, paths = (self.groups.kind, self.groups.paths) if self.groups else ("", {})
        write_mark(kit.spool_dir, self._name, SlotMark(kit.owner, files, kind, paths))
        try:
            attach = self.groups.attach_files() if self.groups else ()
            self._launcher = SlotProcess(files, kit.spool_dir, logs_dir, attach)
        except BaseException:
            if self.groups is not None:
                self.groups.remove()
            remove_mark(kit.spool_dir, self._name)
            raise
        launcher = (self._launcher.pid, self._launcher.start_ticks)
        write_mark(kit.spool_dir, self._name, SlotMark(kit.owner, files, kind, paths, *launcher))
        self.socket = self._launcher.socket
        self._probe = CgroupProbe(self.groups.paths, self.groups.kind) if self.groups else None
        self._tree: ProcessTreeProbe | None = None
        self._base: dict[str, Any] = {}
        if self._probe is not None:
            contents = self._launcher.open_counters(self._probe.files(), self._probe.peak_place())
            self._base = self._counted(contents)
        self._ahead: SlotJob | None = None  # sent to the launcher, not begun
        self._is_skip_due = self._is_skipped = False
        self._samples: list[Sample] = []
        self._started_ns = self._started_at_us = 0
        self._kill_at_ns = 0

    # ---- one job -------------------------------------------------------------------------------

    def _counted(self, contents: list[bytes]) -> dict[str, Any]:
        """What the launcher read after a job: it alone is in the groups then."""
        return {**self._probe.parse(contents), "processes": 1} if self._probe is not None else {}

    @property
    def is_busy(self) -> bool:
        """Something runs in it, or the launcher has yet to say what became of what was sent ahead."""
        return self.current is not None or self._ahead is not None

    @property
    def can_take(self) -> bool:
        """Whether a job may be sent: one to run, and one ahead that follows it without a pause."""
        if self.current is None:
            return not self.is_spent
        return (
            self._ahead is None
            and not self._is_skip_due
            and not self._must_reclaim
            and self._cause is EndCause.NONE
        )

    def send(self, slot_job: SlotJob) -> None:
        """Has the launcher run it at once or, when it has one, after that; `begin` follows when it runs."""
        is_ahead = self.current is not None
        changes = {os.fsencode(name): os.fsencode(value) for name, value in slot_job.env.items()}
        argv = [os.fsencode(word) for word in slot_job.argv]
        job = slot_job.job
        self._launcher.give_job(job.uuid, argv, changes, job.cwd, is_ahead=is_ahead)
        if is_ahead:
            self._ahead = slot_job

    def waits_for(self, uuids: Collection[str]) -> bool:
        """Whether one of these jobs was sent ahead."""
        return self._ahead is not None and self._ahead.job.uuid in uuids

    def take_back(self) -> SlotJob | None:
        """The job that was sent ahead, unless the launcher has begun it."""
        slot_job = self._ahead
        if slot_job is None or not (self._is_skipped or self._launcher.take_permit_back()):
            return None
        self._ahead = None
        # Unless it has said so already, the launcher will yet say that it skipped the message.
        self._is_skip_due = not self._is_skipped
        return slot_job

    def follow_on(self) -> SlotJob | None:
        """After a clean end: the job that was sent ahead, which runs now."""
        slot_job, self._ahead = self._ahead, None
        return slot_job

    def skipped(self) -> SlotJob | None:
        """The launcher did not run the job that was sent ahead. -> it, unless it was taken back before"""
        self._is_skip_due = False
        return self.follow_on()

    def begin(self, slot_job: SlotJob, host: dict[str, Any], started_ns: int | None = None) -> Attempt:
        """The launcher runs it. The base was read when the job before it ended; `host` is what the whole
        machine does now."""
        kit = self._kit
        with self._lock:
            now_ns = kit.clock.mono_ns()
            self._started_ns = started_ns or now_ns
            self._started_at_us = kit.clock.now_us() - (now_ns - self._started_ns) // 1000
            self._samples = [Sample(at_us=self._started_at_us, elapsed_us=0, **self._at_start(), **host)]
            self._cause = EndCause.NONE
            self.current = slot_job
        return Attempt(
            started_at_us=self._started_at_us,
            started_mono_ns=self._started_ns,
            owner=kit.owner,
            launcher_pid=self._launcher.pid,
            launcher_start_ticks=self._launcher.start_ticks,
            accounting=self.groups.kind if self.groups else PROCESS_TREE,
            groups=self.groups.paths if self.groups else {},
            base={name: self._base[name] for name in COUNTERS if name in self._base},
            kernel=kit.host.kernel,
            cpu_count=kit.host.cpu_count,
            memory_total_bytes=kit.host.memory_total_bytes,
        )

    def _at_start(self) -> dict[str, Any]:
        """What the first sample of a job says: it has used nothing yet."""
        return {
            name: 0 if name in _SINCE_START else value
            for name, value in self._base.items()
            if name not in _COUNTED_BY_LOOKING
        }

    def receive(self) -> tuple[Any, ...] | None:
        """The launcher's answer; None when it is gone."""
        try:
            return self._launcher.receive()
        except LauncherLost:
            return None

    def finish(self, message: tuple[Any, ...] | None, host: dict[str, Any]) -> tuple[SlotJob, Finished]:
        """What the job used, from the launcher's answer; makes the slot fit for the next one."""
        with self._lock:
            slot_job = self.current
            assert slot_job is not None
            if message is None:
                finished = self._launcher_is_lost(slot_job.job.uuid, host)
            elif message[0] == "failed":
                finished = Finished(error=message[1:])
            else:
                finished = self._done(message, host)
            finished.cause = self._cause
            self.current = None
            self._forget_tree()
            return slot_job, finished

    def _done(self, message: tuple[Any, ...], host: dict[str, Any]) -> Finished:
        _, pid, status, totals, own_usec, started_ns, ended_ns, out, err, logs_dir, others, contents = message
        leftovers = 0
        after = self._counted(contents)
        if others:
            leftovers, totals = self._end_leftovers(totals)
            after = self._probe.read() if self._probe is not None else {}
        reaped = exit_usage_of(totals)
        if self._probe is None:
            after = _counters_of(reaped)
        sample = self._sample(after, host, own_usec, ended_ns, has_ticks=len(self._samples) > 1)
        self._samples.append(sample)
        if logs_dir and max(out, err) > self._output_max_bytes:
            self._cut_output(logs_dir)
        self._make_ready(after, leftovers)
        return Finished(
            status=status,
            reaped=reaped,
            samples=self._samples,
            duration_s=(ended_ns - started_ns) / 1e9,
            ended_at_us=sample.at_us,
            leftovers=leftovers,
            stdout_bytes=out,
            stderr_bytes=err,
            logs_dir=logs_dir,
            pid=pid,
            ended_ns=ended_ns,
            is_clean=not others and not os.WIFSIGNALED(status),
        )

    def _launcher_is_lost(self, uuid: str, host: dict[str, Any]) -> Finished:
        """Someone killed it. What is left of the job cannot be waited for any more, so it is ended; the
        group still tells what it used."""
        self.is_spent = True
        if self.groups is not None:
            self.groups.kill()
        end_marked(uuid)
        if self._probe is not None:
            self._samples.append(self._sample(self._probe.read(), host))
        last = self._samples[-1]
        return Finished(
            status=None,
            samples=self._samples,
            duration_s=(self._kit.clock.mono_ns() - self._started_ns) / 1e9,
            ended_at_us=max(last.at_us, self._kit.clock.now_us()),
        )

    def _sample(
        self,
        reading: dict[str, Any],
        host: dict[str, Any],
        own_usec: int = 0,
        at_ns: int | None = None,
        *,
        has_ticks: bool = True,
    ) -> Sample:
        """`at_ns`: when it was read, where that was not just now."""
        now_ns = self._kit.clock.mono_ns()
        at_ns = at_ns or now_ns
        at_us = self._kit.clock.now_us() - (now_ns - at_ns) // 1000
        elapsed_us = max(0, at_ns - self._started_ns) // 1000
        if len(self._samples) > 1:  # a tick may have come between the end and its being told
            elapsed_us = max(elapsed_us, self._samples[-1].elapsed_us)
            at_us = max(at_us, self._samples[-1].at_us)
        base = self._base
        fields: dict[str, Any] = {
            name: (value - base.get(name, 0) if value > base.get(name, 0) else 0)
            if name in _LESS_BASE
            else value
            for name, value in reading.items()
        }
        if "memory_kernel_peak_bytes" in fields:
            held_before = base.get("memory_current_bytes", 0)
            fields["memory_kernel_peak_bytes"] = max(0, fields["memory_kernel_peak_bytes"] - held_before)
        if not has_ticks:
            # Nobody looked while it ran: how many processes there were is not known, and was not 0.
            for name in _COUNTED_BY_LOOKING:
                fields.pop(name, None)
        if own_usec and "cpu_total_usec" in fields:
            fields["cpu_total_usec"] = max(0, fields["cpu_total_usec"] - own_usec)
            fields["cpu_system_usec"] = max(0, fields["cpu_total_usec"] - fields.get("cpu_user_usec", 0))
        return Sample(at_us=at_us, elapsed_us=elapsed_us, **fields, **host)

    def _make_ready(self, after: dict[str, Any], leftovers: int) -> None:
        if leftovers or after.get("oom_kills", 0):
            self.is_spent = True
        if self.groups is None or self._probe is None:
            return
        self._base = after
        if not self._must_reclaim:
            # Found out only now, when the next job may run already: it is taken off by difference, and
            # the cache is given back before the one after.
            self._must_reclaim = after.get("memory_file_bytes", 0) > _CACHE_TOLERATED
        else:
            self._must_reclaim = False
            self.groups.reclaim()
            self._base = self._probe.read()

    def _end_leftovers(self, totals: tuple[Any, ...]) -> tuple[int, tuple[Any, ...]]:
        """Counts and ends what outlived the job's main process. -> (how many, totals with theirs)"""
        time.sleep(_ENDING_S)
        count = len(self._pids())
        self._signal(signal.SIGKILL)
        self._launcher.say("reap")
        try:
            answer = self._launcher.receive()
            if answer[0] == "skipped":  # the job that was sent ahead: it does not follow one like this
                self._is_skipped = True
                answer = self._launcher.receive()
            return count, answer[1]
        except LauncherLost:
            self.is_spent = True
            return count, totals

    def _cut_output(self, folder: str) -> None:
        for name in ("stdout.log", "stderr.log"):
            with contextlib.suppress(OSError):
                CappedFile(os.path.join(folder, name), self._output_max_bytes).finish()

    # ---- on the sampler's thread -----------------------------------------------------------------

    def take_sample(self, host: HostProbe) -> tuple[Job, int, Sample] | None:
        """While a job runs. -> (job, index, sample)"""
        with self._lock:
            slot_job = self.current
            if slot_job is None:
                return None
            try:
                reading = self._probe.read() if self._probe is not None else self._read_tree()
            except (ProbeError, OSError):
                return None
            self._samples.append(self._sample(reading, host.read()))
            return slot_job.job, len(self._samples) - 1, self._samples[-1]

    def _read_tree(self) -> dict[str, Any]:
        """Of the living; what they waited for is in it. Made only for jobs that live to see a tick."""
        if self._tree is None:
            self._tree = ProcessTreeProbe(self._launcher.pid, include_root=False)
        return self._tree.read()

    def _forget_tree(self) -> None:
        if self._tree is not None:
            self._tree.close()
            self._tree = None

    def ask_stop(self, uuid: str, *, at_once: bool = False) -> None:
        """TERM the first time, KILL once the grace time is over or when it must be at once; never the
        launcher, and never the job that came after the one that was meant."""
        with self._lock:
            slot_job = self.current
            if slot_job is None or slot_job.job.uuid != uuid:
                return
            now_ns = time.monotonic_ns()
            if self._cause is EndCause.NONE:
                self._cause = EndCause.CANCELLED
                self._kill_at_ns = now_ns + int(slot_job.job.grace_s * 1e9)
                self._signal(signal.SIGTERM)
            elif at_once or now_ns >= self._kill_at_ns:
                self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        launcher_pid = self._launcher.pid
        if self.groups is not None:
            if number == signal.SIGKILL:
                self.groups.kill(spare=(launcher_pid,))
                self.is_spent = True  # killing may have left the groups unable to fork
            else:
                self.groups.signal(number, spare=(launcher_pid,))
            return
        for _ in range(20 if number == signal.SIGKILL else 1):  # a fork may slip between listing and killing
            pids = self._pids()
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
            if not pids:
                return
            time.sleep(0.002)

    def _pids(self) -> list[int]:
        """Of the job that is in the slot."""
        if self.groups is not None:
            return [pid for pid in self.groups.pids() if pid != self._launcher.pid]
        tree = ProcessTreeProbe(self._launcher.pid, include_root=False)
        try:
            return tree.descendants()
        finally:
            tree.close()

    # ---- the slot ----------------------------------------------------------------------------------

    def sources(self) -> tuple[dict[str, str], dict[str, str]]:
        unknown = dict.fromkeys(("processes", "threads"), "no sample fell between start and end")
        if self._probe is None:
            return {}, unknown
        return dict(self._probe.sources), {**unknown, **self._probe.unknown}

    def close(self) -> None:
        """Ends what runs in it, too."""
        with self._lock:
            if self.current is not None:
                self._signal(signal.SIGKILL)
            self.current = None
        self._launcher.close()
        self._forget_tree()
        if self._probe is not None:
            self._probe.close()
        if self.groups is not None:
            self.groups.kill()
            self.groups.remove()
        remove_mark(self._kit.spool_dir, self._name)


def _counters_of(reaped: ExitUsage) -> dict[str, Any]:
    """The last sample where there is no group: everything has been waited for."""
    return {
        "cpu_total_usec": reaped.user_usec + reaped.system_usec,
        "cpu_user_usec": reaped.user_usec,
        "cpu_system_usec": reaped.system_usec,
        "faults_minor": reaped.faults_minor,
        "faults_major": reaped.faults_major,
        "processes": 0,
        "threads": 0,
    }
