"""Stale control groups that killed joblens processes left, removed."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.cgroups.placement import (
    GroupName,
    is_job_group,
    parse_group_name,
    shared_parent,
    spool_mark,
)
from joblens.agent.runtime.ownership import pid_namespace
from joblens.files.processes import is_running
from joblens.model.jobs.job import Record
from joblens.ports.store import Store
from joblens.probes.cgroup.layout import CgroupLayout, read_layout

# Other stores may have jobs here, too. One that was killed has that long to be followed by a joblens that
# reads there what its jobs used.
_FORGOTTEN_S = 7 * 86_400


def shared_parents(layout: CgroupLayout, parent: str | None = None) -> list[str]:
    """Where job groups of this user may lie, from this process's own groups upwards. `parent`: a path below
    each mount where they are made instead (limits.cgroup_parent)."""
    found = {}
    for hierarchy in layout.hierarchies.values():
        mount = hierarchy.mount_point.rstrip("/")
        directory = (hierarchy.directory or mount).rstrip("/")
        while directory == mount or directory.startswith(f"{mount}/"):
            found[shared_parent(directory)] = True
            directory = os.path.dirname(directory)
        if parent is not None:
            found[shared_parent(f"{mount}/{parent.strip('/')}".rstrip("/"))] = True
    return [parent for parent in found if os.path.isdir(parent)]


def sweep_groups(spool_dir: str, store: Store, cgroup_parent: str | None = None) -> None:
    """Asks the store only about groups of processes that are dead, and about old ones."""
    layout = read_layout()
    forgotten = ForgottenGroups(spool_dir, _Needed(spool_dir, store))
    forgotten.remove(shared_parents(layout, cgroup_parent), layout)


def sweep_own_groups(spool_dir: str, store: Store, parents: Iterable[str]) -> None:
    """The same for groups whose names say that processes of this store made them, in `parents` alone. Costs a
    listing of each when there are none."""
    ForgottenGroups(spool_dir, _Needed(spool_dir, store), older_than_s=None).remove(parents)


class _Needed:
    """Whether this store needs groups of that name, which have these paths. Asks it once."""

    def __init__(self, spool_dir: str, store: Store) -> None:
        self._spool_dir = spool_dir
        self._store = store
        self._running: list[Record] | None = None

    def __call__(self, name: GroupName, paths: Iterable[str]) -> bool:
        from joblens.agent.slots.marks import has_mark  # most processes find nothing

        if name.is_slot and has_mark(self._spool_dir, name.uuid):
            return True  # sweep_slots takes it away
        if self._running is None:
            self._running = self._store.running()
        groups = {path for one in self._running if one.attempt for path in one.attempt.groups.values()}
        return not groups.isdisjoint(paths) or any(one.job.uuid == name.uuid for one in self._running)


class ForgottenGroups:
    """Removes groups that no process is in, in no hierarchy. Those that a process of this store made go once
    it is dead and no unfinished job needs them; so do groups of a slot whose spool directory is gone. Others
    stay for `older_than_s`: they may be of jobs that another store has yet to bring to their end."""

    def __init__(
        self,
        spool_dir: str,
        is_wanted: Callable[[GroupName, Iterable[str]], bool],
        older_than_s: float | None = _FORGOTTEN_S,
    ) -> None:
        """`is_wanted`: whether this store needs groups of that name, which have these paths. `older_than_s`
        None: others stay, however old they are."""
        self._spool_dir = spool_dir
        self._is_wanted = is_wanted
        self._older_than_s = older_than_s
        self._own_mark = spool_mark(spool_dir)
        self._spools: set[str] | None = None  # marks of the directories beside this one

    def remove(self, parents: Iterable[str], layout: CgroupLayout | None = None) -> None:
        """Judges groups by their names first: a machine may have thousands of other stores."""
        found = [
            (parsed, paths)
            for name, paths in _by_name(parents).items()
            if (parsed := parse_group_name(name)) is not None and self._may_go(parsed, paths.values())
        ]
        if not found:
            return
        layout = layout or read_layout()
        mounts = {hierarchy.mount_point for hierarchy in layout.hierarchies.values()}
        for parsed, paths in found:
            if self._is_wanted(parsed, paths.values()):
                continue
            if all(is_job_group(path, mounts) for path in paths.values()):
                groups = JobGroups(layout.kind, paths)
                if groups.is_empty():
                    groups.remove()

    def _may_go(self, name: GroupName, paths: Iterable[str]) -> bool:
        is_made_here = name.spool == self._own_mark or (name.is_slot and self._is_spool_gone(name))
        if is_made_here and is_owner_dead(name):
            return True
        # A slot that an earlier version made stays: its mark says whose it is.
        older_than_s = self._older_than_s
        return (
            older_than_s is not None
            and not name.is_slot
            and all(_age_s(path) > older_than_s for path in paths)
        )

    def _is_spool_gone(self, name: GroupName) -> bool:
        """Of another store; known only of those whose spool directories lie beside this one."""
        if name.spool.partition("_")[0] != self._own_mark.partition("_")[0]:
            return False
        if self._spools is None:
            root = os.path.dirname(self._spool_dir)
            try:
                names = os.listdir(root)
            except FileNotFoundError:
                names = []
            except OSError:
                return False
            self._spools = {spool_mark(os.path.join(root, one)) for one in names}
        return name.spool not in self._spools


def is_owner_dead(name: GroupName) -> bool:
    """False also when it cannot be known: the name does not say, or it was in another pid namespace."""
    if name.pid is None or name.pid_namespace != pid_namespace():
        return False
    return not is_running(name.pid, name.start_ticks)


def _by_name(parents: Iterable[str]) -> dict[str, dict[str, str]]:
    """Paths by their parents, by name."""
    found: dict[str, dict[str, str]] = {}
    for parent in parents:
        with contextlib.suppress(OSError):  # it has just been taken away
            for name in os.listdir(parent):
                found.setdefault(name, {})[parent] = os.path.join(parent, name)
    return found


def _age_s(path: str) -> float:
    """0 when it is gone."""
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return 0.0
