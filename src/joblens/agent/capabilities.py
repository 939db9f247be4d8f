"""What can be measured and enforced here, tried for real: a group is made, a process put into it,
read, limited, ended, and all of it taken away again."""

import os
import signal
from collections.abc import Mapping

from joblens.agent.capability_containers import container_capabilities
from joblens.agent.capability_energy import energy_capabilities
from joblens.agent.capability_gpu import gpu_capabilities
from joblens.agent.capability_looks import look_capabilities
from joblens.agent.capability_network import network_capabilities
from joblens.agent.capability_slurm import slurm_group_capability
from joblens.agent.gap_fixes import GROUP_FIX, fix_for_number
from joblens.agent.groups import GroupFactory, JobGroups
from joblens.agent.systemd_manager import manager_sockets
from joblens.model.capability import Capability
from joblens.model.errors import AccountingUnavailable, JoblensError
from joblens.probes.cgroup import CgroupProbe
from joblens.probes.cgroup_layout import read_layout
from joblens.probes.field_groups import FIELD_GROUPS
from joblens.probes.host import HostProbe
from joblens.probes.process_tree import ProcessTreeProbe

_LIMITS = ("cpus", "memory", "pids")
_WITHOUT_KERNEL = {
    "cpus": "CPU affinity: whole CPUs only",
    "memory": "watched by joblens, ten to twenty times a second",
    "pids": "watched by joblens, ten times a second",
}
_PR_GET_CHILD_SUBREAPER = 37


class _Trial:
    """What one throw-away group showed."""

    def __init__(self) -> None:
        self.kind = read_layout().kind  # what is mounted
        self.used = ""  # what job groups are made in
        self.gaps: Mapping[str, str] = {}  # controller -> why groups lack it
        self.refusal: JoblensError | None = None
        self.sources: dict[str, str] = {}
        self.unknown: dict[str, str] = {}
        self.enforced: dict[str, str] = {}
        self.limit_gaps: dict[str, str] = {}
        self.kill = ""
        self.network: list[Capability] = []


def probe_capabilities(parent: str | None = None) -> list[Capability]:
    """The whole matrix but the store's part. `parent` as for GroupFactory.detect."""
    trial = _try_groups(parent)
    numbers = [*_numbers(trial), *(trial.network or network_capabilities({})), *gpu_capabilities()]
    numbers += [*energy_capabilities(), *look_capabilities()]
    ways = [*_limits(trial), *_ending(trial), _terminal()]
    return [*_accounting(trial), *numbers, *ways, *container_capabilities(parent)]


def _try_groups(parent: str | None) -> _Trial:
    trial = _Trial()
    try:
        factory = GroupFactory.detect(parent)
        groups = factory.create(f"doctor-{os.getpid()}")
    except AccountingUnavailable as refusal:
        trial.refusal = refusal
        return trial
    trial.used, trial.gaps = groups.kind, factory.gaps
    child = 0
    try:
        trial.enforced = groups.set_limits(cpus=1.0, memory_bytes=256 << 20, pids=64)
        trial.limit_gaps = groups.limit_gaps
        child = _start_inside(groups)
        probe = CgroupProbe(groups.paths, groups.kind)
        trial.sources, trial.unknown = dict(probe.sources), dict(probe.unknown)
        probe.close()
        trial.network = network_capabilities(groups.paths)
        has_kill = any(os.path.exists(f"{path}/cgroup.kill") for path in groups.paths.values())
        trial.kill = "cgroup.kill" if has_kill else "SIGKILL to each process until the group is empty"
    except JoblensError as refusal:
        trial.refusal = refusal
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        groups.kill()
        groups.remove()
    return trial


