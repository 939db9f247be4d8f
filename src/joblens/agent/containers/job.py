"""Container job as its owner handles it: control groups, probes, network counters, signals and outcome."""

import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from joblens.agent.cgroups.groups import GroupFactory, JobGroups
from joblens.agent.cgroups.placement import GroupPlacement, find_placement
from joblens.agent.containers.protocol import (
    GIVE_UP,
    ContainerNote,
    ContainerOrder,
    as_variables,
    note_path,
    read_note,
    remove_note,
)
from joblens.agent.launcher.launch import LauncherProcess, LaunchPlan
from joblens.agent.measuring.accounting import BY_TIMER, Accountant, JobProcesses, Limits
from joblens.agent.measuring.outcome import Ending
from joblens.agent.runtime.loop import mono_s
from joblens.model.errors import AccountingUnavailable, ProbeError
from joblens.model.jobs.details import ContainerFacts, Details
from joblens.model.jobs.job import Job
from joblens.ports.clock import Clock
from joblens.ports.probe import Probe
from joblens.probes.cgroup.layout import UNIFIED, CgroupLayout, read_layout
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.containers.info import description
from joblens.probes.network.cgroup_network import FIELDS
from joblens.probes.proc.kernel_files import list_pids


def make_container_groups(name: str, parent: str | None = None) -> JobGroups | None:
    """Returns groups for a container, or None if this user cannot make any; the container is then measured in
    groups of the engine. `parent`: a path below each mount."""
    layout = read_layout()
    try:
        return _factory(layout, parent).create(name)
    except (OSError, AccountingUnavailable):
        return None


def path_in_every_mount(groups: JobGroups) -> str:
    """Returns the path for the engine; '' if the groups have no common path."""
    mounts = sorted(
        {hierarchy.mount_point.rstrip("/") for hierarchy in read_layout().hierarchies.values()},
        key=len,
        reverse=True,
    )
    paths = set()
    for directory in groups.paths.values():
        mount = next((mount for mount in mounts if directory.startswith(f"{mount}/")), None)
        if mount is None:
            return ""
        paths.add(directory.removeprefix(mount))
    return paths.pop() if len(paths) == 1 else ""


def _factory(layout: CgroupLayout, parent: str | None) -> GroupFactory:
    if layout.kind == "cgroup-v2":
        return GroupFactory.detect(parent, layout=layout, may_borrow=False)
    path = _common_path(layout) if parent is None else parent.strip("/")
    placement = find_placement(layout, path)
    bases = {**placement.bases, **placement.spare}
    for key, hierarchy in layout.hierarchies.items():
        base = f"{hierarchy.mount_point.rstrip('/')}/{path}".rstrip("/")
        if key not in bases and hierarchy.is_writable and os.access(base, os.W_OK | os.X_OK):
            bases[key] = base
    first = {UNIFIED: bases.pop(UNIFIED)} if UNIFIED in bases else {}
    return GroupFactory(GroupPlacement(kind=placement.kind, bases={**first, **bases}, gaps=placement.gaps))


def _common_path(layout: CgroupLayout) -> str:
    """Returns this process's own group if it is the same in every hierarchy, so that its limits also
    apply to containers; otherwise the root, where engines put their containers."""
    own = {
        (hierarchy.directory or "?").removeprefix(hierarchy.mount_point).strip("/")
        for hierarchy in layout.hierarchies.values()
    }
    return own.pop() if len(own) == 1 and "?" not in own else ""


# Counted by the kernel only in the group where it happened, not in its ancestors.
_OF_ITS_OWN_GROUP = (
    "cpu_periods",
    "cpu_throttled_periods",
    "cpu_throttled_usec",
    "oom_kills",
    "memory_limit_events",
    "pids_limit_events",
)
# Values at its end. The engine removes its files, and with them their page cache.
_HELD_AT_ITS_END = (
    "memory_current_bytes",
    "memory_anon_bytes",
    "memory_file_bytes",
    "memory_kernel_bytes",
    "memory_shmem_bytes",
    "memory_file_mapped_bytes",
    "memory_file_dirty_bytes",
    "memory_file_writeback_bytes",
)
_NOT_FOUND = "the container's control group was not found"
_GONE = "the container's control group was gone before its last numbers could be read"


