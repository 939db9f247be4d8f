"""Where job groups can be made on this machine, found without moving any process.

Job groups go below the process's own group in each hierarchy, so that whatever limits joblens itself
is under hold for its jobs too. On v2 the kernel lets no group below one with processes have controllers,
and joblens' own group holds at least joblens: where an ancestor hands controllers down and no limit is
left behind on the way up, job groups go there instead. Inside a Slurm job that way ends at the step: what
lies above is Slurm's, which ends and counts its jobs by their groups."""

import errno
import os
import re
import zlib
from collections.abc import Collection, Sequence

from msgspec import Struct

from joblens.model.errors import AccountingUnavailable
from joblens.model.ids import is_uuid
from joblens.model.job import Owner
from joblens.probes.cgroup_layout import UNIFIED, CgroupLayout, Hierarchy
from joblens.probes.kernel_files import read_text, read_words

V2_CONTROLLERS = ("memory", "pids", "cpu", "io")
# …/slurmstepd.scope/job_42/step_batch/user/task_0 on v2, …/uid_1000/job_42/step_0/task_1 on v1.
_SLURM_STEP = re.compile(r"/job_(\d+)/step_([^/]+)(?:/user)?(?=/|$)")
_LIMIT_FILES = (
    "memory.high",
    "memory.swap.max",
    "cpu.max",
    "io.max",
    "cpuset.cpus",
    "cpuset.mems",
)
_GROUP_NAME = re.compile(
    r"(?P<slot>slot-)?(?P<uuid>[0-9a-f-]{36})"
    r"(?:\.(?P<pid>\d+)-(?P<ticks>\d+)-(?P<namespace>\d+)-(?P<spool>[0-9a-f]{8}_[0-9a-f]{8}))?(?:-\d+)?"
)
_SCOPE_HINT = (
    "start joblens in a scope of its own (systemd-run --user --scope -p Delegate=yes joblens …), name a "
    "delegated group with the setting limits.cgroup_parent, or use --accounting process_tree"
)


class GroupPlaces(Struct, frozen=True, kw_only=True):
    """`bases`: hierarchy -> directory to make groups in, for every job. `spare`: the same for hierarchies
    that a job joins only when a limit needs them, as joining each one waits for the whole kernel.
    `gaps`: controller -> why job groups here do without it."""

    kind: str
    bases: dict[str, str]
    spare: dict[str, str] = {}
    gaps: dict[str, str] = {}


def find_places(layout: CgroupLayout, parent: str | None = None) -> GroupPlaces:
    """Raises AccountingUnavailable with the reason when not even CPU time could be counted by group."""
    if layout.kind == "none":
        raise AccountingUnavailable(
            "no cgroup hierarchy is mounted here", hint="mount one (cgroup2) or use --accounting process_tree"
        )
    unified = layout.unified
    refusal = ""
    if unified is not None:
        base = _base(unified, parent)
        if parent is None and base is not None and layout.kind == "cgroup-v2":
            base = _best_on_the_way_up(unified, base)
        refusal = _refusal(unified, base)
        if not refusal:
            return _places_with_unified(layout, parent, base or "")
    cpuacct = layout.hierarchies.get("cpuacct")
    v1_refusal = _refusal(cpuacct, _base(cpuacct, parent)) if cpuacct else "no cpuacct hierarchy is mounted"
    if v1_refusal:
        raise AccountingUnavailable(
            f"no cgroup can be made for jobs: {refusal or v1_refusal}", hint=_SCOPE_HINT
        )
    bases, gaps = _v1_bases(layout, parent, ("cpuacct", "memory", "pids"))
    spare, _ = _v1_bases(layout, parent, ("cpu",))
    if spare.get("cpu") == bases["cpuacct"]:  # mounted together: joining one is joining both
        bases.update(spare)
        spare = {}
    return GroupPlaces(kind="cgroup-v1", bases=bases, spare=spare, gaps=gaps)


def shared_parent(base: str) -> str:
    """Of all job groups of this user there."""
    return f"{base}/joblens-{os.geteuid()}"


def is_job_group(path: str, mounts: Collection[str]) -> bool:
    """Whether joblens can have made it for a job or a slot of this user: below a cgroup mount, reached
    through no link, and named as joblens names groups."""
    parent, name = os.path.split(path)
    is_mounted = any(parent.startswith(mount.rstrip("/") + "/") for mount in mounts)
    is_ours = parent == shared_parent(os.path.dirname(parent))
    is_named_so = parse_group_name(name) is not None
    return is_mounted and is_ours and is_named_so and os.path.realpath(path) == path


class GroupName(Struct, frozen=True):
    """Parsed name of a job group."""

    uuid: str  # of its job, or its own
    is_slot: bool
    pid: int | None = None  # of the process that made it; None: an earlier version did
    start_ticks: int = 0
    pid_namespace: int = 0
    spool: str = ""  # mark of that process's spool directory


def owner_mark(owner: Owner, spool_dir: str) -> str:
    """Ends the names of groups that this process creates: the owner can be read from it."""
    return f".{owner.pid}-{owner.start_ticks}-{owner.pid_namespace}-{spool_mark(spool_dir)}"


