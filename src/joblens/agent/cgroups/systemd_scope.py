"""Systemd scope that contains all jobs of this process: when it is allowed, which limits it has, and its
life.

A scope takes its processes out of the unit that joblens runs in. A job must never get more than its
caller had, so a scope is allowed only if the unit and the groups between it and the scope's slice have no
limit. A limit on tasks is the exception: every unit has one by default, and the scope copies it. A
process that something other than systemd has put into its group (Slurm, HTCondor, a container engine)
stays there. So does one that would depend on a user manager which stops at a logout elsewhere.

The scope is delegated: joblens makes the groups of its jobs below it. The kernel gives controllers only
to groups below one without processes, so launchers stay in a leaf. A supervisor that systemd started in a
delegated unit moves itself into such a leaf (`own_group`).
"""

import os
import re
import threading

from msgspec import Struct

from joblens.agent.cgroups.groups import GroupFactory
from joblens.agent.cgroups.placement import limit_of, slurm_step
from joblens.agent.cgroups.systemd_manager import NO_LIMIT, ManagerError, Scope, SystemdManager
from joblens.files.private import user_name
from joblens.model.errors import AccountingUnavailable, ProbeError
from joblens.model.values.ids import new_uuid
from joblens.probes.cgroup.layout import CgroupLayout, read_layout
from joblens.probes.proc.kernel_files import parse_stat, read_bytes, read_text

LINGER = "/var/lib/systemd/linger"
_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # a constant of the kernel
_UNIT_ENDS = (".scope", ".service")
# libpod-<id>.scope, docker-<id>.scope, cri-containerd-<id>.scope, crio-<id>.scope …
_CONTAINER = re.compile(r"(^|-)[0-9a-f]{64}\.scope$")
# Units whose processes belong to jobs of a batch system that tracks them by other means than groups.
_BATCH_UNITS = re.compile(r"^(slurmd|slurmstepd|condor|htcondor|pbs|sgeexecd|lsfd)\b")


class ScopeTerms(Struct, frozen=True, kw_only=True):
    """`refusal`: why no scope is allowed; empty: one is. `is_unit`: joblens runs in a unit of systemd.
    `needs_linger`: lingering would allow one. `slice`: the unit to put it into, empty for the manager's
    default. `tasks_max`: the smallest limit on tasks, which it copies."""

    refusal: str = ""
    is_unit: bool = True
    needs_linger: bool = False
    slice: str = ""
    tasks_max: int | None = None


def scope_terms(
    layout: CgroupLayout, uid: int | None = None, proc: str = "/proc", linger: str = LINGER
) -> ScopeTerms:
    """`uid`: decides which manager makes the scope: the system's for root, otherwise the user's.
    `linger`: the folder that names users whose managers run without a login."""
    uid = os.geteuid() if uid is None else uid
    unified = layout.unified
    if layout.kind != "cgroup-v2" or unified is None:
        return ScopeTerms(is_unit=False, refusal="this machine has no pure cgroup v2")
    if unified.directory is None:
        return ScopeTerms(
            is_unit=False,
            refusal=f"{unified.mount_point} does not show the group {unified.own_path} of this process",
        )
    if _has_other_pids(proc):
        return ScopeTerms(
            is_unit=False, refusal="this process is in a pid namespace that systemd does not share"
        )
    names = unified.own_path.strip("/").split("/")
    reason = _why_not_a_unit(unified.own_path, names)
    if reason:
        return ScopeTerms(is_unit=False, refusal=reason)
    shared, slice_name, reason = _slice_for_scope(names, uid)
    if reason:
        return ScopeTerms(is_unit=False, refusal=reason)
    if uid != 0 and names[1:2] != [f"user-{uid}.slice"] and not is_lingering(user_name(uid), linger):
        user = user_name(uid)
        why = f"the systemd manager of {user} runs, and keeps its scopes, only while {user} is logged in"
        return ScopeTerms(refusal=why, needs_linger=True)
    return _with_limits(unified.directory, len(names) - shared, slice_name)


def is_lingering(user: str, folder: str = LINGER) -> bool:
    """Returns whether the user's manager runs from boot on, logged in or not."""
    return os.path.exists(f"{folder}/{user}")


def _why_not_a_unit(own_path: str, names: list[str]) -> str:
    """Returns why the group of this process is not one that systemd made for a unit and no other program
    divides."""
    if slurm_step(own_path):
        return f"{own_path} belongs to a Slurm step, which counts and kills its processes by that group"
    if any(_CONTAINER.search(name) or name.startswith("kubepods") for name in names):
        return f"{own_path} belongs to a container, whose engine counts and limits it by that group"
    if not names[-1].endswith(_UNIT_ENDS):
        return f"{own_path} is not the group of a systemd unit: another program manages it"
    if _BATCH_UNITS.match(names[-1]):
        return f"{own_path} belongs to a batch system, which would lose track of the job"
    return ""


def _slice_for_scope(names: list[str], uid: int) -> tuple[int, str, str]:
    """Returns (how many groups from the top contain the unit and the scope, slice, why there is none)."""
    slices = _leading_slices(names)
    below = names[slices:]
    if len(below) > 1 and below[0].startswith("user@"):
        below = below[1:]
        below = below[_leading_slices(below) :]
    if len(below) != 1:
        return 0, "", f"/{'/'.join(names)} is inside another unit: another program manages it"
    if uid == 0:
        return slices, names[slices - 1] if slices else "", ""
    manager = ["user.slice", f"user-{uid}.slice", f"user@{uid}.service"]
    if names[:3] != manager:  # a login session, sudo, a system service
        return (2 if names[:2] == manager[:2] else int(names[0] == manager[0])), "", ""
    inside = names[3:]
    slices = _leading_slices(inside)
    return 3 + slices, inside[slices - 1] if slices else "", ""