def _close(*probes: Probe | None) -> None:
    for probe in probes:
        if probe is not None:
            probe.close()


class NoteReader:
    """Reads the client's note as long as it may change."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._note: ContainerNote | None = None

    def latest(self) -> ContainerNote | None:
        if self._note is None or not (self._note.has_ended and self._note.is_removed):
            self._note = read_note(self._path) or self._note
        return self._note


class ContainerProbe:
    """Totals come from the job's own groups, above those of the container: they still exist when the
    container is gone. If the engine put it elsewhere (`groups` None, or unused), they come from the
    container's groups, and at its end from the client's last reading."""

    name = "container"

    def __init__(self, groups: JobGroups | None, notes: NoteReader) -> None:
        self._notes = notes
        self._ours = CgroupProbe(groups.paths, groups.kind) if groups is not None else None
        self._own: CgroupProbe | None = None
        self._lost_the_end = False

    @property
    def sources(self) -> Mapping[str, str]:
        probe = self._counting()
        return probe.sources if probe is not None else {}

    @property
    def unknown(self) -> Mapping[str, str]:
        probe = self._counting()
        return probe.unknown if probe is not None else {"cpu": _NOT_FOUND, "memory": _NOT_FOUND}

    @property
    def lower_bounds(self) -> Collection[str]:
        return tuple(self.sources) if self._lost_the_end else ()

    def read(self) -> dict[str, Any]:
        note = self._notes.latest()
        own = self._read_own(note)
        if self._ours is None or (note is not None and note.groups and not note.is_below_ours):
            fields = own
        else:
            fields = self._ours.read()
            for name in (*_OF_ITS_OWN_GROUP, *(_HELD_AT_ITS_END if note and note.has_ended else ())):
                if name in own:
                    fields[name] = max(own[name], fields.get(name) or 0)
        if note is not None and note.oom_killed:
            fields["oom_kills"] = max(1, fields.get("oom_kills") or 0)
        return fields

    def close(self) -> None:
        _close(self._ours, self._own)

    def _counting(self) -> CgroupProbe | None:
        note = self._notes.latest()
        if note is not None and note.groups and not note.is_below_ours:
            return self._own
        return self._ours or self._own

    def _read_own(self, note: ContainerNote | None) -> dict[str, Any]:
        if note is None or not note.groups:
            return {}
        if note.has_ended:
            self._lost_the_end = not note.last and not note.is_below_ours
            return dict(note.last)
        try:
            if self._own is None:
                self._own = CgroupProbe(note.groups, note.layout)
            return self._own.read()
        except ProbeError:  # it has just ended; its client is about to report that
            return {}


class ContainerFactsProbe:
    """Facts about the container itself, reported whenever there are new ones."""

    name = "container"
    interval_s = 0.5

    def __init__(self, notes: NoteReader) -> None:
        self._notes = notes
        self._reported: ContainerNote | None = None

    def read(self) -> Details:
        note = self._notes.latest()
        if note is None or not note.id or note == self._reported:
            return Details()
        self._reported = note
        return Details(container=facts_of(note))

    def close(self) -> None:
        pass


def facts_of(note: ContainerNote) -> ContainerFacts:
    main = next(iter(note.groups.values()), "")
    return ContainerFacts(
        engine=note.engine,
        engine_version=note.engine_version,
        id=note.id,
        image=note.image,
        cgroup=note.groups.get("unified", main),
        startup_s=note.startup_s,
        overhead=note.overhead,
        unknown=note.unknown,
        **description(note),
    )


NETWORK = "network"
_LATE = "from a moment after its start: the engine put the container into groups of its own"


class ContainerNetworkProbe:
    """Network counters at the job's group, above the container. If the engine put the container elsewhere,
    which shows only when it runs, its own group is counted from that moment on. Counts stay when the group is
    gone."""

    name = NETWORK

    def __init__(self, ours: Probe, notes: NoteReader) -> None:
        self._ours = ours
        self._notes = notes
        self._own: Probe | None = None
        self._why_not = ""

    @property
    def sources(self) -> Mapping[str, str]:
        if not self._is_elsewhere():
            return self._ours.sources
        own = self._own.sources if self._own is not None else {}
        return {group: f"{source}, {_LATE}" for group, source in own.items()}

    @property
    def unknown(self) -> Mapping[str, str]:
        if not self._is_elsewhere():
            return self._ours.unknown
        if self._own is not None:
            return self._own.unknown
        why = self._why_not or "the container had ended before its packets could be counted"
        return dict.fromkeys(FIELDS, why)

    def read(self) -> dict[str, Any]:
        if not self._is_elsewhere():
            return self._ours.read()
        if self._own is None and not self._why_not:
            self._open_own()
        return self._own.read() if self._own is not None else {}

    def close(self) -> None:
        _close(self._ours, self._own)

    def _is_elsewhere(self) -> bool:
        note = self._notes.latest()
        return note is not None and bool(note.groups) and not note.is_below_ours

    def _open_own(self) -> None:
        from joblens.probes.network.cgroup_network import CgroupNetworkProbe, count_as_guest

        note = self._notes.latest()
        if note is None or note.has_ended:
            return
        try:
            self._own = CgroupNetworkProbe(note.groups[UNIFIED], count_as_guest)
        except (KeyError, OSError, ProbeError) as error:
            self._why_not = str(error) or type(error).__name__


BY_ENGINE = "container engine"
_CLIENT_TIMEOUT_S = 20.0  # its own time limits are shorter
_REMOVAL_TIMEOUT_S = 5.0
_POLL_S = 0.01
_CLIENT_KILLED = "the joblens process of its container was killed, and the container with it"


class ContainerProcesses(JobProcesses):
    """Processes in the container. On a request to stop, the client removes the container."""

    def __init__(self, notes: NoteReader, clock: Clock) -> None:
        super().__init__()
        self._notes = notes
        self._clock = clock
        self._first_kill_s: float | None = None
        self.signal_client: Callable[[int], None] | None = None

    def pids(self) -> list[int]:
        found = self.groups.pids() if self.groups is not None else []
        return found or self._pids_elsewhere()

    def _pids_elsewhere(self) -> list[int]:
        """Returns processes if the engine put the container into other groups."""
        note = self._notes.latest()
        if note is None or note.is_below_ours or note.has_ended or not note.groups:
            return []
        return list_pids(note.groups.get("unified") or next(iter(note.groups.values())))

    def signal(self, number: int) -> None:
        if self.groups is not None:
            self.groups.signal(number)

    def kill(self) -> None:
        if self.signal_client is not None:
            now_s = mono_s(self._clock)
            self._first_kill_s = self._first_kill_s or now_s
            is_deaf = now_s - self._first_kill_s > _CLIENT_TIMEOUT_S
            self.signal_client(signal.SIGKILL if is_deaf else GIVE_UP)
        if self.groups is not None:
            self.groups.kill()


class ContainerHandle:
    def __init__(self, job: Job, spool_dir: str, clock: Clock) -> None:
        assert job.container is not None
        self._job = job
        self._note_path = note_path(spool_dir, job.uuid)
        self.notes = NoteReader(self._note_path)
        self.processes = ContainerProcesses(self.notes, clock)

    def begin(self, launcher: LauncherProcess, accountant: Accountant, plan: LaunchPlan) -> None:
        self.processes.groups = make_container_groups(self._job.uuid, accountant.parent)
        self.processes.signal_client = launcher.signal_main
        launcher.set_plan(self.plan(plan))

    def plan(self, plan: LaunchPlan) -> LaunchPlan:
        """Runs the client in place of the command, which becomes its arguments."""
        job, groups = self._job, self.processes.groups
        assert job.container is not None
        needs = job.requirements
        limits = job.enforce and job.limits_resources
        order = ContainerOrder(
            uuid=job.uuid,
            container=job.container,
            note_path=self._note_path,
            cgroup_parent=path_in_every_mount(groups) if groups is not None else "",
            cpus=needs.cpus if limits else None,
            memory_bytes=needs.memory_bytes if limits else None,
            pids=needs.pids if job.enforce else None,
            gpus=needs.gpus,
            cpu_list=job.cpu_list,
        )
        client = (sys.executable, "-P", "-m", "joblens.agent.containers.client")
        return replace(plan, argv=(*client, *plan.argv), env={**plan.env, **as_variables(order)})

    def limit(self) -> Limits:
        """Sets limits: the engine enforces them, and so do groups of the job above the container."""
        job, groups = self._job, self.processes.groups
        needs = job.requirements
        if not job.enforce:
            return Limits()
        wanted = {"cpus": needs.cpus, "memory": needs.memory_bytes} if job.limits_resources else {}
        wanted["pids"] = needs.pids
        by = {name: BY_ENGINE for name, value in wanted.items() if value is not None}
        if groups is not None:
            by |= groups.set_limits(
                wanted.get("cpus"), needs.memory_bytes if "memory" in by else None, needs.pids
            )
        if needs.timeout_s is not None:
            by["timeout"] = BY_TIMER
        return Limits(enforced_by=by)

    @property
    def accounting(self) -> str:
        """Returns the accounting by the engine's groups, for jobs without groups of joblens."""
        return read_layout().kind

    @property
    def has_started(self) -> bool:
        note = self.notes.latest()
        return note is not None and (bool(note.groups) or note.has_ended)

    def probe(self) -> ContainerProbe:
        return ContainerProbe(self.processes.groups, self.notes)

    def bound(self, probes: Sequence[Probe]) -> tuple[Probe, ...]:
        """Returns the probes, with those that read the group where the container really is."""
        return tuple(
            ContainerNetworkProbe(probe, self.notes) if probe.name == NETWORK else probe for probe in probes
        )

    def facts(self) -> ContainerFactsProbe:
        return ContainerFactsProbe(self.notes)

    def last_facts(self) -> Details:
        """Returns facts for an owner that is too late to sample them."""
        return self.facts().read()

    def with_note(self, ending: Ending) -> Ending:
        """Adds facts of the client beyond its exit status. The engine reaped the container's processes, and
        does not report their usage."""
        note = self.notes.latest()
        ending = replace(ending, reaped=None)
        if note is None:
            return ending
        if note.silence:
            return replace(ending, wait_status=None, why_lost=note.silence)
        status = ending.wait_status
        if status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            # it never exits this way itself
            return replace(ending, wait_status=None, why_lost=_CLIENT_KILLED)
        return replace(ending, refusal=note.refusal)

    def remove_container(self) -> None:
        """Removes the rest of the container after its client is gone, without waiting for an engine that does
        not answer: the note stays, and the next joblens process retries (`sweep_notes`)."""
        note = self.notes.latest()
        if note is None or note.is_removed or not note.engine:
            return
        pid = start_removal(self._note_path, self._job.uuid)
        if pid is not None and not note.silence:
            _wait_for(pid, _REMOVAL_TIMEOUT_S)

    def forget(self) -> None:
        """Removes the note once the outcome is recorded."""
        note = self.notes.latest()
        if note is None or note.is_removed or not note.engine:
            remove_note(self._note_path)


def start_removal(path: str, uuid: str) -> int | None:
    """Starts a process that removes the container, with its own time limits."""
    argv = [sys.executable, "-P", "-m", "joblens.agent.containers.removal", path, uuid]
    files = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    try:
        return os.posix_spawn(sys.executable, argv, os.environ, file_actions=files, setsid=True)
    except OSError:
        return None


def _wait_for(pid: int, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return  # the host program has reaped it
        time.sleep(_POLL_S)
