"""What `joblens attach` can look at: a process, a control group, a container. Found, never touched."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from joblens.model.errors import InputError
from joblens.probes.cgroup.layout import UNIFIED, CgroupLayout, read_layout
from joblens.probes.containers.info import ContainerInfo
from joblens.probes.proc.kernel_files import read_text
from joblens.probes.proc.proc_files import process_start_ticks

if TYPE_CHECKING:
    from joblens.probes.containers.api import ContainerApi

_COUNTED = ("cpu", "cpuacct", "memory", "pids")
_HINT = "a process id, a control group (/sys/fs/cgroup/… or its path below that), or a container's name or id"


class Target(Struct, frozen=True, kw_only=True):
    """`told`: what it is, for the record. `pid`: its first process; its end is the end of all of it."""

    told: str
    name: str
    argv: tuple[str, ...]
    cwd: str = ""
    pid: int | None = None
    start_ticks: int | None = None
    kind: str = ""  # of its groups
    groups: dict[str, str] = {}  # hierarchy -> directory; empty: it is a process tree
    container: ContainerInfo | None = None
    engine: str = ""
    ask_container: Callable[[], ContainerInfo] | None = None  # how it ended; may raise JoblensError


def find_target(text: str, engine: str = "", socket: str = "") -> Target:
    """Raises InputError, or what the container engine has to say."""
    kind, separator, rest = text.partition(":")
    if separator and kind in ("pid", "cgroup", "container"):
        text = rest
    else:
        kind = ""
    if not text:
        raise InputError("attach: nothing was named", hint=_HINT)
    if kind == "pid" or (not kind and text.isascii() and text.isdigit()):
        return _process(text)
    if kind == "cgroup" or (not kind and "/" in text):
        return _group(text)
    return _container(text, engine, socket)


def _process(text: str) -> Target:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 1 << 22:
        raise InputError(f"{text} is not a process id", hint=_HINT)
    pid = int(text)
    if pid == os.getpid():
        raise InputError(
            "joblens cannot look at itself from here", hint="joblens run -- COMMAND measures one"
        )
    ticks = process_start_ticks(pid)
    status = read_text(f"/proc/{pid}/status")
    if ticks is None or status is None or "\nState:\tZ" in status:
        raise InputError(
            f"there is no process {pid}, or it has ended",
            hint=f"container:{text} is a container of that name",
        )
    if f"\nTgid:\t{pid}\n" not in status:
        raise InputError(f"{pid} is a thread, not a process", hint="give the id of its process")
    argv = _argv_of(pid)
    if not argv:
        raise InputError(f"process {pid} belongs to the kernel and has nothing to measure")
    return Target(
        told=f"process {pid}",
        name=os.path.basename(argv[0]) or argv[0],
        argv=argv,
        cwd=_link(f"/proc/{pid}/cwd"),
        pid=pid,
        start_ticks=ticks,
    )


def _argv_of(pid: int) -> tuple[str, ...]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").split(b"\0")
    except OSError:
        return ()
    return tuple(map(os.fsdecode, words)) if words != [b""] else ()


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _group(text: str) -> Target:
    layout = read_layout()
    path = _path_below_mount(text, layout)
    if path == "/":
        raise InputError(f"{text} is the whole machine", hint="name a group below it")
    groups = {
        key: directory
        for key, hierarchy in layout.hierarchies.items()
        if (key == UNIFIED or key in _COUNTED)
        and os.path.isdir(directory := os.path.join(hierarchy.mount_point, path.lstrip("/")))
    }
    if UNIFIED in groups:
        groups.pop("cpuacct", None)  # the unified one counts the same, finer
    if not groups:
        raise InputError(f"there is no control group {text}", hint=_HINT)
    return Target(
        told=f"control group {path}",
        name=os.path.basename(path),
        argv=(path,),
        kind=layout.kind,
        groups=groups,
    )


def _path_below_mount(text: str, layout: CgroupLayout) -> str:
    whole = os.path.normpath(text)
    mounts = {hierarchy.mount_point for hierarchy in layout.hierarchies.values()}
    for mount in sorted(mounts, key=len, reverse=True):  # one mount may lie inside another
        if whole == mount or whole.startswith(mount + "/"):
            return whole[len(mount) :] or "/"
    return os.path.normpath("/" + text.lstrip("/"))


def _container(name: str, engine: str, socket: str) -> Target:
    api, info = _inspect(name, engine, socket)
    if info.pid is None:
        raise InputError(f"the container {name} does not run: it is {info.status or 'not started'}")
    if not info.groups:
        raise InputError(
            f"the control group of the container {name} cannot be seen from here",
            hint="its engine runs on another machine, or joblens is in a container itself",
        )
    return Target(
        told=f"container {info.name or info.id[:12]}",
        name=info.name or info.id[:12],
        argv=_container_argv(info),
        pid=info.pid,
        start_ticks=process_start_ticks(info.pid),
        kind=info.layout,
        groups=info.groups,
        container=info,
        engine=api.engine,
        ask_container=lambda: api.inspect(info.id),
    )


def _inspect(name: str, engine: str, socket: str) -> "tuple[ContainerApi, ContainerInfo]":
    """From the first engine that knows it."""
    from joblens.model.errors import ContainerError
    from joblens.probes.containers.api import connect

    silent: list[str] = []
    answers: list[str] = []
    for one in (engine,) if engine or socket else ("docker", "podman"):
        try:
            api = connect(one, socket)
            return api, api.inspect(name)
        except ContainerError as error:
            (answers if error.status else silent).append(str(error))
    group = f"cgroup:{name} is the control group of that name; " if _has_group(name) else ""
    raise InputError(f"no container {name} was found: {'; '.join(answers or silent)}", hint=group + _HINT)


def _has_group(name: str) -> bool:
    layout = read_layout()
    return any(
        os.path.isdir(os.path.join(hierarchy.mount_point, name)) for hierarchy in layout.hierarchies.values()
    )


def _container_argv(info: ContainerInfo) -> tuple[str, ...]:
    words = [info.raw.get("Path", ""), *(info.raw.get("Args") or ())]
    return tuple(str(word) for word in words if word) or (info.image,)
