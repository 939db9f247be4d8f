"""Attachment to a running process, control group or container: finds it and measures it until it ends,
without touching it."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Container
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.instruments.table import Watched
from joblens.agent.measuring.accounting import PROCESS_TREE
from joblens.agent.measuring.meter import JobMeter, Measurement
from joblens.agent.measuring.outcome import Ending, outcome_of
from joblens.agent.runtime.loop import mono_s
from joblens.agent.session.context import AgentContext
from joblens.engine.life.job_life import EndCause
from joblens.files.processes import is_running, process_start_ticks
from joblens.model.errors import InputError, JoblensError, ProbeError
from joblens.model.jobs.details import ContainerFacts, Details
from joblens.model.jobs.job import NOTHING_REAPED, Attempt, Job, Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.writes import DetailsTaken, JobEnded, JobQueued, JobStarted, Write
from joblens.ports.probe import Probe
from joblens.probes.cgroup.layout import UNIFIED, CgroupLayout, read_layout
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.containers.info import ContainerInfo
from joblens.probes.host.machine_load import HostProbe
from joblens.probes.proc.attached import BaselinedProbe, exit_status_of
from joblens.probes.proc.kernel_files import list_pids, read_text
from joblens.probes.proc.process_tree import ProcessTreeProbe
from joblens.probes.proc.processes import ProcessesProbe

if TYPE_CHECKING:
    from joblens.probes.containers.api import ContainerApi


_COUNTED = ("cpu", "cpuacct", "memory", "pids")
_HINT = (
    "give a process ID, a control group (/sys/fs/cgroup/… or a path below it), or a container's name or ID"
)


class Target(Struct, frozen=True, kw_only=True):
    """Target of an attachment. `description`: description for the record. `pid`: its first process, whose end
    is the end of the target."""

    description: str
    name: str
    argv: tuple[str, ...]
    cwd: str = ""
    pid: int | None = None
    start_ticks: int | None = None
    kind: str = ""  # of its groups
    groups: dict[str, str] = {}  # hierarchy -> directory; empty: it is a process tree
    container: ContainerInfo | None = None
    engine: str = ""
    ask_container: Callable[[], ContainerInfo] | None = None  # present facts; may raise JoblensError


def find_target(text: str, engine: str = "", socket: str = "") -> Target:
    """Returns the target that a text names. Raises InputError, or the error of the container engine."""
    kind, separator, rest = text.partition(":")
    if separator and kind in ("pid", "cgroup", "container"):
        text = rest
    else:
        kind = ""
    if not text:
        raise InputError("attach needs a process, a container or a control group", hint=_HINT)
    if kind == "pid" or (not kind and text.isascii() and text.isdigit()):
        return _process(text)
    if kind == "cgroup" or (not kind and "/" in text):
        return _group(text)
    return _container(text, engine, socket)


def _process(text: str) -> Target:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 1 << 22:
        raise InputError(f"{text} is not a process id", hint=_HINT)
    pid = int(text)
    if pid == os.getpid():
        raise InputError("joblens cannot measure itself", hint="joblens run -- COMMAND measures one")
    ticks = process_start_ticks(pid)
    status = read_text(f"/proc/{pid}/status")
    if ticks is None or status is None or "\nState:\tZ" in status:
        raise InputError(
            f"there is no process {pid}, or it has ended",
            hint=f"for a container, write container:{text}",
        )
    if f"\nTgid:\t{pid}\n" not in status:
        raise InputError(f"{pid} is a thread, not a process", hint="give the id of its process")
    argv = _argv_of(pid)
    if not argv:
        raise InputError(f"process {pid} belongs to the kernel and has nothing to measure")
    return Target(
        description=f"process {pid}",
        name=os.path.basename(argv[0]) or argv[0],
        argv=argv,
        cwd=_link(f"/proc/{pid}/cwd"),
        pid=pid,
        start_ticks=ticks,
    )


def _argv_of(pid: int) -> tuple[str, ...]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").split(b"\0")
    except OSError:
        return ()
    return tuple(map(os.fsdecode, words)) if words != [b""] else ()


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _group(text: str) -> Target:
    layout = read_layout()
    path = _path_below_mount(text, layout)
    if path == "/":
        raise InputError(f"{text} is the whole machine", hint="name a group below it")
    groups = {
        key: directory
        for key, hierarchy in layout.hierarchies.items()
        if (key == UNIFIED or key in _COUNTED)
        and os.path.isdir(directory := os.path.join(hierarchy.mount_point, path.lstrip("/")))
    }
    if UNIFIED in groups:
        groups.pop("cpuacct", None)  # the unified hierarchy has the same counters, finer
    if not groups:
        raise InputError(f"there is no control group {text}", hint=_HINT)
    return Target(
        description=f"control group {path}",
        name=os.path.basename(path),
        argv=(path,),
        kind=layout.kind,
        groups=groups,
    )


def _path_below_mount(text: str, layout: CgroupLayout) -> str:
    whole = os.path.normpath(text)
    mounts = {hierarchy.mount_point for hierarchy in layout.hierarchies.values()}
    for mount in sorted(mounts, key=len, reverse=True):  # mounts may be nested
        if whole == mount or whole.startswith(mount + "/"):
            return whole[len(mount) :] or "/"
    return os.path.normpath("/" + text.lstrip("/"))


def _container(name: str, engine: str, socket: str) -> Target:
    api, info = _inspect(name, engine, socket)
    if info.pid is None:
        raise InputError(f"the container {name} is not running: it is {info.status or 'not started'}")
    if not info.groups:
        raise InputError(
            f"the control group of the container {name} is not visible here",
            hint="its engine runs on another machine, or joblens is in a container itself",
        )
    return Target(
        description=f"container {info.name or info.id[:12]}",
        name=info.name or info.id[:12],
        argv=_container_argv(info),
        pid=info.pid,
        start_ticks=process_start_ticks(info.pid),
        kind=info.layout,
        groups=info.groups,
        container=info,
        engine=api.engine,
        ask_container=lambda: api.inspect(info.id),
    )


def _inspect(name: str, engine: str, socket: str) -> "tuple[ContainerApi, ContainerInfo]":
    """Returns the container from the first engine that knows it."""
    from joblens.model.errors import ContainerError
    from joblens.probes.containers.api import connect

    silent: list[str] = []
    answers: list[str] = []
    for one in (engine,) if engine or socket else ("docker", "podman"):
        try:
            api = connect(one, socket)
            return api, api.inspect(name)
        except ContainerError as error:
            (answers if error.status else silent).append(str(error))
    group = f"for the control group, write cgroup:{name}; " if _has_group(name) else ""
    raise InputError(f"no container {name} was found: {'; '.join(answers or silent)}", hint=group + _HINT)


def _has_group(name: str) -> bool:
    layout = read_layout()
    return any(
        os.path.isdir(os.path.join(hierarchy.mount_point, name)) for hierarchy in layout.hierarchies.values()
    )


def _container_argv(info: ContainerInfo) -> tuple[str, ...]:
    words = [info.raw.get("Path", ""), *(info.raw.get("Args") or ())]
    return tuple(str(word) for word in words if word) or (info.image,)


_ENGINE_NOTICES_S, _ASK_AGAIN_S = 10.0, 0.02  # on a busy machine an engine notices an end seconds later
_CHECK_EVERY_S = 0.5  # interval of checks for an empty group and for requests to stop


class Attachment:
    """Measures the target on the loop; `is_over` once the outcome is recorded."""

    def __init__(
        self,
        job: Job,
        target: Target,
        context: AgentContext,
        on_sample: Callable[[Sample], None] | None = None,
        measure_s: float | None = None,
    ) -> None:
        """`measure_s`: time limit of the measurement. Raises InputError if the target has ended."""
        self.job = job
        self.record = Record(status=Status.QUEUED, job=job)
        self.is_over = False
        self._is_ending = False
        self._target = target
        self._context = context
        self._on_sample = on_sample
        self._group = target.groups.get(UNIFIED) or next(iter(target.groups.values()), "")
        self._pidfd = _open_pidfd(target)
        if self._pidfd < 0 and self._is_empty():
            raise InputError(f"no process is in {target.description}")
        self._end_at_s = None if measure_s is None else mono_s(context.clock) + measure_s
        self._next_check_s = mono_s(context.clock) + _CHECK_EVERY_S
        self._has_ended = False
        self._meter: JobMeter | None = None
        self._facts = Details()
        self._started_mono_ns = 0

    def start(self) -> None:
        try:
            self._measurement = self._measure()
            base = self._take_base(self._measurement)
        except ProbeError as error:
            raise InputError(
                f"{self._target.description} cannot be measured: {error}", hint=error.hint
            ) from error
        context, meter = self._context, self._measurement.meter
        attempt = Attempt(
            started_at_us=context.clock.now_us(),
            owner=context.owner,
            accounting=self._target.kind or PROCESS_TREE,
            # Names no groups and no processes: recovery kills whatever a record names as the job's.
            kernel=context.host.kernel,
            cpu_count=context.host.cpu_count,
            memory_total_bytes=context.host.memory_total_bytes,
        )
        self._started_mono_ns = context.clock.mono_ns()
        attempt = replace(attempt, base=base, started_mono_ns=self._started_mono_ns)
        self.record = replace(self.record, status=Status.RUNNING, attempt=attempt)
        context.recorder.write([JobQueued(self.job), JobStarted(self.job.uuid, attempt)])
        meter.start_at(self._started_mono_ns)
        self._note_container()
        if self._pidfd >= 0:
            context.loop.watch(self._pidfd, self._on_end)
        context.loop.add_timed(self)
        self.take_sample()
        context.sampler.add(self.job.uuid, self.job.interval_s, self.take_sample)

    def take_sample(self) -> None:
        """Called on the sampler's thread, and at the start."""
        self._measurement.take(NOTHING_REAPED)

    def stop(self) -> None:
        """Stops measuring; the target keeps running."""
        if not self._is_ending:
            self._finish()

    def next_wake_s(self) -> float | None:
        return self._next_check_s if self._end_at_s is None else min(self._next_check_s, self._end_at_s)

    def wake(self) -> None:
        now_s = mono_s(self._context.clock)
        if self._end_at_s is not None and now_s >= self._end_at_s:
            self.stop()
        elif now_s >= self._next_check_s:
            self._next_check_s = now_s + _CHECK_EVERY_S
            if self._pidfd < 0 and self._is_empty():
                self._on_end()
            else:
                self._context.recorder.poll_cancels(self._on_cancel_requests, self._context.loop.call)

    def _on_cancel_requests(self, uuids: Container[str]) -> None:
        if self.job.uuid in uuids:
            self.stop()

    def _measure(self) -> Measurement:
        context, target = self._context, self._target
        watched = Watched(
            job=self.job, main_pid=None, kind=target.kind, groups=target.groups, pids=self._pids
        )
        host = HostProbe()
        if self._group:
            inner: Probe = CgroupProbe(target.groups, target.kind)
            details: Probe | None = BaselinedProbe(ProcessesProbe(self._pids))
        else:
            assert target.pid is not None
            inner, details = ProcessTreeProbe(target.pid, include_root=True), None
        self._probe = BaselinedProbe(inner)
        instruments = context.instruments.open(watched)
        meter = self._meter = JobMeter(
            self._probe,
            details,
            host,
            context.clock,
            probe_counts_reaped=bool(self._group),
            others=instruments.probes,
        )
        return Measurement(self.job, context.recorder, meter, instruments.details, self._on_sample)

    def _take_base(self, measurement: Measurement) -> dict[str, int]:
        try:
            return measurement.meter.take_base()
        except BaseException:
            measurement.close()
            raise

    def _pids(self) -> list[int]:
        if self._group:
            return list_pids(self._group)
        assert self._target.pid is not None
        return [self._target.pid, *(self._meter.live_pids() if self._meter is not None else ())]

    def _note_container(self) -> None:
        info = self._target.container
        if info is not None:
            facts = ContainerFacts(
                engine=self._target.engine,
                id=info.id,
                name=info.name,
                image=info.image,
                image_id=info.image_id,
                cgroup=next(iter(info.groups.values()), ""),
                network_mode=info.network_mode,
                started_at_us=info.started_at_us,
                cpus=info.cpus,
                cpu_list=info.cpu_list,
                memory_bytes=info.memory_bytes,
                memory_swap_bytes=info.memory_swap_bytes,
                pids=info.pids,
                volumes=info.volumes,
                devices=info.devices,
            )
            self._facts = Details(container=facts)
            self._context.recorder.put([DetailsTaken(self.job.uuid, self._facts)], can_wait=True)

    # ---- the end -------------------------------------------------------------------------------------

    def _is_empty(self) -> bool:
        return not list_pids(self._group)  # a removed group is empty too

    def _on_end(self) -> None:
        self._has_ended = True
        self.stop()

    def _finish(self) -> None:
        self._is_ending = True
        context = self._context
        # Now: a container's group is removed soon after its end.
        ended_mono_ns = context.clock.mono_ns()
        if self._pidfd >= 0:
            context.loop.unwatch(self._pidfd)
        context.loop.remove_timed(self)
        context.sampler.remove(self.job.uuid)
        has_no_end = self._measurement.finish(NOTHING_REAPED, continues=not self._has_ended) is None
        wait_status = self._wait_status() if self._has_ended else None
        if has_no_end:
            self._probe.miss_the_end()
            if wait_status == signal.SIGKILL and self._has_no_oom_kill():
                self._probe.was_not_missed("oom_kills")
        ending = Ending(
            wait_status=wait_status,
            cause=EndCause.NONE,
            duration_s=(ended_mono_ns - self._started_mono_ns) / 1e9,
            ended_at_us=context.clock.now_us(),
            leftovers=0,
            reaped=None,
        )
        measured = self._measurement
        details = measured.details.updated(self._facts)
        outcome = outcome_of(self.record, ending, measured.summary, measured.meter, None, details)
        self.record = replace(self.record, status=outcome.status, outcome=outcome)
        assert self.record.attempt is not None
        started = JobStarted(self.job.uuid, self.record.attempt)
        measured.close()
        self.close()
        writes: list[Write] = [JobQueued(self.job), started, JobEnded(self.job.uuid, outcome)]
        context.recorder.record(
            self.job.uuid, writes, lambda number: context.loop.call(partial(self._recorded, number))
        )

    def _recorded(self, number: int | None) -> None:
        self.record = replace(self.record, number=number)
        self.is_over = True

    def close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _has_no_oom_kill(self) -> bool:
        """Returns whether the engine reports the end without an out-of-memory kill, within a short time."""
        ask, deadline_s = self._target.ask_container, mono_s(self._context.clock) + _ENGINE_NOTICES_S
        while ask is not None and mono_s(self._context.clock) < deadline_s:
            with contextlib.suppress(JoblensError, OSError):
                info = ask()
                if not info.is_running:
                    return not info.oom_killed
            time.sleep(_ASK_AGAIN_S)
        return False

    def _wait_status(self) -> int | None:
        target = self._target
        status = exit_status_of(self._pidfd, target.pid) if target.pid is not None else None
        if status is None and target.ask_container is not None:
            with contextlib.suppress(JoblensError, OSError):
                code = target.ask_container().exit_code
                status = None if code is None else code << 8
        return status


def _open_pidfd(target: Target) -> int:
    """Returns a pidfd of this process, readable once it has ended, or -1 without a process."""
    if target.pid is None:
        return -1
    try:
        descriptor = os.pidfd_open(target.pid)
    except OSError:
        raise InputError(f"{target.description} has ended") from None
    if is_running(target.pid, target.start_ticks):
        return descriptor
    os.close(descriptor)
    raise InputError(f"{target.description} has ended")
