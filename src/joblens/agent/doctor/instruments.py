"""Instrument checks of doctor: GPUs, energy, counters, network, threads, memory in depth and container
engines, each tried for real.
"""

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from joblens.agent.containers.job import make_container_groups, path_in_every_mount
from joblens.model.capabilities import Capability
from joblens.model.errors import ContainerError, ProbeError
from joblens.model.jobs.details import GpuFacts
from joblens.probes.containers.api import ContainerApi, connect, has_socket
from joblens.probes.gpu.devices import ask_gpus
from joblens.probes.host.energy import PACKAGE_FIELD, EnergyCounters
from joblens.probes.host.perf_counters import could_count
from joblens.probes.network.cgroup_network import MAY_NOT, NO_GROUP, NO_V2, CgroupNetworkProbe, v2_group
from joblens.probes.network.endpoints import group_ids
from joblens.probes.network.socket_dump import SocketDump


def instrument_capabilities(proc: str = "/proc") -> list[Capability]:
    """Tries them on this process."""
    own = f"{proc}/{os.getpid()}"
    return [
        _row(
            "thread table",
            f"{own}/task/{os.getpid()}/stat",
            mechanism="/proc/PID/task: CPU and waiting of each thread (probe threads)",
            fix="mount /proc, and let this user see its processes there (hidepid=0)",
        ),
        _row(
            "memory in depth",
            f"{own}/smaps_rollup",
            mechanism="/proc/PID/smaps_rollup: fair shares, huge pages (probe memory: --probes +memory)",
            fix="Linux 4.14 or later, with CONFIG_PROC_PAGE_MONITOR",
        ),
    ]


def _row(name: str, path: str, *, mechanism: str, fix: str) -> Capability:
    try:
        with open(path, "rb") as file:
            file.read()
    except OSError as error:
        reason = f"{path} cannot be read: {error.strerror}"
        return Capability(area="numbers", name=name, available=False, reason=reason, fix=fix)
    return Capability(area="numbers", name=name, available=True, mechanism=mechanism)


_LEVEL = "kernel.perf_event_paranoid"
_OPEN_TO_ALL = (
    "chmod a+r /sys/class/powercap/*/energy_uj, after every boot "
    "(all users can then infer what others compute)"
)


def energy_capabilities() -> list[Capability]:
    return [_energy(), *_counters()]


def _energy() -> Capability:
    counters = EnergyCounters()
    reason = counters.unknown.get(PACKAGE_FIELD, "")
    labels = ", ".join(counters.labels)
    counters.close()
    is_locked = "root only" in reason
    return Capability(
        area="numbers",
        name="energy",
        available=not reason,
        applies=not reason or is_locked,
        mechanism=f"powercap: {labels}" if not reason else "",
        reason=reason,
        fix=_OPEN_TO_ALL if is_locked else "",
    )


def _counters() -> list[Capability]:
    refusals = could_count(os.getpid())
    return [
        _counter("processor counters", refusals["instructions"], "perf_event_open instructions, cpu-cycles"),
        _counter("cpu migrations", refusals["cpu_migrations"], "perf_event_open cpu-migrations"),
    ]


def _counter(name: str, reason: str, mechanism: str) -> Capability:
    may_not = _LEVEL in reason
    return Capability(
        area="numbers",
        name=name,
        available=not reason,
        applies=not reason or may_not,
        mechanism="" if reason else mechanism,
        reason=reason,
        fix=f"sysctl {_LEVEL}=1, as root" if may_not else "",
    )


_TIMEOUT_S = 10.0
_AREA = "numbers"
_KINDS = {"nvidia": "NVIDIA GPUs", "drm": "AMD and Intel GPUs"}
_FIXES = {
    "nvidia": "pip install 'joblens[gpu]', and check that nvidia-smi works",
    "drm": "check that /sys/class/drm is readable",
}
Answer = tuple[list[GpuFacts], dict[str, str]]


def gpu_capabilities(ask: Callable[[], Answer] = ask_gpus, timeout_s: float = _TIMEOUT_S) -> list[Capability]:
    """Returns one row per GPU. A driver that hangs costs `timeout_s` and is reported."""
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(ask()), name="joblens-gpus", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not answers:
        return [
            Capability(
                area=_AREA,
                name="gpu",
                available=False,
                reason=f"the GPU's driver has not answered for {timeout_s:.0f}s",
                fix="check whether nvidia-smi answers; a hanging driver often needs a reboot",
            )
        ]
    found, problems = answers[0]
    rows = [_device(facts) for facts in found]
    rows += [
        Capability(
            area=_AREA, name=_KINDS.get(kind, kind), available=False, reason=why, fix=_FIXES.get(kind, "")
        )
        for kind, why in problems.items()
    ]
    nothing = Capability(
        area=_AREA,
        name="gpu",
        available=False,
        applies=False,
        reason="this machine has no readable GPU",
    )
    return rows or [nothing]


