"""Picks how a job is accounted for and held to its limits, best way first."""

import os
from collections.abc import Callable, Sequence

from msgspec import Struct

from joblens.agent.groups import GroupFactory, JobGroups
from joblens.agent.meter import JobMeter
from joblens.agent.systemd_scope import enter_leaf, scope_argv, user_systemd_available
from joblens.model.errors import AccountingUnavailable
from joblens.model.job import BY_AFFINITY, Accounting, Job, Requirements
from joblens.ports.clock import Clock
from joblens.ports.probe import Probe
from joblens.probes.cgroup import CgroupProbe
from joblens.probes.cgroup_layout import read_layout
from joblens.probes.host import HostProbe
from joblens.probes.process_tree import ProcessTreeProbe
from joblens.probes.processes import ProcessesProbe
from joblens.probes.recent import RecentReading

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
        clock: Clock,
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
        self._why_not: AccountingUnavailable | None = None
        self._scope_is_wanted: bool | None = None  # None: not looked yet

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
        if self._factory is None and self._why_not is None:
            try:
                self._factory = GroupFactory.detect(self._parent)
            except AccountingUnavailable as reason:
                self._why_not = reason
        return self._factory

    def scope_prefix(self, job: Job) -> list[str]:
        """What to put before the launcher's command line so that systemd gives it a group to divide; empty
        where joblens can make good groups itself, or where no systemd would answer."""
        if job.accounting is Accounting.PROCESS_TREE or not self._needs_scope():
            return []
        return scope_argv([], f"joblens-{job.uuid}.scope")

    def _needs_scope(self) -> bool:
        if self._scope_is_wanted is None:
            factory = self.factory()
            lacks_memory = factory is None or "memory" in factory.gaps
            is_v2 = lacks_memory and read_layout().kind == "cgroup-v2"
            self._scope_is_wanted = self._parent is None and is_v2 and user_systemd_available()
        return self._scope_is_wanted

    def give_up_scopes(self) -> None:
        """systemd did not do what was asked; not asked again by this process."""
        self._scope_is_wanted = False

    def groups_in_scope(self, job: Job, launcher_pid: int) -> JobGroups | None:
        """Groups below the scope that the launcher was started in."""
        try:
            layout = read_layout(pid=str(launcher_pid))
            parent = enter_leaf(layout, launcher_pid)
            return GroupFactory.detect(parent, layout=read_layout(pid=str(launcher_pid))).create(
                job.uuid + self._owner_mark
            )
        except (OSError, AccountingUnavailable):
            self.give_up_scopes()
            return self.groups_for(job)

    def groups_for(self, job: Job) -> JobGroups | None:
        """Fresh control groups, or None where the process tree has to do."""
        return self.groups_named(job.uuid, job.accounting)

    def groups_named(self, name: str, accounting: Accounting) -> JobGroups | None:
        """The same for a name that has never been used before and never will be again."""
        if accounting is Accounting.PROCESS_TREE:
            return None
        factory = self.factory()
        if factory is None:
            if accounting is Accounting.CGROUP:
                assert self._why_not is not None
                raise self._why_not
            self._tell_of_wrong_parent(self._why_not)
            return None
        try:
            return factory.create(name + self._owner_mark)
        except (OSError, AccountingUnavailable) as error:
            if accounting is Accounting.CGROUP:
                raise AccountingUnavailable(f"no control group could be made for the job: {error}") from error
            self._tell_of_wrong_parent(error)
            return None

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
        others: Sequence[Probe] = (),
        pids: Callable[[], list[int]] | None = None,
    ) -> JobMeter:
        """`others`: what looks at the job beside its groups. `pids`: where it is known already who is in
        them."""
        if groups is None:
            tree = ProcessTreeProbe(launcher_pid, include_root=False)
            return JobMeter(tree, None, self._host, self._clock, probe_counts_reaped=False, others=others)
        probe = CgroupProbe(groups.paths, groups.kind)
        return self.meter_of(probe, pids or groups.pids, others)

    def meter_of(self, probe: Probe, pids: Callable[[], list[int]], others: Sequence[Probe] = ()) -> JobMeter:
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
    from joblens.model.cpu_lists import parse_cpu_list

    return Limits(enforced_by={"cpu_list": BY_AFFINITY}, affinity=parse_cpu_list(job.cpu_list))


def _some_cpus(cpus: float, among: Sequence[int] | None = None) -> tuple[int, ...] | None:
    """Whole CPUs only; which ones is spread by our pid so that several jobs do not share the first."""
    allowed = sorted(among or os.sched_getaffinity(0))
    wanted = max(1, -int(-cpus // 1))
    if wanted >= len(allowed):
        return None
    first = os.getpid() % len(allowed)
    return tuple(sorted((allowed + allowed)[first : first + wanted]))
