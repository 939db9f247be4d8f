"""Accounting of jobs: the control groups or process tree that count a job, its limits, and its live
processes."""

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
from joblens.probes.proc.processes import ProcessesProbe, RecentReading

if TYPE_CHECKING:
    from joblens.agent.cgroups.systemd_scope import OwnScope
    from joblens.ports.clock import Clock
    from joblens.ports.probe import Probe


JOB_ID_VARIABLE = "JOBLENS_JOB_ID"
_ROUNDS = 50
_PAUSE_S = 0.01


def kill_marked(uuid: str) -> bool:
    """Kills processes with the job's mark until a scan finds none, including new ones. Returns whether there
    were any."""
    for round_ in range(_ROUNDS):
        if not _kill_marked_once(uuid):
            return round_ > 0
        time.sleep(_PAUSE_S)
    return True


def marked_processes(uuid: str) -> list[int]:
    """Returns live processes with the job's mark. Only readable processes can belong to joblens."""
    mark = f"{JOB_ID_VARIABLE}={uuid}".encode()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _has_mark(int(name), mark)]


def _kill_marked_once(uuid: str) -> int:
    mark = f"{JOB_ID_VARIABLE}={uuid}".encode()
    killed = 0
    for pid in marked_processes(uuid):
        with contextlib.suppress(OSError):
            held = os.pidfd_open(pid)
            try:
                # With the pidfd open, the pid cannot be reused.
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


# Names as the kernel truncates them: 15 characters. mpirun leaves behind the srun that started its daemons.
_NAMES = frozenset({"srun", "orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_pr"})
STEP_END_S = 5.0  # time for Slurm to end a step whose tasks are gone


def are_step_launchers(pids: Iterable[int], proc: str = "/proc") -> bool:
    """Returns whether all of these processes are step launchers, so none is a leftover of the job."""
    return all(_name(pid, proc) in {*_NAMES, ""} for pid in pids)


