"""Control groups for a job in a container. Engines make a container's groups below one path that they use in
every hierarchy, so the job's groups have to be at the same path everywhere; they are made in all hierarchies,
those that count nothing too, as an engine would leave its own folders behind there."""

import os

from joblens.agent.cgroups.groups import GroupFactory, JobGroups
from joblens.agent.cgroups.placement import GroupPlaces, find_places
from joblens.model.errors import AccountingUnavailable
from joblens.probes.cgroup.layout import UNIFIED, CgroupLayout, read_layout


def make_container_groups(name: str, parent: str | None = None) -> JobGroups | None:
    """`parent`: a path below each mount. None: no such groups can be made by this user; the container is
    then measured where the engine puts it."""
    layout = read_layout()
    try:
        return _factory(layout, parent).create(name)
    except (OSError, AccountingUnavailable):
        return None


def path_in_every_mount(groups: JobGroups) -> str:
    """As an engine is told it; '' when the groups are not at one path."""
    mounts = sorted(
        {hierarchy.mount_point.rstrip("/") for hierarchy in read_layout().hierarchies.values()},
        key=len,
        reverse=True,
    )
    paths = set()
    for directory in groups.paths.values():
        mount = next((mount for mount in mounts if directory.startswith(f"{mount}/")), None)
        if mount is None:
            return ""
        paths.add(directory.removeprefix(mount))
    return paths.pop() if len(paths) == 1 else ""


def _factory(layout: CgroupLayout, parent: str | None) -> GroupFactory:
    if layout.kind == "cgroup-v2":
        return GroupFactory.detect(parent, layout=layout, may_borrow=False)
    path = _common_path(layout) if parent is None else parent.strip("/")
    places = find_places(layout, path)
    bases = {**places.bases, **places.spare}
    for key, hierarchy in layout.hierarchies.items():
        base = f"{hierarchy.mount_point.rstrip('/')}/{path}".rstrip("/")
        if key not in bases and hierarchy.is_writable and os.access(base, os.W_OK | os.X_OK):
            bases[key] = base
    first = {UNIFIED: bases.pop(UNIFIED)} if UNIFIED in bases else {}
    return GroupFactory(GroupPlaces(kind=places.kind, bases={**first, **bases}, gaps=places.gaps))


def _common_path(layout: CgroupLayout) -> str:
    """This process's own group where that is the same everywhere, so that its limits hold for containers
    too; else the root, which is where engines put their containers."""
    own = {
        (hierarchy.directory or "?").removeprefix(hierarchy.mount_point).strip("/")
        for hierarchy in layout.hierarchies.values()
    }
    return own.pop() if len(own) == 1 and "?" not in own else ""
