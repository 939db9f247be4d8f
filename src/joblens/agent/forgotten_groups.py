"""Control groups that nobody looks after any more: their joblens was killed before it took them away."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable

from joblens.agent.group_places import (
    GroupName,
    is_job_group,
    parse_group_name,
    shared_parent,
    spool_mark,
)
from joblens.agent.groups import JobGroups
from joblens.agent.owners import is_running, pid_namespace
from joblens.agent.slot_marks import has_mark
from joblens.ports.store import Store
from joblens.probes.cgroup_layout import CgroupLayout, read_layout

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
    """Asks the store only about groups of processes that are dead."""

    def is_wanted(name: GroupName, paths: Iterable[str]) -> bool:
        if name.is_slot and has_mark(spool_dir, name.uuid):
            return True  # sweep_slots takes it away
        running = store.running()
        groups = {path for one in running if one.attempt for path in one.attempt.groups.values()}
        return not groups.isdisjoint(paths) or any(one.job.uuid == name.uuid for one in running)

    layout = read_layout()
    ForgottenGroups(spool_dir, is_wanted).remove(shared_parents(layout, cgroup_parent), layout)


class ForgottenGroups:
    """Removes groups that no process is in, in no hierarchy. Those that a process of this store made go once
    it is dead and no unfinished job needs them; so do groups of a slot whose spool directory is gone. Others
    stay for `older_than_s`: they may be of jobs that another store has yet to bring to their end."""

    def __init__(
        self,
        spool_dir: str,
        is_wanted: Callable[[GroupName, Iterable[str]], bool],
        older_than_s: float = _FORGOTTEN_S,
    ) -> None:
        """`is_wanted`: whether this store needs groups of that name, which have these paths."""
        self._spool_dir = spool_dir
        self._is_wanted = is_wanted
        self._older_than_s = older_than_s

    def remove(self, parents: Iterable[str], layout: CgroupLayout) -> None:
        mounts = {hierarchy.mount_point for hierarchy in layout.hierarchies.values()}
        for name, paths in _by_name(parents).items():
            parsed = parse_group_name(name)
            if parsed is None or not all(is_job_group(path, mounts) for path in paths.values()):
                continue
            groups = JobGroups(layout.kind, paths)
            if self._is_nobodys(parsed, groups) and groups.is_empty():
                groups.remove()

    def _is_nobodys(self, name: GroupName, groups: JobGroups) -> bool:
        paths = groups.paths.values()
        if is_owner_dead(name) and (self._is_ours(name) or (name.is_slot and self._is_spool_gone(name))):
            return not self._is_wanted(name, paths)
        # A slot that an earlier version made: its mark says whose it is.
        is_old = not name.is_slot and all(_age_s(path) > self._older_than_s for path in paths)
        return is_old and not self._is_wanted(name, paths)

    def _is_ours(self, name: GroupName) -> bool:
        return name.spool == spool_mark(self._spool_dir)

    def _is_spool_gone(self, name: GroupName) -> bool:
        """Of another store; known only of those whose spool directories lie beside this one."""
        root = os.path.dirname(self._spool_dir)
        if name.spool.partition("_")[0] != spool_mark(self._spool_dir).partition("_")[0]:
            return False
        try:
            names = os.listdir(root)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return name.spool not in {spool_mark(os.path.join(root, one)) for one in names}


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
    return {
        name: {parent: path for parent, path in paths.items() if os.path.isdir(path)}
        for name, paths in found.items()
        if parse_group_name(name) is not None
    }


def _age_s(path: str) -> float:
    """0 when it is gone."""
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return 0.0
