"""Accounting of jobs: the control groups or process tree that count one, its limits, and its living
processes.

The last resort where no control group stands and no launcher is left to ask.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from joblens.agent.cgroups.groups import GroupFactory, JobGroups
from joblens.agent.cgroups.placement import GROUP_HINT
from joblens.agent.measuring.meter import JobMeter
from joblens.model.errors import AccountingUnavailable, LaunchError, ProbeError
from joblens.model.jobs.job import BY_AFFINITY, Accounting, Job, Requirements
from joblens.probes.cgroup.layout import read_layout
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.host.machine_load import HostProbe
from joblens.probes.proc.kernel_files import read_text
from joblens.probes.proc.process_tree import ProcessTreeProbe
from joblens.probes.proc.processes import ProcessesProbe, RecentReading

if TYPE_CHECKING:
    from joblens.agent.cgroups.systemd_scope import OwnScope
    from joblens.ports.clock import Clock
    from joblens.ports.probe import Probe


JOB_ID_VARIABLE = "JOBLENS_JOB_ID"
_ROUNDS = 50
_PAUSE_S = 0.01


def end_marked(uuid: str) -> bool:
    """New ones included: until a look finds none. -> whether there were any"""
    for round_ in range(_ROUNDS):
        if not _kill_each(uuid):
            return round_ > 0
        time.sleep(_PAUSE_S)
    return True


def marked_processes(uuid: str) -> list[int]:
    """Living ones. Only those we may look at can be ours."""
    mark = f"{JOB_ID_VARIABLE}={uuid}".encode()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _has_mark(int(name), mark)]


def _kill_each(uuid: str) -> int:
    mark = f"{JOB_ID_VARIABLE}={uuid}".encode()
    killed = 0
    for pid in marked_processes(uuid):
        with contextlib.suppress(OSError):
            held = os.pidfd_open(pid)
            try:
                # Held now: it is still the process that was found, not one that got its number since.
                if _has_mark(pid, mark):
                    signal.pidfd_send_signal(held, signal.SIGKILL)
                    killed += 1
            finally:
                os.close(held)
    return killed


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


# As the kernel has their names: 15 letters at most. mpirun leaves the srun behind that started its daemons.
_NAMES = frozenset({"srun", "orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_pr"})
STEP_END_S = 5.0  # as long as Slurm may take to end a step whose tasks are gone


def are_step_launchers(pids: Iterable[int], proc: str = "/proc") -> bool:
    """Nothing but those is left: not what the job has forgotten to wait for."""
    return all(_name(pid, proc) in {*_NAMES, ""} for pid in pids)


def _name(pid: int, proc: str) -> str:
    """'' when it has just gone."""
    with contextlib.suppress(OSError), open(f"{proc}/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return ""


_SAME_LOOK_S = 0.01
_KILL_TRIES = 20  # a fork may slip between listing and killing


class JobProcesses:
    """`groups` and `meter` are set as soon as they are there; until then there is nobody."""

    def __init__(self) -> None:
        self.groups: JobGroups | None = None
        self.meter: JobMeter | None = None
        self._seen: list[int] = []
        self._seen_at_s = 0.0

    def seen(self) -> list[int]:
        """As they were a moment ago: for those who look at the job together, not for signals."""
        now_s = time.monotonic()
        if now_s - self._seen_at_s > _SAME_LOOK_S:
            self._seen = self.pids()
            self._seen_at_s = now_s
        return self._seen

    def pids(self) -> list[int]:
        """Every process of the job that is alive now."""
        if self.groups is not None:
            return self.groups.pids()
        return self.meter.living() if self.meter is not None else []

    def signal(self, number: int) -> None:
        if self.groups is not None:
            self.groups.signal(number)
        else:
            signal_each(self.pids(), number)

    def kill(self) -> None:
        if self.groups is not None:
            self.groups.kill()
            return
        for _ in range(_KILL_TRIES):
            pids = self.pids()
            if not pids:
                return
            signal_each(pids, signal.SIGKILL)
            time.sleep(0.002)


def signal_each(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
        except PermissionError:
            continue  # it became another user's (setuid); the group kill reaches it


PROCESS_TREE = "process-tree"
BY_WATCHING = "watched by joblens"
BY_TIMER = "joblens timer"


class Limits(Struct, frozen=True, kw_only=True):
    """How the job is held to what it was given."""

    enforced_by: dict[str, str] = {}
    affinity: tuple[int, ...] | None = None
    watched_memory_bytes: int | None = None  # joblens ends the job above these
    watched_pids: int | None = None


class Accountant:
    """Knows what this machine offers; makes groups, limits and meters for jobs."""

    def __init__(
        self,
        clock: "Clock",
        cgroup_parent: str | None = None,
        warn: Callable[[str], None] | None = None,
        owner_mark: str = "",
    ) -> None:
        """`owner_mark`: the end of the names of groups (group_places)."""
        self._clock = clock
        self._parent = cgroup_parent
        self._warn = warn
        self._owner_mark = owner_mark
        self._host = RecentReading(HostProbe())
        self._factory: GroupFactory | None = None
        self._unavailable: AccountingUnavailable | None = None  # why there is no factory
        self._scope: OwnScope | None = None
        self._why_no_scope: str | None = None  # None: not known yet; empty: there is one, or none is needed

    @property
    def parent(self) -> str | None:
        """Where job groups are to lie, below each mount; None: nobody said."""
        return self._parent

    @property
    def parents(self) -> list[str]:
        """Directories of the groups that were made; empty: there were none."""
        return self._factory.parents if self._factory is not None else []

    def close(self) -> None:
        self._host.close()
        if self._factory is not None:
            self._factory.close()

    def factory(self) -> GroupFactory | None:
        """Makes groups that need no scope. None: there are none here."""
        if self._factory is None and self._unavailable is None:
            try:
                self._factory = GroupFactory.detect(self._parent)
            except AccountingUnavailable as reason:
                self._unavailable = reason
        return self._factory

    @property
    def why_not(self) -> str:
        """Why jobs of this process are not counted and limited by control groups with all they need. Empty:
        they are, unless systemd refuses a scope later."""
        if not self._lacks_memory() or self.needs_scope(Accounting.AUTO):
            return ""
        return self._why_no_scope or str(self._unavailable or "") or self._memory_gap()

    def reason_for(self, job: Job) -> str:
        """`why_not` for the record of a job that has begun; empty where the process tree was asked for."""
        return "" if job.accounting is Accounting.PROCESS_TREE else self.why_not

    def groups_for_process(self, name: str, accounting: Accounting, pid: int | None) -> JobGroups | None:
        """Fresh control groups for jobs that `pid` starts, a launcher of ours that has yet to start one, or
        None where the process tree has to do. It is moved into a systemd scope where groups can only be made
        there. `pid` None: only where that needs no scope. `name`: never used before, and never again. Raises
        LaunchError when the launcher has ended."""
        if accounting is Accounting.PROCESS_TREE:
            return None
        factory = self._factory_in_scope(pid) if pid is not None else None
        if factory is None and pid is not None and self._scope is not None and not _shares_group(pid):
            self._refuse_when_required(accounting)
            return None
        factory = factory or self.factory()
        if factory is None:
            self._refuse_when_required(accounting)
            self._tell_of_wrong_parent(self._unavailable)
            return None
        try:
            return factory.create(name + self._owner_mark)
        except (OSError, AccountingUnavailable) as error:
            if accounting is Accounting.CGROUP:
                raise AccountingUnavailable(f"no control group could be made for the job: {error}") from error
            self._tell_of_wrong_parent(error)
            return None

    def give_up_groups(self, reason: str) -> None:
        """Groups were made, but no job can run in them: the process tree has to do from here on."""
        if self._factory is not None:
            self._factory.close()
        self._factory, self._scope = None, None
        self._unavailable, self._why_no_scope = AccountingUnavailable(reason), ""
        if self._warn is not None:
            self._warn(f"jobs are measured by their process tree: {reason}")

    def needs_scope(self, accounting: Accounting) -> bool:
        """Whether groups can only be made in a systemd scope, for a launcher that runs already."""
        if accounting is Accounting.PROCESS_TREE:
            return False
        if self._why_no_scope is None:
            self._decide_on_scope()
        return self._scope is not None and not self._why_no_scope

    def _refuse_when_required(self, accounting: Accounting) -> None:
        if accounting is Accounting.CGROUP:
            raise AccountingUnavailable(self.why_not, hint=GROUP_HINT)

    def _factory_in_scope(self, pid: int) -> GroupFactory | None:
        """Moves the process into the scope. None: no scope is needed, or there is none."""
        if not self.needs_scope(Accounting.AUTO) or self._scope is None:
            return None
        from joblens.agent.cgroups.systemd_manager import ManagerError
        from joblens.agent.cgroups.systemd_scope import is_alive

        try:
            return self._scope.take_in(pid)
        except (OSError, AccountingUnavailable, ManagerError, ProbeError) as error:
            if not is_alive(pid):
                raise LaunchError(f"the launcher ended before it was ready for a job ({error})") from error
            self._why_no_scope = f"no systemd scope: {error}"  # not asked again
            if self._warn is not None:
                self._warn(f"jobs are measured less exactly: {self._why_no_scope}")
            return None

    def _decide_on_scope(self) -> None:
        if self._parent is not None or not self._lacks_memory():
            self._why_no_scope = ""
            return
        from joblens.agent.cgroups.systemd_scope import scope_terms

        terms = scope_terms(read_layout())
        if terms.refusal:
            # Outside of units of systemd no scope is expected: there the own group is the reason.
            self._why_no_scope = f"no systemd scope: {terms.refusal}" if terms.is_unit else ""
            return
        from joblens.agent.cgroups.systemd_manager import manager_sockets
        from joblens.agent.cgroups.systemd_scope import OwnScope

        if manager_sockets():
            self._scope, self._why_no_scope = OwnScope(terms), ""
        else:
            self._why_no_scope = "no systemd scope: no systemd manager runs for this user"

    def _lacks_memory(self) -> bool:
        factory = self.factory()
        return factory is None or "memory" in factory.gaps

    def _memory_gap(self) -> str:
        return self._factory.gaps.get("memory", "") if self._factory is not None else ""

    def _tell_of_wrong_parent(self, reason: Exception | None) -> None:
        """Once. Who configured none did not ask for groups, and gets what the machine has."""
        if self._parent is not None and self._warn is not None:
            self._warn(
                f"limits.cgroup_parent {self._parent} is not used: {reason}; jobs are measured by their "
                "process tree instead"
            )
            self._warn = None

    def meter(
        self,
        groups: JobGroups | None,
        launcher_pid: int,
        others: Sequence["Probe"] = (),
        pids: Callable[[], list[int]] | None = None,
    ) -> JobMeter:
        """`others`: what looks at the job beside its groups. `pids`: where it is known already who is in
        them."""
        if groups is None:
            tree = ProcessTreeProbe(launcher_pid, include_root=False)
            return JobMeter(tree, None, self._host, self._clock, probe_counts_reaped=False, others=others)
        probe = CgroupProbe(groups.paths, groups.kind)
        return self.meter_of(probe, pids or groups.pids, others)

    def meter_of(
        self, probe: "Probe", pids: Callable[[], list[int]], others: Sequence["Probe"] = ()
    ) -> JobMeter:
        """`probe` counts whatever the job starts; `pids` are its living processes."""
        details = ProcessesProbe(pids)
        return JobMeter(probe, details, self._host, self._clock, probe_counts_reaped=True, others=others)


def limit(job: Job, groups: JobGroups | None) -> Limits:
    """Sets what the kernel can hold by itself and says how the rest is watched."""
    asked = job.requirements
    placed = place_on_cpus(job)
    if not job.enforce:
        return placed
    if not job.limits_resources:
        asked = Requirements(pids=asked.pids, timeout_s=asked.timeout_s)
    by: dict[str, str] = dict(placed.enforced_by)
    if groups is not None:
        by.update(groups.set_limits(asked.cpus, asked.memory_bytes, asked.pids))
    affinity = placed.affinity
    memory = pids = None
    if asked.memory_bytes is not None and "memory" not in by:
        memory = asked.memory_bytes
        by["memory"] = BY_WATCHING
    if asked.pids is not None and "pids" not in by:
        pids = asked.pids
        by["pids"] = BY_WATCHING
    if asked.cpus is not None and "cpus" not in by:
        affinity = _some_cpus(asked.cpus, affinity) or affinity
        if affinity is not None:
            by["cpus"] = f"{BY_AFFINITY} ({len(affinity)} whole CPU{'' if len(affinity) == 1 else 's'})"
    if asked.timeout_s is not None:
        by["timeout"] = BY_TIMER
    return Limits(
        enforced_by=by,
        affinity=affinity,
        watched_memory_bytes=memory,
        watched_pids=pids,
    )


def place_on_cpus(job: Job) -> Limits:
    """Where it runs is no limit of what it may use: it holds whether those are enforced or not. A container
    is bound by its engine."""
    if not job.cpu_list or job.container is not None:
        return Limits()
    from joblens.model.values.units import parse_cpu_list

    return Limits(enforced_by={"cpu_list": BY_AFFINITY}, affinity=parse_cpu_list(job.cpu_list))


def _some_cpus(cpus: float, among: Sequence[int] | None = None) -> tuple[int, ...] | None:
    """Whole CPUs only; which ones is spread by our pid so that several jobs do not share the first."""
    allowed = sorted(among or os.sched_getaffinity(0))
    wanted = max(1, -int(-cpus // 1))
    if wanted >= len(allowed):
        return None
    first = os.getpid() % len(allowed)
    return tuple(sorted((allowed + allowed)[first : first + wanted]))


def _shares_group(pid: int) -> bool:
    """Whether a process is in the same group of cgroup v2 as this one."""
    return read_text(f"/proc/{pid}/cgroup") == read_text("/proc/self/cgroup")
