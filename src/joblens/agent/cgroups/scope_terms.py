"""Rules for a systemd scope: whether jobs may run in one of their own, and which limits it has to carry.

A scope takes its processes out of the unit that joblens runs in. A job must never get more than its caller
had, so a scope is allowed only where the unit and the groups between it and the scope's slice have no limit.
A limit on tasks is the exception: every unit has one by default, and the scope takes it over. A process that
something else than systemd has put into its group (Slurm, HTCondor, a container engine) stays there. So does
one that would depend on a user manager which stops at a logout elsewhere."""

import os
import re

from msgspec import Struct

from joblens.agent.cgroups.placement import limit_of, slurm_step
from joblens.probes.cgroup.layout import CgroupLayout
from joblens.probes.proc.kernel_files import read_text

LINGER = "/var/lib/systemd/linger"
_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # a constant of the kernel
_UNIT_ENDS = (".scope", ".service")
# libpod-<id>.scope, docker-<id>.scope, cri-containerd-<id>.scope, crio-<id>.scope …
_CONTAINER = re.compile(r"(^|-)[0-9a-f]{64}\.scope$")
# Units whose processes belong to jobs of a batch system that tracks them by other means than groups.
_BATCH_UNITS = re.compile(r"^(slurmd|slurmstepd|condor|htcondor|pbs|sgeexecd|lsfd)\b")


class ScopeTerms(Struct, frozen=True, kw_only=True):
    """`refusal`: why no scope is allowed; empty: one is. `is_unit`: whether joblens runs in a unit of
    systemd. `needs_linger`: lingering would allow one. `slice`: the unit to put it into, empty for the
    manager's default. `tasks_max`: the smallest limit on tasks that it takes over."""

    refusal: str = ""
    is_unit: bool = True
    needs_linger: bool = False
    slice: str = ""
    tasks_max: int | None = None


def scope_terms(
    layout: CgroupLayout, uid: int | None = None, proc: str = "/proc", linger: str = LINGER
) -> ScopeTerms:
    """`uid`: decides which manager makes the scope: the system's for root, else the user's own. `linger`: the
    folder that names users whose managers run without a login."""
    uid = os.geteuid() if uid is None else uid
    unified = layout.unified
    if layout.kind != "cgroup-v2" or unified is None:
        return ScopeTerms(is_unit=False, refusal="this machine has no pure cgroup v2")
    if unified.directory is None:
        return ScopeTerms(
            is_unit=False,
            refusal=f"{unified.mount_point} does not show the group {unified.own_path} of this process",
        )
    if _sees_other_pids(proc):
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


def user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def is_lingering(user: str, folder: str = LINGER) -> bool:
    """Whether the user's manager runs from boot on, logged in or not."""
    return os.path.exists(f"{folder}/{user}")


def _why_not_a_unit(own_path: str, names: list[str]) -> str:
    """Why the group of this process is not one that systemd made for a unit and no other program divides."""
    if slurm_step(own_path):
        return f"{own_path} belongs to a Slurm step, which counts and ends its processes by that group"
    if any(_CONTAINER.search(name) or name.startswith("kubepods") for name in names):
        return f"{own_path} belongs to a container, whose engine counts and limits it by that group"
    if not names[-1].endswith(_UNIT_ENDS):
        return f"{own_path} is not the group of a systemd unit: another program manages it"
    if _BATCH_UNITS.match(names[-1]):
        return f"{own_path} belongs to a batch system, which would lose sight of the job"
    return ""


def _slice_for_scope(names: list[str], uid: int) -> tuple[int, str, str]:
    """-> (how many groups from the top hold the unit as well as the scope, slice, why there is none)"""
    slices = _leading_slices(names)
    below = names[slices:]
    if len(below) > 1 and below[0].startswith("user@"):
        below = below[1:]
        below = below[_leading_slices(below) :]
    if len(below) != 1:
        return 0, "", f"/{'/'.join(names)} lies inside another unit: another program manages it"
    if uid == 0:
        return slices, names[slices - 1] if slices else "", ""
    manager = ["user.slice", f"user-{uid}.slice", f"user@{uid}.service"]
    if names[:3] != manager:  # a login session, sudo, a system service
        return (2 if names[:2] == manager[:2] else int(names[0] == manager[0])), "", ""
    inside = names[3:]
    slices = _leading_slices(inside)
    return 3 + slices, inside[slices - 1] if slices else "", ""


def _leading_slices(names: list[str]) -> int:
    return next((place for place, name in enumerate(names) if not name.endswith(".slice")), len(names))


def _with_limits(own: str, levels: int, slice_name: str) -> ScopeTerms:
    """`levels`: how many groups, from `own` upwards, the scope would leave."""
    tasks_max = None
    directory = own
    for _ in range(levels):
        limit = limit_of(directory)
        if limit:
            name = os.path.basename(directory)
            why = f"{name} has a limit ({limit}), which a job in a scope of its own would escape"
            return ScopeTerms(refusal=why)
        pids_max = (read_text(f"{directory}/pids.max") or "").strip()
        if pids_max.isdigit():
            tasks_max = min(int(pids_max), tasks_max if tasks_max is not None else int(pids_max))
        directory = os.path.dirname(directory)
    return ScopeTerms(slice=slice_name, tasks_max=tasks_max)


def _sees_other_pids(proc: str) -> bool:
    """Whether process numbers here differ from those systemd knows: a scope would get a wrong process."""
    try:
        if os.readlink(f"{proc}/self") != str(os.getpid()):
            return True
    except OSError:
        return True
    first = read_text(f"{proc}/1/comm")
    if first is not None:
        return first.strip() not in ("systemd", "init")
    try:  # a /proc with hidepid does not show processes of others
        return os.readlink(f"{proc}/self/ns/pid") != _FIRST_PID_NAMESPACE
    except OSError:
        return True