def _name(pid: int, proc: str) -> str:
    """Returns '' if the process has just ended."""
    with contextlib.suppress(OSError), open(f"{proc}/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return ""


_CACHE_S = 0.01
_KILL_TRIES = 20  # a fork may happen between listing and killing


class JobProcesses:
    """Processes of a job. `groups` and `meter` are set as soon as they exist; until then there are no
    processes."""

    def __init__(self) -> None:
        self.groups: JobGroups | None = None
        self.meter: JobMeter | None = None
        self._recent: list[int] = []
        self._read_at_s = 0.0

    def recent_pids(self) -> list[int]:
        """Returns the live processes, up to 10 ms old: for instruments, not for signals."""
        now_s = time.monotonic()
        if now_s - self._read_at_s > _CACHE_S:
            self._recent = self.pids()
            self._read_at_s = now_s
        return self._recent

    def pids(self) -> list[int]:
        """Returns all live processes of the job."""
        if self.groups is not None:
            return self.groups.pids()
        return self.meter.live_pids() if self.meter is not None else []

    def signal(self, number: int) -> None:
        if self.groups is not None:
            self.groups.signal(number)
        else:
            signal_each(self.pids(), number)

    def kill(self) -> None:
        if self.groups is not None:
            self.groups.kill()
        else:
            kill_each(self.pids)


def signal_each(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        # It has ended, or belongs to another user now (setuid): killing the group reaches that one.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_each(find: Callable[[], list[int]]) -> None:
    """Kills the processes that `find` returns until there are none."""
    for _ in range(_KILL_TRIES):
        pids = find()
        if not pids:
            return
        signal_each(pids, signal.SIGKILL)
        time.sleep(0.002)


PROCESS_TREE = "process-tree"
BY_WATCHING = "watched by joblens"
BY_TIMER = "joblens timer"


class Limits(Struct, frozen=True, kw_only=True):
    """How the job's limits are enforced."""

    enforced_by: dict[str, str] = {}
    affinity: tuple[int, ...] | None = None
    watched_memory_bytes: int | None = None  # joblens kills the job above these
    watched_pids: int | None = None


class Accountant:
    """Creates groups, limits and meters for jobs, as this machine allows."""

    def __init__(
        self,
        clock: "Clock",
        cgroup_parent: str | None = None,
        warn: Callable[[str], None] | None = None,
        owner_mark: str = "",
    ) -> None:
        """`owner_mark`: suffix of group names (`placement`)."""
        self._clock = clock
        self._parent = cgroup_parent
        self._warn = warn
        self._owner_mark = owner_mark
        self._host = RecentReading(HostProbe())
        self._factory: GroupFactory | None = None
        self._unavailable: AccountingUnavailable | None = None  # why there is no factory
        self._scope: OwnScope | None = None
        self._why_no_scope: str | None = None  # None: unknown; empty: there is a scope, or none is needed

    @property
    def parent(self) -> str | None:
        """Parent of job groups below each mount; None: not configured."""
        return self._parent

    @property
    def parents(self) -> list[str]:
        """Directories of the groups; empty if none were made."""
        return self._factory.parents if self._factory is not None else []

    def close(self) -> None:
        self._host.close()
        if self._factory is not None:
            self._factory.close()

    def factory(self) -> GroupFactory | None:
        """Returns the maker of groups without a systemd scope, or None if groups are impossible here."""
        if self._factory is None and self._unavailable is None:
            try:
                self._factory = GroupFactory.detect(self._parent)
            except AccountingUnavailable as reason:
                self._unavailable = reason
        return self._factory

    @property
    def accounting_gap(self) -> str:
        """Returns why jobs of this process are not measured and limited by control groups with all
        controllers. Empty: they are, unless systemd refuses a scope later."""
        if not self._lacks_memory() or self.needs_scope(Accounting.AUTO):
            return ""
        return self._why_no_scope or str(self._unavailable or "") or self._memory_gap()

    def reason_for(self, job: Job) -> str:
        """Returns the gap for the record of a started job; empty if the process tree was requested."""
        return "" if job.accounting is Accounting.PROCESS_TREE else self.accounting_gap

    def groups_for_process(self, name: str, accounting: Accounting, pid: int | None) -> JobGroups | None:
        """Returns new control groups for jobs that `pid` will start, a launcher of ours without a job, or
        None if the process tree has to be used. The launcher is moved into a systemd scope if groups can
        only be made there. `pid` None: only without a scope. `name`: unique. Raises LaunchError if the
        launcher has ended."""
        if accounting is Accounting.PROCESS_TREE:
            return None
        factory = self._factory_in_scope(pid) if pid is not None else None
        if factory is None and pid is not None and self._scope is not None and not _shares_group(pid):
            self._refuse_when_required(accounting)
            return None
        factory = factory or self.factory()
        if factory is None:
            self._refuse_when_required(accounting)
            self._warn_of_wrong_parent(self._unavailable)
            return None
        try:
            return factory.create(name + self._owner_mark)
        except (OSError, AccountingUnavailable) as error:
            if accounting is Accounting.CGROUP:
                raise AccountingUnavailable(
                    f"no control group could be created for the job: {error}"
                ) from error
            self._warn_of_wrong_parent(error)
            return None

    def disable_groups(self, reason: str) -> None:
        """Switches to the process tree, because no job can run in the groups that were made."""
        if self._factory is not None:
            self._factory.close()
        self._factory, self._scope = None, None
        self._unavailable, self._why_no_scope = AccountingUnavailable(reason), ""
        if self._warn is not None:
            self._warn(f"jobs are measured by their process tree: {reason}")

    def needs_scope(self, accounting: Accounting) -> bool:
        """Returns whether groups can only be made in a systemd scope, for a running launcher."""
        if accounting is Accounting.PROCESS_TREE:
            return False
        if self._why_no_scope is None:
            self._decide_on_scope()
        return self._scope is not None and not self._why_no_scope

    def _refuse_when_required(self, accounting: Accounting) -> None:
        if accounting is Accounting.CGROUP:
            raise AccountingUnavailable(self.accounting_gap, hint=GROUP_HINT)

    def _factory_in_scope(self, pid: int) -> GroupFactory | None:
        """Moves the process into the scope. Returns None if no scope is needed or available."""
        if not self.needs_scope(Accounting.AUTO) or self._scope is None:
            return None
        from joblens.agent.cgroups.systemd_manager import ManagerError
        from joblens.agent.cgroups.systemd_scope import is_alive

        try:
            return self._scope.add_process(pid)
        except (OSError, AccountingUnavailable, ManagerError, ProbeError) as error:
            if not is_alive(pid):
                raise LaunchError(f"the launcher ended before it was ready for a job ({error})") from error
            self._why_no_scope = f"no systemd scope: {error}"  # not retried
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
            # Outside systemd units no scope is expected; the reason is the process's own group.
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

    def _warn_of_wrong_parent(self, reason: Exception | None) -> None:
        """Warns once. Without a configured parent, jobs silently use what the machine offers."""
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
        """`others`: instruments beyond its groups. `pids`: returns its processes, if known."""
        if groups is None:
            from joblens.probes.proc.process_tree import ProcessTreeProbe  # few machines lack groups

            tree = ProcessTreeProbe(launcher_pid, include_root=False)
            return JobMeter(tree, None, self._host, self._clock, probe_counts_reaped=False, others=others)
        probe = CgroupProbe(groups.paths, groups.kind)
        return self.meter_of(probe, pids or groups.pids, others)

    def meter_of(
        self, probe: "Probe", pids: Callable[[], list[int]], others: Sequence["Probe"] = ()
    ) -> JobMeter:
        """`probe` counts everything that the job starts; `pids` returns its live processes."""
        details = ProcessesProbe(pids)
        return JobMeter(probe, details, self._host, self._clock, probe_counts_reaped=True, others=others)


def limit(job: Job, groups: JobGroups | None) -> Limits:
    """Sets limits that the kernel can enforce. Returns how each limit is enforced."""
    needs = job.requirements
    placed = bind_to_cpus(job)
    if not job.enforce:
        return placed
    if not job.limits_resources:
        needs = Requirements(pids=needs.pids, timeout_s=needs.timeout_s)
    by: dict[str, str] = dict(placed.enforced_by)
    if groups is not None:
        by.update(groups.set_limits(needs.cpus, needs.memory_bytes, needs.pids))
    affinity = placed.affinity
    memory = pids = None
    if needs.memory_bytes is not None and "memory" not in by:
        memory = needs.memory_bytes
        by["memory"] = BY_WATCHING
    if needs.pids is not None and "pids" not in by:
        pids = needs.pids
        by["pids"] = BY_WATCHING
    if needs.cpus is not None and "cpus" not in by:
        affinity = _choose_cpus(needs.cpus, affinity) or affinity
        if affinity is not None:
            by["cpus"] = f"{BY_AFFINITY} ({len(affinity)} whole CPU{'' if len(affinity) == 1 else 's'})"
    if needs.timeout_s is not None:
        by["timeout"] = BY_TIMER
    return Limits(
        enforced_by=by,
        affinity=affinity,
        watched_memory_bytes=memory,
        watched_pids=pids,
    )


def bind_to_cpus(job: Job) -> Limits:
    """Returns the job's CPU affinity, which is not a limit and always applies. The engine binds
    containers."""
    if not job.cpu_list or job.container is not None:
        return Limits()
    from joblens.model.values.units import parse_cpu_list

    return Limits(enforced_by={"cpu_list": BY_AFFINITY}, affinity=parse_cpu_list(job.cpu_list))


def _choose_cpus(cpus: float, among: Sequence[int] | None) -> tuple[int, ...] | None:
    """Returns whole CPUs, starting at an offset by pid so that several jobs do not share the first."""
    allowed = sorted(among or os.sched_getaffinity(0))
    wanted = max(1, -int(-cpus // 1))
    if wanted >= len(allowed):
        return None
    first = os.getpid() % len(allowed)
    return tuple(sorted((allowed + allowed)[first : first + wanted]))


def _shares_group(pid: int) -> bool:
    """Returns whether a process is in the same cgroup v2 group as this one."""
    return read_text(f"/proc/{pid}/cgroup") == read_text("/proc/self/cgroup")
