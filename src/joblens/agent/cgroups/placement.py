"""Placement of control groups: the parent of job groups, and how a group that has processes is divided.

A group that joblens made for a job stays divided. The group of a delegated unit is restored.

Job groups go below the process's own group in each hierarchy, so that all limits of joblens also apply to
its jobs. On v2 the kernel gives no controllers to groups below one with processes, and joblens' own group
contains at least joblens. There the first of these that works is used:
- the job group of joblens that this process is in: it can be divided, and counts its inner jobs;
- an ancestor that delegates controllers, if no limit is left behind on the way up. Inside a Slurm job the
  search ends at the step: Slurm counts and kills its jobs by the groups above;
- the own group, if systemd has delegated it and it has no foreign process: it can be divided for a while.

Groups without the memory controller are not used on pure v2: the process tree knows more about memory
there, and lets joblens watch the limit.
"""

import contextlib
import errno
import os
import re
import time
import zlib
from collections.abc import Collection, Sequence

from msgspec import Struct

from joblens.model.errors import AccountingUnavailable, ProbeError
from joblens.model.jobs.job import Owner
from joblens.model.values.ids import is_uuid
from joblens.probes.cgroup.layout import UNIFIED, CgroupLayout, Hierarchy
from joblens.probes.proc.kernel_files import parse_stat, read_text, read_words, subgroups

LEAF = "joblens-self"
V2_CONTROLLERS = ("memory", "pids", "cpu", "io")  # memory first: see enable_controllers
_DIVIDE_TIMEOUT_S = 2.0
_PAUSE_S = 0.001


def enable_controllers(directory: str) -> dict[str, str]:
    """Delegates the v2 controllers to the groups below; returns controller -> why not, for those that are
    missing.

    Never in a group that has processes: there the kernel refuses memory and io, but accepts pids and cpu
    and makes the group threaded, so that no job can run in it. Memory comes first, since no process can
    enter the group once it is enabled.
    """
    offered = read_words(f"{directory}/cgroup.controllers")
    enabled = read_words(f"{directory}/cgroup.subtree_control")
    gaps = {}
    refusal = ""
    for controller in V2_CONTROLLERS:
        if controller in enabled:
            continue
        if controller not in offered:
            gaps[controller] = f"the {controller} controller is not delegated to {directory}"
            continue
        if not refusal and holds_processes(directory):
            refusal = f"{directory} holds processes, so the kernel gives no controllers to groups below it"
        if not refusal:
            error = _write(f"{directory}/cgroup.subtree_control", f"+{controller}")
            if error is None:
                continue
            if error.errno == errno.EBUSY:
                refusal = f"{directory} is in use, so the kernel gives no controllers to groups below it"
            else:
                gaps[controller] = (
                    f"the {controller} controller cannot be enabled in {directory}: {error.strerror}"
                )
                continue
        gaps[controller] = refusal
    return gaps


def missing_controllers(directory: str) -> dict[str, str]:
    """Returns controller -> why groups below this one lack it."""
    enabled = read_words(f"{directory}/cgroup.subtree_control")
    why = "holds processes and " if holds_processes(directory) else ""
    return {
        controller: f"{directory} {why}does not delegate the {controller} controller"
        for controller in V2_CONTROLLERS
        if controller not in enabled
    }


def holds_processes(directory: str) -> bool:
    """Returns whether processes prevent the kernel from giving controllers to groups below. Processes in
    the root group, which has no type, do not."""
    if not os.path.exists(f"{directory}/cgroup.type"):
        return False
    processes = read_text(f"{directory}/cgroup.procs")
    return processes is None or bool(processes.strip())  # None: a threaded group


