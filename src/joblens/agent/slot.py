"""A slot: control groups with a resident launcher inside, that run one job after another.

A job is born in the groups of its slot; what it used is the difference of the groups' counters before and
after, less the launcher's own. A slot is used again only while nothing but its launcher is inside and little
cache is left charged; a job that left processes behind or met an out-of-memory kill retires the slot."""

import _socket
import contextlib
import marshal
import os
import sys
import threading
import time
from typing import Any

from msgspec import Struct

from joblens.agent import slot_launcher
from joblens.agent.accounting import PROCESS_TREE, Accountant
from joblens.agent.groups import JobGroups
from joblens.agent.launch import exit_usage_of
from joblens.agent.meter import COUNTERS
from joblens.agent.session import Kit
from joblens.model.errors import LauncherLost
from joblens.model.exit_usage import ExitUsage
from joblens.model.job import Attempt, Job
from joblens.model.sample import Sample
from joblens.probes.cgroup import CgroupProbe
from joblens.probes.host import HostProbe, process_start_ticks

_MAX_MESSAGE = 1 << 20
_CACHE_TOLERATED = 4 << 20
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


class SlotJob(Struct, frozen=True):
    """A job without limits of its own, and what really runs."""

    job: Job
    argv: tuple[str, ...]
    env: dict[str, str]  # changes to the owner's environment