def _start_inside(groups: JobGroups) -> int:
    """A child that has joined the groups and waits there to be ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for file in groups.attach_files():
                descriptor = os.open(file, os.O_WRONLY)
                os.write(descriptor, b"0")
                os.close(descriptor)
            os.write(writer, b"+")
            signal.pause()
        except OSError as error:
            os.write(writer, f"{error.strerror}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    answer = os.read(reader, 200)
    os.close(reader)
    if answer == b"+":
        return child
    os.waitpid(child, 0)
    raise AccountingUnavailable(
        f"a process may not join the group that was made for it: {answer.decode()}", hint=GROUP_FIX
    )


def _accounting(trial: _Trial) -> list[Capability]:
    kinds = ("cgroup-v2", "cgroup-hybrid", "cgroup-v1")
    ways = [*(_control_groups(kind, trial) for kind in kinds), _process_tree(), _systemd_scope(trial)]
    return [*ways, *slurm_group_capability(str(trial.refusal or ""))]


def _control_groups(kind: str, trial: _Trial) -> Capability:
    if kind == trial.used and trial.refusal is None:
        return Capability(
            area="accounting", name=kind, available=True, mechanism="a control group for each job"
        )
    expected = "cgroup-v2" if trial.kind == "none" else trial.kind
    if kind != expected:
        return Capability(
            area="accounting",
            name=kind,
            available=False,
            applies=False,
            reason=f"not this machine: it has {trial.kind}",
        )
    refusal = trial.refusal
    return Capability(
        area="accounting",
        name=kind,
        available=False,
        reason=str(refusal or f"its v2 part cannot be used, so {trial.used} is"),
        fix=(refusal.hint if refusal else "") or GROUP_FIX,
    )


def _process_tree() -> Capability:
    works = os.path.exists("/proc/self/stat")
    return Capability(
        area="accounting",
        name="process-tree",
        available=works,
        mechanism="/proc of every process below the launcher, and what it waited for" if works else "",
        reason="" if works else "/proc is not mounted",
        fix="" if works else "mount /proc",
    )


def _systemd_scope(trial: _Trial) -> Capability:
    """A way out where groups cannot be made; where they can, or on v1 alone, nobody needs it."""
    name, systemd = "systemd scope", bool(manager_sockets())
    if trial.refusal is None or trial.kind in ("cgroup-v1", "none"):
        reason = "not needed: joblens can make groups itself" if trial.refusal is None else "needs cgroup v2"
        return Capability(area="accounting", name=name, available=False, applies=False, reason=reason)
    return Capability(
        area="accounting",
        name=name,
        available=systemd,
        mechanism="systemd-run --user --scope -p Delegate=yes joblens …" if systemd else "",
        reason="" if systemd else "no systemd manager answers this user",
        fix=""
        if systemd
        else "log in through systemd-logind, or have loginctl enable-linger done for this user",
    )


def _numbers(trial: _Trial) -> list[Capability]:
    tree = ProcessTreeProbe(os.getpid(), include_root=True)
    host = HostProbe()
    tree.read()
    by_process = {**tree.sources, **host.sources}
    not_by_process = {**tree.unknown, **host.unknown}
    tree.close()
    host.close()
    found = []
    for group, fields in FIELD_GROUPS.items():
        source, reason = _source_of(fields, trial.sources.get(group, ""), trial.unknown)
        if not source:
            gap = reason
            source, reason = _source_of(fields, by_process.get(group, ""), not_by_process)
            reason = gap or reason
        found.append(
            Capability(
                area="numbers",
                name=group,
                available=bool(source),
                mechanism=source,
                reason=reason,
                fix=_fix_for(group, trial) if reason else "",
            )
        )
    return found


def _source_of(fields: tuple[str, ...], source: str, unknown: Mapping[str, str]) -> tuple[str, str]:
    """(where the group is read, why some or all of it is unknown)."""
    gaps = [unknown[field] for field in fields if field in unknown]
    return ("" if len(gaps) == len(fields) else source), next(iter(gaps), "")


def _fix_for(group: str, trial: _Trial) -> str:
    if trial.refusal:
        return GROUP_FIX
    return fix_for_number(group, trial.used, missing_controllers=trial.gaps)


def _limits(trial: _Trial) -> list[Capability]:
    found = []
    for limit in _LIMITS:
        by_kernel = trial.enforced.get(limit, "")
        reason = "" if by_kernel else trial.limit_gaps.get(limit) or str(trial.refusal or "")
        found.append(
            Capability(
                area="limits",
                name=limit,
                available=True,
                mechanism=by_kernel or _WITHOUT_KERNEL[limit],
                reason=reason,
                fix="" if by_kernel else GROUP_FIX,
            )
        )
    found.append(Capability(area="limits", name="timeout", available=True, mechanism="joblens' timer"))
    return found


def _ending(trial: _Trial) -> list[Capability]:
    subreaper = _knows_subreapers()
    return [
        Capability(
            area="ending",
            name="end every process",
            available=bool(trial.kill) or subreaper,
            mechanism=trial.kill or "SIGKILL to everything below the launcher until nothing is left",
            reason="" if trial.kill else str(trial.refusal or ""),
            fix="" if trial.kill else GROUP_FIX,
        ),
        Capability(
            area="ending",
            name="adopt orphans",
            available=subreaper,
            mechanism="PR_SET_CHILD_SUBREAPER" if subreaper else "",
            reason="" if subreaper else "the kernel has no child subreapers",
            fix="" if subreaper else "Linux 3.4 or later",
        ),
    ]


def _knows_subreapers() -> bool:
    import ctypes

    answer = ctypes.c_int()
    return bool(ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0) == 0)


def _terminal() -> Capability:
    try:
        for descriptor in os.openpty():
            os.close(descriptor)
    except OSError as error:
        return Capability(
            area="output",
            name="pseudo-terminal",
            available=False,
            reason=f"none can be opened: {error.strerror}",
            fix="mount devpts at /dev/pts; without it jobs see pipes",
        )
    return Capability(area="output", name="pseudo-terminal", available=True, mechanism="openpty")