def divide(directory: str, timeout_s: float = _DIVIDE_TIMEOUT_S) -> str:
    """Moves all processes of the group into its leaf and enables its controllers. Any number of joblens
    processes may do so at once. Returns why that failed; empty: it worked."""
    leaf = f"{directory}/{LEAF}"
    try:
        os.makedirs(leaf, exist_ok=True)
    except OSError as error:
        return f"cannot create {leaf}: {error.strerror}"
    deadline = time.monotonic() + timeout_s
    while True:
        reason = _move_processes(directory, leaf)
        if reason:
            return reason
        gaps = enable_controllers(directory)
        if "memory" not in gaps:
            return ""
        if not holds_processes(directory):
            return gaps["memory"]
        # A process was forked while its parent was moved; the next round moves the child.
        if time.monotonic() > deadline:
            return f"processes keep starting in {directory} faster than they can be moved into {leaf}"
        time.sleep(_PAUSE_S)


def undo_division(directory: str) -> None:
    """Restores a group after `divide`: no controllers below it, its processes in it, no leaf. Tries each
    step even if an earlier one fails. Does nothing while the group has job groups."""
    leaf = f"{directory}/{LEAF}"
    if any(group != leaf for group in subgroups(directory)):
        return
    for controller in reversed(V2_CONTROLLERS):
        if controller in read_words(f"{directory}/cgroup.subtree_control"):
            _write(f"{directory}/cgroup.subtree_control", f"-{controller}")
    deadline = time.monotonic() + _DIVIDE_TIMEOUT_S
    while os.path.isdir(leaf):
        _move_processes(leaf, directory)
        with contextlib.suppress(OSError):
            os.rmdir(leaf)
            return
        if time.monotonic() > deadline:
            return
        time.sleep(_PAUSE_S)