def _leading_slices(names: list[str]) -> int:
    return next((index for index, name in enumerate(names) if not name.endswith(".slice")), len(names))


def _with_limits(own: str, levels: int, slice_name: str) -> ScopeTerms:
    """`levels`: how many groups, from `own` upwards, the scope would leave."""
    tasks_max = None
    directory = own
    for _ in range(levels):
        limit = limit_of(directory)
        if limit:
            name = os.path.basename(directory)
            why = f"{name} has a limit ({limit}), which a job in its own scope would escape"
            return ScopeTerms(refusal=why)
        pids_max = (read_text(f"{directory}/pids.max") or "").strip()
        if pids_max.isdigit():
            tasks_max = min(int(pids_max), tasks_max if tasks_max is not None else int(pids_max))
        directory = os.path.dirname(directory)
    return ScopeTerms(slice=slice_name, tasks_max=tasks_max)


def _has_other_pids(proc: str) -> bool:
    """Returns whether pids here differ from those of systemd: a scope would get a wrong process."""
    try:
        if os.readlink(f"{proc}/self") != str(os.getpid()):
            return True
    except OSError:
        return True
    first = read_text(f"{proc}/1/comm")
    if first is not None:
        return first.strip() not in ("systemd", "init")
    try:  # a /proc with hidepid hides processes of others
        return os.readlink(f"{proc}/self/ns/pid") != _FIRST_PID_NAMESPACE
    except OSError:
        return True


LEAF = "joblens-self"


class OwnScope:
    """Creates the scope with the first launcher, and again if its last process has ended since. Safe to
    use from several threads."""

    def __init__(self, terms: ScopeTerms) -> None:
        self._terms = terms
        self._manager = SystemdManager()
        self._unit = ""
        self._factory: GroupFactory | None = None
        self._lock = threading.Lock()

    def add_process(self, pid: int) -> GroupFactory:
        """Moves one of our launchers into the scope; groups of its jobs can be made until it ends. Raises
        ManagerError, AccountingUnavailable, ProbeError or OSError."""
        with self._lock:
            if self._factory is not None and self._attach(pid):
                return self._factory
            self._factory = None
            self._unit = f"joblens-{new_uuid()}.scope"
            self._create(pid)
            parent = enter_leaf(pid=pid)
            self._factory = GroupFactory.detect(parent, layout=read_layout(pid=pid))
            return self._factory

    def _attach(self, pid: int) -> bool:
        """Returns False if the scope is gone."""
        try:
            self._manager.attach(self._unit, f"/{LEAF}", [pid])
        except ManagerError as error:
            # Without an answer the state of the scope is unknown. A process that has ended cannot be
            # attached.
            if not error.name or not is_alive(pid):
                raise
            return False
        return True

    def _create(self, pid: int) -> None:
        tasks_max = self._terms.tasks_max
        scope = Scope(
            unit=self._unit,
            slice=self._terms.slice,
            tasks_max=NO_LIMIT if tasks_max is None else tasks_max,
            description=f"Jobs of joblens (process {os.getpid()})",
        )
        self._manager.start_scope(scope, pid, lambda: self._is_inside(pid))

    def _is_inside(self, pid: int) -> bool:
        if (read_text(f"/proc/{pid}/cgroup") or "").rstrip().endswith(f"/{self._unit}"):
            return True
        if not is_alive(pid):  # it never will be
            raise ManagerError(f"the launcher (process {pid}) ended before it was in {self._unit}")
        return False


def is_alive(pid: int) -> bool:
    """Returns False also for a zombie."""
    try:
        return parse_stat(read_bytes(f"/proc/{pid}/stat")).is_alive
    except (OSError, ValueError, ProbeError):
        return False


def enter_leaf(pid: int | None = None) -> str:
    """Moves one of our processes (default: this one) from its group into a leaf below. Returns the group's
    path below the mount, the parent for GroupFactory.detect. Refuses if any other process is in the group."""
    moved = pid or os.getpid()
    unified = read_layout(pid=str(moved)).unified
    if unified is None or unified.directory is None:
        raise AccountingUnavailable("this process is in no cgroup v2 group")
    others = set((read_text(f"{unified.directory}/cgroup.procs") or "").split()) - {str(moved)}
    if others:
        raise AccountingUnavailable(
            f"{unified.directory} holds {len(others)} other processes, which joblens does not move",
            hint="let the unit run nothing but joblens: in a script, start it with exec joblens …",
        )
    leaf = f"{unified.directory}/{LEAF}"
    try:
        os.makedirs(leaf, exist_ok=True)
        with open(f"{leaf}/cgroup.procs", "wb", buffering=0) as file:
            file.write(str(moved).encode())
    except OSError as error:
        raise AccountingUnavailable(f"cannot move into {leaf}: {error.strerror}") from error
    return unified.directory.removeprefix(unified.mount_point.rstrip("/")) or "/"


def own_group() -> str:
    """Returns the delegated group this process was started in, whether it is there or already in a leaf
    of it (DelegateSubgroup=): a path below the mount, as for GroupFactory.detect."""
    unified = read_layout().unified
    if unified is not None and unified.directory is not None and os.path.basename(unified.directory) == LEAF:
        above = os.path.dirname(unified.directory)
        return above.removeprefix(unified.mount_point.rstrip("/")) or "/"
    return enter_leaf()
