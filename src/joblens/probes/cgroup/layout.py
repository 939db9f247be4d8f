"""Cgroup hierarchies of this machine: where they are mounted, and the groups a process is in."""

import os
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from joblens.model.errors import ProbeError
from joblens.probes.proc.kernel_files import read_text

UNIFIED = "unified"

# Controllers that a job's accounting or limits use; other v1 hierarchies are ignored.
_ACCOUNTING_CONTROLLERS = frozenset({"cpu", "cpuacct", "memory", "pids", "blkio"})


class Hierarchy(Struct, frozen=True, kw_only=True):
    """One cgroup tree as this process sees it."""

    version: int
    # v1: the controllers bound to it; v2: empty, each group lists its own in a file
    controllers: tuple[str, ...]
    mount_point: str
    own_path: str  # as /proc/PID/cgroup has it
    directory: str | None  # of the process's own group; None: no mount shows it
    is_writable: bool  # the mount, not the group


class CgroupLayout(Struct, frozen=True, kw_only=True):
    kind: str  # cgroup-v2, cgroup-hybrid, cgroup-v1, none
    hierarchies: dict[str, Hierarchy] = {}  # 'unified' and each v1 controller; co-mounted ones share a value

    @property
    def unified(self) -> Hierarchy | None:
        return self.hierarchies.get(UNIFIED)

    def directories_upwards(self, key: str) -> Iterator[str]:
        """Yields the directories of the process's group and of the groups above it that a mount shows."""
        hierarchy = self.hierarchies.get(key)
        directory = hierarchy.directory if hierarchy else None
        while hierarchy and directory and directory.startswith(hierarchy.mount_point):
            yield directory
            directory = os.path.dirname(directory)


class _Mount(Struct, frozen=True, kw_only=True):
    root: str
    mount_point: str
    is_writable: bool
    version: int
    controllers: tuple[str, ...]


@lru_cache(4)
def parse_layout(self_cgroup: str, mountinfo: str) -> CgroupLayout:
    """Combines the texts of /proc/PID/cgroup and /proc/PID/mountinfo."""
    mounts = _parse_mounts(mountinfo)
    hierarchies: dict[str, Hierarchy] = {}
    for controllers, own_path in _parse_memberships(self_cgroup):
        version = 1 if controllers else 2
        candidates = [
            mount
            for mount in mounts
            if mount.version == version and set(controllers) <= set(mount.controllers)
        ]
        if not candidates:
            continue
        hierarchy = _hierarchy(version, controllers, own_path, candidates)
        for key in controllers or (UNIFIED,):
            hierarchies[key] = hierarchy
    return CgroupLayout(kind=_kind(hierarchies), hierarchies=hierarchies)


def read_layout(proc: str = "/proc", pid: int | str = "self") -> CgroupLayout:
    """Reads the layout of a process; kind 'none': the kernel has no cgroups."""
    texts = []
    for name in ("cgroup", "mountinfo"):
        path = f"{proc}/{pid}/{name}"
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                texts.append(file.read())
        except FileNotFoundError:
            texts.append("")
        except OSError as error:
            raise ProbeError(f"cannot read {path}: {error.strerror}") from error
    return parse_layout(*texts)


def _kind(hierarchies: dict[str, Hierarchy]) -> str:
    has_v1 = any(key in _ACCOUNTING_CONTROLLERS for key in hierarchies)
    if UNIFIED in hierarchies:
        return "cgroup-hybrid" if has_v1 else "cgroup-v2"
    return "cgroup-v1" if has_v1 else "none"


def _parse_memberships(text: str) -> list[tuple[tuple[str, ...], str]]:
    """'4:memory:/x' -> (('memory',), '/x'); the v2 line has no controllers."""
    memberships = []
    for line in text.splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3:
            # A group that was removed under the process is shown with this suffix.
            path = fields[2].removesuffix(" (deleted)")
            memberships.append((tuple(filter(None, fields[1].split(","))), path))
    return memberships


def _parse_mounts(text: str) -> list[_Mount]:
    by_mount_point: dict[str, _Mount] = {}  # a later mount on the same path hides the earlier one
    for line in text.splitlines():
        head, separator, right = line.partition(" - ")
        fields, tail = head.split(" "), right.split(" ")
        if not separator or len(fields) < 6 or len(tail) < 3:
            continue
        mount_point = _unescape(fields[4])
        by_mount_point.pop(mount_point, None)
        if tail[0] not in ("cgroup", "cgroup2"):
            continue
        is_v1 = tail[0] == "cgroup"
        by_mount_point[mount_point] = _Mount(
            root=_unescape(fields[3]),
            mount_point=mount_point,
            is_writable="rw" in fields[5].split(","),
            version=1 if is_v1 else 2,
            controllers=tuple(tail[2].split(",")) if is_v1 else (),
        )
    return list(by_mount_point.values())


def _hierarchy(version: int, controllers: tuple[str, ...], own_path: str, mounts: list[_Mount]) -> Hierarchy:
    """Prefers a mount that shows the process's group, then one that is writable."""
    placed = [(mount, _directory(mount, own_path)) for mount in mounts]
    mount, directory = max(placed, key=lambda pair: (pair[1] is not None, pair[0].is_writable))
    return Hierarchy(
        version=version,
        controllers=controllers,
        mount_point=mount.mount_point,
        own_path=own_path,
        directory=directory,
        is_writable=mount.is_writable,
    )


def _directory(mount: _Mount, own_path: str) -> str | None:
    """Returns the directory of a group; None: the mount does not show it.

    A bind mount or a cgroup namespace shows only groups below the mount's root. Paths above the root of the
    namespace begin with '/..' and can be resolved only if both sides share that prefix.
    """
    root, own = _components(mount.root), _components(own_path)
    below = own[len(root) :]
    if own[: len(root)] != root or ".." in below:
        return None
    return "/".join([mount.mount_point.rstrip("/"), *below]) or "/"


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _unescape(text: str) -> str:
    """Decodes blanks, tabs, newlines and backslashes, which mountinfo writes as three octal digits."""
    if "\\" not in text:
        return text
    first, *rest = text.split("\\")
    return first + "".join(chr(int(part[:3], 8)) + part[3:] for part in rest)


_COUNTED = ("cpu", "cpuacct", "memory", "pids")


def groups_of_process(pid: int) -> tuple[str, dict[str, str]]:
    """Returns (kind of layout, hierarchy -> directory), as seen by this process.

    Empty for a process that has ended or is in another pid namespace. Only hierarchies that a cgroup probe
    reads are included.
    """
    membership, mounts = read_text(f"/proc/{pid}/cgroup"), read_text("/proc/self/mountinfo")
    if membership is None or mounts is None:
        return "", {}
    layout = parse_layout(membership, mounts)
    directories = {
        key: hierarchy.directory
        for key, hierarchy in layout.hierarchies.items()
        if hierarchy.directory is not None and (key == UNIFIED or key in _COUNTED)
    }
    if UNIFIED in directories:
        directories.pop("cpuacct", None)  # the unified one counts the same, finer
    return layout.kind, directories