def is_delegated(directory: str, own_path: str) -> bool:
    """Returns whether systemd has delegated the group of this process. The system's manager marks the
    group itself; a user's manager has to be asked about the unit."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            return os.getxattr(directory, name) == b"1"
    if f"/user@{os.geteuid()}.service/" not in own_path:
        return False
    from joblens.agent.cgroups.systemd_manager import ManagerError, SystemdManager

    try:
        return SystemdManager().unit_property(os.path.basename(own_path), "Delegate") is True
    except ManagerError:
        return False


def holds_only_own_processes(directory: str) -> bool:
    """Returns whether all processes of the group are this one and its descendants."""
    values = (read_text(f"{directory}/cgroup.procs") or "0").split()
    return all(_is_own(int(word)) for word in values)


def _is_own(pid: int) -> bool:
    own = os.getpid()
    while pid > 1 and pid != own:
        try:
            with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
                pid = parse_stat(file.read()).parent_pid
        except FileNotFoundError:
            return True  # it has ended
        except (OSError, ValueError, ProbeError):
            return False
    return pid == own


def _move_processes(source: str, target: str) -> str:
    """Returns why not all its processes could be moved; empty: they were, though more may have started
    since."""
    try:
        with open(f"{source}/cgroup.procs", "rb", buffering=0) as file:
            pids = file.read().split()
    except OSError as error:
        return f"cannot list the processes in {source}: {error.strerror}"
    for pid in pids:
        if pid == b"0":
            return f"{source} holds processes of another pid namespace, which cannot be moved from here"
        failure = _write(f"{target}/cgroup.procs", pid.decode())
        if failure is not None and failure.errno != errno.ESRCH:
            return f"cannot move process {pid.decode()} into {target}: {failure.strerror}"
    return ""


def _write(path: str, text: str) -> OSError | None:
    try:
        with open(path, "wb", buffering=0) as file:
            file.write(text.encode())
    except OSError as error:
        return error
    return None


# …/slurmstepd.scope/job_42/step_batch/user/task_0 on v2, …/uid_1000/job_42/step_0/task_1 on v1.
_SLURM_STEP = r"/job_(\d+)/step_([^/]+)(?:/user)?(?=/|$)"
_LIMIT_FILES = (
    "memory.high",
    "memory.swap.max",
    "cpu.max",
    "io.max",
    "cpuset.cpus",
    "cpuset.mems",
)
_SHARED_PARENT = r"joblens-\d+"
_GROUP_NAME = (
    r"(?P<slot>slot-)?(?P<uuid>[0-9a-f-]{36})"
    r"(?:\.(?P<pid>\d+)-(?P<ticks>\d+)-(?P<namespace>\d+)-(?P<spool>[0-9a-f]{8}_[0-9a-f]{8}))?(?:-\d+)?"
)
GROUP_HINT = "joblens doctor shows how to get one; --accounting process_tree needs none"


class GroupPlacement(Struct, frozen=True, kw_only=True):
    """`bases`: hierarchy -> directory for the groups of every job. `spare`: the same for hierarchies that
    a job joins only if a limit needs them, because joining is slow. `gaps`: controller -> why job groups
    lack it. `divided`: the base whose processes have to move into a leaf first (leaf_group); `is_borrowed`:
    it belongs to a unit and has to be restored."""

    kind: str
    bases: dict[str, str]
    spare: dict[str, str] = {}
    gaps: dict[str, str] = {}
    divided: str = ""
    is_borrowed: bool = False


def find_placement(
    layout: CgroupLayout, parent: str | None = None, *, may_divide: bool = True, may_borrow: bool = True
) -> GroupPlacement:
    """`parent`: a path below each mount, made for joblens, where controllers may be enabled.
    `may_divide`: groups may go where processes have to be moved first; `may_borrow`: also into a unit's
    group. Raises AccountingUnavailable with the reason if groups could not even count CPU time."""
    if layout.kind == "none":
        raise AccountingUnavailable(
            "no cgroup hierarchy is mounted here", hint="mount one (cgroup2) or use --accounting process_tree"
        )
    unified = layout.unified
    refusal = ""
    if unified is not None:
        base = _base(unified, parent)
        if parent is None and base is not None and layout.kind == "cgroup-v2":
            placement = _placement_on_pure_v2(unified, base, may_divide=may_divide, may_borrow=may_borrow)
            if placement is not None:
                return placement
        refusal = _refusal(unified, base)
        if not refusal:
            placement = _placement_with_unified(layout, parent, base or "")
            if layout.kind != "cgroup-v2" or "memory" not in placement.gaps:
                return placement
            refusal = placement.gaps["memory"]
    cpuacct = layout.hierarchies.get("cpuacct")
    v1_refusal = _refusal(cpuacct, _base(cpuacct, parent)) if cpuacct else "no cpuacct hierarchy is mounted"
    if v1_refusal:
        raise AccountingUnavailable(
            f"no cgroup can be created for jobs: {refusal or v1_refusal}",
            hint=GROUP_HINT if parent is None else f"check limits.cgroup_parent; {GROUP_HINT}",
        )
    bases, gaps = _v1_bases(layout, parent, ("cpuacct", "memory", "pids"))
    spare, _ = _v1_bases(layout, parent, ("cpu",))
    if spare.get("cpu") == bases["cpuacct"]:  # mounted together: joining one joins both
        bases.update(spare)
        spare = {}
    return GroupPlacement(kind="cgroup-v1", bases=bases, spare=spare, gaps=gaps)


def shared_parent(base: str) -> str:
    """Returns the parent of all job groups of this user there."""
    return f"{base}/joblens-{os.geteuid()}"


def is_job_group(path: str, mounts: Collection[str]) -> bool:
    """Returns whether joblens can have made it for a job or a slot of this user: below a cgroup mount,
    without links in its path, and with a name that joblens uses."""
    parent, name = os.path.split(path)
    is_mounted = any(parent.startswith(mount.rstrip("/") + "/") for mount in mounts)
    is_ours = parent == shared_parent(os.path.dirname(parent))
    is_named_so = parse_group_name(name) is not None
    return is_mounted and is_ours and is_named_so and os.path.realpath(path) == path


class GroupName(Struct, frozen=True):
    """Parsed name of a job group."""

    uuid: str  # uuid of its job, or its own
    is_slot: bool
    pid: int | None = None  # process that made it; None: an earlier version did
    start_ticks: int = 0
    pid_namespace: int = 0
    spool: str = ""  # mark of that process's spool directory


def owner_mark(owner: Owner, spool_dir: str) -> str:
    """Returns the suffix of groups that this process creates, from which its owner can be read."""
    return f".{owner.pid}-{owner.start_ticks}-{owner.pid_namespace}-{spool_mark(spool_dir)}"


def spool_mark(spool_dir: str) -> str:
    root, name = os.path.split(spool_dir)
    return f"{zlib.crc32(os.fsencode(root)):08x}_{zlib.crc32(os.fsencode(name)):08x}"


def parse_group_name(name: str) -> GroupName | None:
    found = re.fullmatch(_GROUP_NAME, name)
    if found is None or not is_uuid(found["uuid"]):
        return None
    is_slot = bool(found["slot"])
    if not found["pid"]:
        return GroupName(found["uuid"], is_slot)
    numbers = int(found["pid"]), int(found["ticks"]), int(found["namespace"])
    return GroupName(found["uuid"], is_slot, *numbers, found["spool"])


def is_slot_group(path: str) -> bool:
    name = parse_group_name(os.path.basename(path))
    return name is not None and name.is_slot


def slurm_step(directory: str) -> str:
    """Returns the group that Slurm gave to a step, if this is it or is inside it; otherwise empty."""
    found = re.search(_SLURM_STEP, directory)
    return directory[: found.end()] if found else ""


def enclosing_job_group(directory: str, mount_point: str) -> str:
    """Returns the innermost group that joblens, of any user, made for the job or slot of a process in
    `directory`; empty: there is none."""
    mount = mount_point.rstrip("/")
    while directory.startswith(f"{mount}/"):
        parent, name = os.path.split(directory)
        if re.fullmatch(_SHARED_PARENT, os.path.basename(parent)) and parse_group_name(name) is not None:
            return directory
        directory = parent
    return ""


def _placement_with_unified(layout: CgroupLayout, parent: str | None, base: str) -> GroupPlacement:
    v1_keys = [key for key in ("memory", "pids") if key in layout.hierarchies]
    bases, gaps = _v1_bases(layout, parent, v1_keys)
    spare, _ = _v1_bases(layout, parent, ["cpu"] if "cpu" in layout.hierarchies else [])
    missing = enable_controllers(base) if parent is not None else missing_controllers(base)
    for controller, reason in missing.items():
        if controller not in layout.hierarchies:
            gaps[controller] = reason
    return GroupPlacement(kind=layout.kind, bases={UNIFIED: base, **bases}, spare=spare, gaps=gaps)


def _placement_on_pure_v2(
    unified: Hierarchy, own: str, *, may_divide: bool, may_borrow: bool
) -> GroupPlacement | None:
    """None: no group below or above the own one can give jobs the memory controller."""
    job_group = enclosing_job_group(own, unified.mount_point)
    if may_divide and job_group and _can_divide(unified, own, job_group):
        return _placement_in(job_group, is_divided=True)
    best = _best_on_the_way_up(unified, own, job_group or slurm_step(own) or unified.mount_point)
    if best:
        return _placement_in(best)
    if may_divide and may_borrow and not job_group and _can_borrow(unified, own):
        return _placement_in(own, is_divided=True, is_borrowed=True)
    return None


def _placement_in(base: str, *, is_divided: bool = False, is_borrowed: bool = False) -> GroupPlacement:
    gaps = missing_controllers(base)
    if is_divided:
        gaps = {controller: gap for controller, gap in gaps.items() if controller not in _offered(base)}
    return GroupPlacement(
        kind="cgroup-v2",
        bases={UNIFIED: base},
        gaps=gaps,
        divided=base if is_divided else "",
        is_borrowed=is_borrowed,
    )


def _can_divide(unified: Hierarchy, own: str, job_group: str) -> bool:
    """Returns whether the processes of the enclosing job can be moved into a leaf; not if the job made
    groups itself and this process is in one of them."""
    is_direct = own in (job_group, f"{job_group}/{LEAF}")
    return is_direct and "memory" in _offered(job_group) and not _refusal(unified, job_group)


def _can_borrow(unified: Hierarchy, own: str) -> bool:
    """Returns whether the own group may be divided until this process ends."""
    return (
        "memory" in _offered(own)
        and not _refusal(unified, own)
        and os.access(f"{own}/cgroup.subtree_control", os.W_OK)
        and holds_only_own_processes(own)
        and is_delegated(own, unified.own_path)
    )


def _offered(directory: str) -> frozenset[str]:
    return read_words(f"{directory}/cgroup.controllers")


def _best_on_the_way_up(unified: Hierarchy, own: str, roof: str) -> str:
    """Returns the nearest group from `own` up to `roof` that delegates memory and most other controllers;
    empty: none."""
    best, most = "", 0
    candidate = own
    while True:
        enabled = read_words(f"{candidate}/cgroup.subtree_control")
        count = sum(controller in enabled for controller in V2_CONTROLLERS)
        if "memory" in enabled and count > most and not _refusal(unified, candidate):
            best, most = candidate, count
        if candidate == roof or _limits_anything(candidate):
            return best
        candidate = os.path.dirname(candidate)


def limit_of(directory: str) -> str:
    """Returns the first limit of this group, other than the one on tasks, that a job outside would
    escape: 'memory.max 104857600'; empty: none."""
    memory = _limit_value(f"{directory}/memory.max")
    if memory.isdigit() and int(memory) < _memory_total():
        return f"memory.max {memory}"
    for file in _LIMIT_FILES:
        text = " ".join((read_text(f"{directory}/{file}") or "").split())
        if text and not text.startswith("max"):
            return f"{file} {text}"
    return ""


def _limits_anything(directory: str) -> bool:
    """Returns whether a job above this group would escape a limit."""
    return bool(limit_of(directory)) or _limit_value(f"{directory}/pids.max") not in ("max", "")


def _limit_value(path: str) -> str:
    """Returns the first word of a limit file; empty: no file."""
    values = (read_text(path) or "").split()
    return values[0] if values else ""


def _memory_total() -> int:
    """A limit above this limits nothing."""
    values = (read_text("/proc/meminfo") or "MemTotal: 0 kB").split()
    return int(values[1]) * 1024


def _v1_bases(
    layout: CgroupLayout, parent: str | None, keys: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    bases, gaps = {}, {}
    for key in keys:
        hierarchy = layout.hierarchies.get(key)
        base = _base(hierarchy, parent) if hierarchy else None
        reason = _refusal(hierarchy, base) if hierarchy else f"no {key} hierarchy is mounted"
        if reason or base is None:
            gaps[key] = reason
        else:
            bases[key] = base
    return bases, gaps


def _base(hierarchy: Hierarchy, parent: str | None) -> str | None:
    if parent is None:
        return hierarchy.directory
    return f"{hierarchy.mount_point.rstrip('/')}/{parent.strip('/')}".rstrip("/")


def _refusal(hierarchy: Hierarchy, base: str | None) -> str:
    """Returns why no job group can be made and joined there; empty: nothing prevents it."""
    if base is None:
        return f"{hierarchy.mount_point} does not show the group {hierarchy.own_path} of this process"
    if not hierarchy.is_writable:
        return f"{hierarchy.mount_point} is mounted read-only"
    if not os.path.isdir(base):
        return f"there is no group {base}"
    if not os.access(base, os.W_OK | os.X_OK):
        return f"{base} may not be written by uid {os.geteuid()}"
    # To move a process, the kernel requires write permission on the common ancestor of both groups.
    shared = os.path.commonpath([base, hierarchy.directory]) if hierarchy.directory else base
    if hierarchy.version == 2 and not os.access(f"{shared}/cgroup.procs", os.W_OK):
        return f"uid {os.geteuid()} may not move processes below {shared}"
    kind = (read_text(f"{base}/cgroup.type") or "domain").strip() if hierarchy.version == 2 else "domain"
    if kind != "domain":  # a threaded group cannot contain a group with a job
        return f"{base} is a {kind} group"
    return ""
