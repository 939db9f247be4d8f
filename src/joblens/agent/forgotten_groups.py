"""Groups of jobs that no store knows any more: their joblens was killed, and its store is gone."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable

from joblens.agent.group_places import is_job_group, shared_parent
from joblens.agent.groups import JobGroups
from joblens.model.ids import is_uuid
from joblens.probes.cgroup_layout import CgroupLayout

# Other stores may have jobs here, too. One that was killed has that long to be followed by a joblens that
# reads there what its jobs used.
_FORGOTTEN_S = 7 * 86_400
_UUID_LENGTH = 36


def shared_parents(layout: CgroupLayout) -> list[str]:
    """Where job groups of this user may lie, from this process's own groups upwards."""
    found = {}
    for hierarchy in layout.hierarchies.values():
        mount = hierarchy.mount_point.rstrip("/")
        directory = (hierarchy.directory or mount).rstrip("/")
        while directory == mount or directory.startswith(f"{mount}/"):
            found[shared_parent(directory)] = True
            directory = os.path.dirname(directory)
    return [parent for parent in found if os.path.isdir(parent)]


def remove_forgotten(
    parents: Iterable[str],
    layout: CgroupLayout,
    is_unfinished: Callable[[str], bool],
    older_than_s: float = _FORGOTTEN_S,
) -> None:
    """Those that nobody is in, in no hierarchy. A slot's groups stay: its mark says whose they are, and it
    may be waiting for its next job."""
    by_name: dict[str, dict[str, str]] = {}
    for parent in parents:
        with contextlib.suppress(OSError):  # it has just been taken away
            for name in os.listdir(parent):
                if is_uuid(name[:_UUID_LENGTH]):
                    by_name.setdefault(name, {})[parent] = os.path.join(parent, name)
    mounts = {hierarchy.mount_point for hierarchy in layout.hierarchies.values()}
    for name, paths in by_name.items():
        groups = JobGroups(layout.kind, paths)
        if (
            all(_age_s(path) > older_than_s and is_job_group(path, mounts) for path in paths.values())
            and groups.is_empty()
            and not is_unfinished(name[:_UUID_LENGTH])
        ):
            groups.remove()


def _age_s(path: str) -> float:
    """0 when it is gone."""
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return 0.0