def spool_mark(spool_dir: str) -> str:
    root, name = os.path.split(spool_dir)
    return f"{zlib.crc32(os.fsencode(root)):08x}_{zlib.crc32(os.fsencode(name)):08x}"


def parse_group_name(name: str) -> GroupName | None:
    found = _GROUP_NAME.fullmatch(name)
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
    """The group that Slurm gave the processes of a step, if this is it or lies in it; else empty."""
    found = _SLURM_STEP.search(directory)
    return directory[: found.end()] if found else ""


def enable_controllers(directory: str) -> dict[str, str]:
    """Hand the v2 controllers on to the groups below; controller -> why not, for those that stay away."""
    offered = read_words(f"{directory}/cgroup.controllers")
    enabled = read_words(f"{directory}/cgroup.subtree_control")
    gaps = {}
    for controller in V2_CONTROLLERS:
        if controller in enabled:
            continue
        if controller not in offered:
            gaps[controller] = f"the {controller} controller is not handed down to {directory}"
            continue
        try:
            with open(f"{directory}/cgroup.subtree_control", "wb", buffering=0) as file:
                file.write(f"+{controller}".encode())
        except OSError as error:
            gaps[controller] = _why_not_enabled(controller, directory, error)
    return gaps


def _places_with_unified(layout: CgroupLayout, parent: str | None, base: str) -> GroupPlaces:
    v1_keys = [key for key in ("memory", "pids") if key in layout.hierarchies]
    bases, gaps = _v1_bases(layout, parent, v1_keys)
    spare, _ = _v1_bases(layout, parent, ["cpu"] if "cpu" in layout.hierarchies else [])
    for controller, reason in enable_controllers(base).items():
        if controller not in layout.hierarchies:
            gaps[controller] = reason
    return GroupPlaces(kind=layout.kind, bases={UNIFIED: base, **bases}, spare=spare, gaps=gaps)


def _best_on_the_way_up(unified: Hierarchy, own: str) -> str:
    """The group that hands most controllers down, the nearest of those; `own` when none is better."""
    best, most = own, _handed_down(own)
    candidate, roof = own, slurm_step(own) or unified.mount_point
    while candidate != roof and not _limits_anything(candidate):
        candidate = os.path.dirname(candidate)
        count = _handed_down(candidate)
        if count > most and not _refusal(unified, candidate):
            best, most = candidate, count
    return best


def _handed_down(directory: str) -> int:
    """How many of the controllers joblens uses a group below would have, as things stand."""
    enabled = read_words(f"{directory}/cgroup.subtree_control")
    return sum(controller in enabled for controller in V2_CONTROLLERS)


def limit_of(directory: str) -> str:
    """The first limit of this group, other than the one on tasks, that a job outside of it would escape:
    'memory.max 104857600'; empty: it has none."""
    memory = _first_word(f"{directory}/memory.max")
    if memory.isdigit() and int(memory) < _memory_total():
        return f"memory.max {memory}"
    for file in _LIMIT_FILES:
        text = " ".join((read_text(f"{directory}/{file}") or "").split())
        if text and not text.startswith("max"):
            return f"{file} {text}"
    return ""


def _limits_anything(directory: str) -> bool:
    """Whether a job placed above this group would get away from a limit that holds here."""
    return bool(limit_of(directory)) or _first_word(f"{directory}/pids.max") not in ("max", "")


def _first_word(path: str) -> str:
    """What a limit file says; empty where there is none."""
    words = (read_text(path) or "").split()
    return words[0] if words else ""


def _memory_total() -> int:
    """A limit of more than there is limits nothing."""
    words = (read_text("/proc/meminfo") or "MemTotal: 0 kB").split()
    return int(words[1]) * 1024


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
    """Why no group of ours can be made and joined there; empty when nothing speaks against it."""
    if base is None:
        return f"{hierarchy.mount_point} does not show the group {hierarchy.own_path} of this process"
    if not hierarchy.is_writable:
        return f"{hierarchy.mount_point} is mounted read-only"
    if not os.path.isdir(base):
        return f"there is no group {base}"
    if not os.access(base, os.W_OK | os.X_OK):
        return f"{base} may not be written by uid {os.geteuid()}"
    # To move a process the kernel wants write permission on the group both places have in common.
    shared = os.path.commonpath([base, hierarchy.directory]) if hierarchy.directory else base
    if hierarchy.version == 2 and not os.access(f"{shared}/cgroup.procs", os.W_OK):
        return f"uid {os.geteuid()} may not move processes below {shared}"
    kind = (read_text(f"{base}/cgroup.type") or "domain").strip() if hierarchy.version == 2 else "domain"
    if kind not in ("domain", "domain threaded"):
        return f"{base} is a {kind} group"
    return ""


def _why_not_enabled(controller: str, directory: str, error: OSError) -> str:
    if error.errno == errno.EBUSY:
        return f"{directory} holds processes, so the kernel lets no group below it have {controller}"
    return f"the {controller} controller cannot be enabled in {directory}: {error.strerror}"