class Slot:
    """One launcher in its groups. Busy while `current` is set."""

    def __init__(self, number: int, accountant: Accountant, kit: Kit, logs_dir: str) -> None:
        self._kit = kit
        self._lock = threading.Lock()
        self.current: SlotJob | None = None
        self.is_spent = False
        self.groups = self._make_groups(accountant, number)
        self._probe = CgroupProbe(self.groups.paths, self.groups.kind) if self.groups else None
        self._start_launcher(number, logs_dir)
        self._base: dict[str, int] = {}
        self._samples: list[Sample] = []
        self._started_ns = 0
        self._started_at_us = 0
        if self._probe is not None:
            self._base = self._probe.read()

    @staticmethod
    def _make_groups(accountant: Accountant, number: int) -> JobGroups | None:
        factory = accountant.factory()
        return factory.create(f"slot-{os.getpid()}-{number}") if factory is not None else None

    def _start_launcher(self, number: int, logs_dir: str) -> None:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self.socket = ours.detach()
        their_end = theirs.detach()
        spool = self._kit.spool_dir
        argv = [
            sys.executable,
            "-I",
            "-S",
            slot_launcher.__file__ or "",
            str(their_end),
            os.path.join(spool, f"slot-{os.getpid()}-{number}"),
            spool,
            logs_dir,
            *(self.groups.attach_files() if self.groups else ()),
        ]
        actions = [(os.POSIX_SPAWN_DUP2, their_end, their_end)]
        self._pid = os.posix_spawn(sys.executable, argv, os.environ, file_actions=actions)
        os.close(their_end)
        hello = self._receive()
        self.launcher_pid = int(hello[1])
        self.launcher_start_ticks = process_start_ticks(self.launcher_pid)

    # ---- one job -------------------------------------------------------------------------------

    def start(self, slot_job: SlotJob) -> Attempt:
        """Tells the launcher to run it; the base was read when the job before it ended."""
        self.current = slot_job
        if self._probe is not None:
            self._probe.reset_peak()
        kit = self._kit
        self._started_at_us, self._started_ns = kit.clock.now_us(), kit.clock.mono_ns()
        attempt = Attempt(
            started_at_us=self._started_at_us,
            started_mono_ns=self._started_ns,
            owner=kit.owner,
            launcher_pid=self.launcher_pid,
            launcher_start_ticks=self.launcher_start_ticks,
            accounting=self.groups.kind if self.groups else PROCESS_TREE,
            groups=self.groups.paths if self.groups else {},
            base={name: self._base[name] for name in COUNTERS if name in self._base},
            kernel=kit.host.kernel,
            cpu_count=kit.host.cpu_count,
            memory_total_bytes=kit.host.memory_total_bytes,
        )
        self._samples = [Sample(at_us=self._started_at_us, elapsed_us=0, **self._nothing())]
        job = slot_job.job
        changes = {os.fsencode(name): os.fsencode(value) for name, value in slot_job.env.items()}
        argv = [os.fsencode(word) for word in slot_job.argv]
        os.write(self.socket, marshal.dumps((job.uuid, argv, changes, job.cwd)))
        return attempt

    def _nothing(self) -> dict[str, Any]:
        return dict.fromkeys(("cpu_total_usec", "cpu_user_usec", "cpu_system_usec"), 0) if self._probe else {}

    def take_sample(self, host: HostProbe) -> tuple[Job, int, Sample] | None:
        """On the sampler's thread, while the job runs. -> (job, index, sample)"""
        with self._lock:
            slot_job = self.current
            if slot_job is None or self._probe is None:
                return None
            sample = self._sample(self._probe.read(), host.read(), ExitUsage(), 0)
            self._samples.append(sample)
            return slot_job.job, len(self._samples) - 1, sample

    def finish(self, host: HostProbe) -> tuple[SlotJob, "Finished"]:
        """The launcher has answered: read what the job used, and make the slot fit for the next one."""
        message = self._receive()
        with self._lock:
            slot_job = self.current
            assert slot_job is not None
            if message[0] == "failed":
                self.current = None
                return slot_job, Finished(error=message[1:])
            _, pid, status, totals, own_usec, started_ns, ended_ns, out, err, others = message
            reaped = exit_usage_of(totals)
            leftovers = 0
            if others:
                leftovers = self._end_leftovers()
            after = self._probe.read() if self._probe is not None else {}
            sample = self._sample(after, host.read(), reaped, int(own_usec))
            self._samples.append(sample)
            finished = Finished(
                status=int(status),
                reaped=reaped,
                samples=self._samples,
                duration_s=(int(ended_ns) - int(started_ns)) / 1e9,
                ended_at_us=sample.at_us,
                leftovers=leftovers,
                stdout_bytes=int(out),
                stderr_bytes=int(err),
                pid=int(pid),
            )
            self.current = None
            self._make_ready(after, leftovers)
            return slot_job, finished

    def _sample(
        self, reading: dict[str, Any], host: dict[str, Any], reaped: ExitUsage, own_usec: int
    ) -> Sample:
        clock = self._kit.clock
        at_us, elapsed_us = clock.now_us(), (clock.mono_ns() - self._started_ns) // 1000
        fields = dict(reading)
        base = self._base
        for name in COUNTERS:
            if name in fields:
                fields[name] = max(0, fields[name] - base.get(name, 0))
        for name in _GAUGES:
            if name in fields:
                fields[name] = max(0, fields[name] - base.get(name, 0))
        if "memory_kernel_peak_bytes" in fields:
            held_before = base.get("memory_current_bytes", 0)
            fields["memory_kernel_peak_bytes"] = max(0, fields["memory_kernel_peak_bytes"] - held_before)
        if own_usec and "cpu_total_usec" in fields:
            fields["cpu_total_usec"] = max(0, fields["cpu_total_usec"] - own_usec)
            fields["cpu_system_usec"] = max(0, fields["cpu_total_usec"] - fields.get("cpu_user_usec", 0))
        return Sample(at_us=at_us, elapsed_us=elapsed_us, **fields, **host)

    def _make_ready(self, after: dict[str, int], leftovers: int) -> None:
        self._base = after
        if self.groups is None:
            return
        if leftovers or after.get("oom_kills", 0):
            self.is_spent = True
        elif after.get("memory_file_bytes", 0) > _CACHE_TOLERATED:
            self.groups.reclaim()
            assert self._probe is not None
            self._base = self._probe.read()

    def _end_leftovers(self) -> int:
        """Counts and ends what outlived the job's main process."""
        time.sleep(0.02)  # one that is just ending is not a leftover
        count = 0
        if self.groups is not None:
            count = len([pid for pid in self.groups.pids() if pid != self.launcher_pid])
            self.groups.kill(spare=(self.launcher_pid,))
        return count

    def stop_job(self, number: int) -> None:
        """Signals what runs in the slot, never the launcher."""
        if self.groups is not None:
            self.groups.signal(number, spare=(self.launcher_pid,))

    def sources(self) -> tuple[dict[str, str], dict[str, str]]:
        if self._probe is None:
            return {}, {}
        return dict(self._probe.sources), dict(self._probe.unknown)

    def close(self) -> None:
        if self.groups is not None and self.current is not None:
            self.groups.kill(spare=(self.launcher_pid,))
        with contextlib.suppress(OSError):
            os.write(self.socket, marshal.dumps(()))
        os.close(self.socket)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        if self._probe is not None:
            self._probe.close()
        if self.groups is not None:
            self.groups.remove()

    def _receive(self) -> tuple[Any, ...]:
        try:
            data = os.read(self.socket, _MAX_MESSAGE)
        except OSError:
            data = b""
        if not data:
            raise LauncherLost("a slot's launcher was killed")
        message = marshal.loads(data)
        assert isinstance(message, tuple)
        return message


class Finished(Struct, kw_only=True):
    """What is known when a slot's job has ended; turned into an outcome later."""

    status: int = 0
    reaped: ExitUsage = ExitUsage()
    samples: list[Sample] = []
    duration_s: float = 0.0
    ended_at_us: int = 0
    leftovers: int = 0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    pid: int = 0
    error: tuple[Any, ...] | None = None
