"""Which container engines jobs can run on here, asked for real, and whether their containers can be put below
groups of ours, whose totals outlive the container."""

import os
import shutil
import threading
import time

from msgspec import Struct

from joblens.agent.containers.groups import make_container_groups, path_in_every_mount
from joblens.model.errors import ContainerError
from joblens.model.jobs.capability import Capability
from joblens.probes.containers.api import ContainerApi, connect, has_socket

AREA = "containers"
_PATIENCE_S = 3.0
_ANSWER_S = 1.0
_PROGRAMS = {"docker": ("docker", "dockerd"), "podman": ("podman",)}
_START = {
    "docker": "start it (systemctl start docker), or let this user into the group docker",
    "podman": "start its service (systemctl --user start podman.socket, as root without --user)",
}
_OWN = "totals from the job's own groups above it"
_NOT_OWN = (
    "a container is measured in the engine's own groups, which end with it: its last moments are missed"
)
_SYSTEMD = "it has systemd make its groups, which takes no place of ours"
_NO_GROUPS = "joblens cannot make groups at one path of every hierarchy here"
_USE_CGROUPFS = {
    "docker": 'set "exec-opts": ["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json',
    "podman": 'set cgroup_manager = "cgroupfs" in containers.conf',
}


class _Answer(Struct, frozen=True):
    api: ContainerApi
    driver: str  # who makes its groups: cgroupfs, systemd


def container_capabilities(
    parent: str | None = None, group_advice: str = "", patience_s: float = _PATIENCE_S
) -> list[Capability]:
    """One row per engine. One that takes a connection and does not answer costs `patience_s`."""
    found: dict[str, _Answer | ContainerError] = {}
    threads = [
        threading.Thread(target=_ask, args=(engine, found), name=f"joblens-{engine}", daemon=True)
        for engine in _PROGRAMS
    ]
    for thread in threads:
        thread.start()
    can_be_below = _can_be_below(parent)
    deadline = time.monotonic() + patience_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    silent = ContainerError(f"it has not answered for {patience_s:g} s")
    return [
        _row(engine, found.get(engine, silent), group_advice, can_be_below=can_be_below)
        for engine in _PROGRAMS
    ]


def _ask(engine: str, found: dict[str, _Answer | ContainerError]) -> None:
    try:
        api = connect(engine, timeout_s=_ANSWER_S)
        found[engine] = _Answer(api, api.cgroup_driver(timeout_s=_ANSWER_S))
    except ContainerError as error:
        found[engine] = error


def _can_be_below(parent: str | None) -> bool:
    """Whether groups can be made as a job in a container gets them."""
    groups = make_container_groups(f"doctor-{os.getpid()}-container", parent)
    if groups is None:
        return False
    try:
        return bool(path_in_every_mount(groups))
    finally:
        groups.remove()


def _row(
    engine: str, answer: _Answer | ContainerError, group_advice: str, *, can_be_below: bool
) -> Capability:
    if isinstance(answer, ContainerError):
        return _no_answer(engine, answer)
    api, driver = answer.api, answer.driver
    who = f"{api.version} at {api.socket}, {driver or 'unknown'} cgroup driver"
    if driver != "systemd" and can_be_below:
        return Capability(area=AREA, name=engine, available=True, mechanism=f"{who}; {_OWN}")
    why, fix = (_SYSTEMD, _USE_CGROUPFS[engine]) if driver == "systemd" else (_NO_GROUPS, group_advice)
    return Capability(
        area=AREA, name=engine, available=True, mechanism=who, reason=f"{why}; {_NOT_OWN}", fix=fix
    )


def _no_answer(engine: str, error: ContainerError) -> Capability:
    if not _is_installed(engine):
        return Capability(
            area=AREA, name=engine, available=False, applies=False, reason=f"{engine} is not installed here"
        )
    return Capability(area=AREA, name=engine, available=False, reason=str(error), fix=_START[engine])


def _is_installed(engine: str) -> bool:
    return any(map(shutil.which, _PROGRAMS[engine])) or has_socket(engine)