def _device(facts: GpuFacts) -> Capability:
    driver = f"{facts.driver} {facts.driver_version}"
    return Capability(
        area=_AREA,
        name=f"gpu {facts.index}" if not facts.parent else f"gpu {facts.index} {facts.uuid}",
        available=True,
        mechanism=f"{facts.name}: {facts.sources.get('gpu', '')}, driver {driver.strip()}",
    )


_NETWORK_FIXES = {
    NO_V2: "mount a cgroup v2 hierarchy (mount -t cgroup2 none DIR)",
    MAY_NOT: "run joblens as root, or give it CAP_BPF and CAP_NET_ADMIN",
}
_NEWER_KERNEL = "Linux 5.9 or later, with CONFIG_CGROUP_BPF and CONFIG_INET_DIAG"
_LISTING = "sock_diag, up to 10 seconds apart: its peers"


def network_capabilities(groups: Mapping[str, str], group_advice: str) -> list[Capability]:
    """`groups`: of a job; empty if none could be made, and `group_advice` says how to get some."""
    fixes = {**_NETWORK_FIXES, NO_GROUP: group_advice}
    return [
        _network_row("network", *_packets(groups), fixes),
        _network_row("endpoints", *_sockets(groups), fixes),
    ]


def _packets(groups: Mapping[str, str]) -> tuple[str, str]:
    """Returns (how packets are counted, why they are not)."""
    group, why = v2_group(groups)
    if why:
        return "", why
    probe = CgroupNetworkProbe(group)
    probe.close()
    return probe.sources.get("network", ""), next(iter(probe.unknown.values()), "")


def _sockets(groups: Mapping[str, str]) -> tuple[str, str]:
    group, why = v2_group(groups)
    if why:
        return "", why
    try:
        dump = SocketDump()
        try:
            list(dump.sockets(group_ids(group)))
        finally:
            dump.close()
    except ProbeError as error:
        return "", str(error)
    return _LISTING, ""


def _network_row(name: str, mechanism: str, reason: str, fixes: Mapping[str, str]) -> Capability:
    return Capability(
        area="numbers",
        name=name,
        available=bool(mechanism),
        mechanism=mechanism,
        reason=reason,
        fix=fixes.get(reason, _NEWER_KERNEL) if reason else "",
    )


AREA = "containers"
_CONTAINERS_TIMEOUT_S = 3.0
_ANSWER_S = 1.0
_PROGRAMS = {"docker": ("docker", "dockerd"), "podman": ("podman",)}
_START = {
    "docker": "start it (systemctl start docker), or let this user into the group docker",
    "podman": "start its service (systemctl --user start podman.socket, as root without --user)",
}
_OWN = "totals from the job's own groups above it"
_NOT_OWN = (
    "a container is measured in the engine's own groups, which end with it, so the last moments are missing"
)
_SYSTEMD = "it lets systemd make its groups, which accepts no parent of ours"
_NO_GROUPS = "joblens cannot make groups at one path of every hierarchy here"
_USE_CGROUPFS = {
    "docker": 'set "exec-opts": ["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json',
    "podman": 'set cgroup_manager = "cgroupfs" in containers.conf',
}


class _Answer(Struct, frozen=True):
    api: ContainerApi
    driver: str  # maker of its groups: cgroupfs, systemd


def container_capabilities(
    parent: str | None = None, group_advice: str = "", timeout_s: float = _CONTAINERS_TIMEOUT_S
) -> list[Capability]:
    """Returns one row per engine. One that accepts a connection and does not answer costs `timeout_s`."""
    found: dict[str, _Answer | ContainerError] = {}
    threads = [
        threading.Thread(target=_ask, args=(engine, found), name=f"joblens-{engine}", daemon=True)
        for engine in _PROGRAMS
    ]
    for thread in threads:
        thread.start()
    can_be_below = _can_be_below(parent)
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    silent = ContainerError(f"it has not answered for {timeout_s:g}s")
    return [
        _containers_row(engine, found.get(engine, silent), group_advice, can_be_below=can_be_below)
        for engine in _PROGRAMS
    ]


def _ask(engine: str, found: dict[str, _Answer | ContainerError]) -> None:
    try:
        api = connect(engine, timeout_s=_ANSWER_S)
        found[engine] = _Answer(api, api.cgroup_driver(timeout_s=_ANSWER_S))
    except ContainerError as error:
        found[engine] = error


def _can_be_below(parent: str | None) -> bool:
    """Returns whether groups can be made as for a job in a container."""
    groups = make_container_groups(f"doctor-{os.getpid()}-container", parent)
    if groups is None:
        return False
    try:
        return bool(path_in_every_mount(groups))
    finally:
        groups.remove()


def _containers_row(
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
