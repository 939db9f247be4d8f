"""Capabilities of this machine: what joblens can measure and enforce here, tried as for a job, and fixes
for gaps."""

import os
from collections.abc import Collection, Mapping

from msgspec import Struct

from joblens.agent.doctor.accounting import (
    Trial,
    group_advice,
    io_advice,
    read_caller,
    slurm_group_capability,
    try_accounting,
)
from joblens.agent.doctor.instruments import (
    container_capabilities,
    energy_capabilities,
    gpu_capabilities,
    instrument_capabilities,
    network_capabilities,
)
from joblens.agent.measuring.accounting import Accountant
from joblens.model.capabilities import SLOTS, Capability, Way
from joblens.ports.clock import Clock
from joblens.probes.cgroup.counters import SEE_DOCTOR
from joblens.probes.cgroup.layout import read_layout
from joblens.probes.host.machine_load import HostProbe
from joblens.probes.proc.process_tree import ProcessTreeProbe
from joblens.probes.proc.processes import FIELD_GROUPS

_V2_ALONE = "boot with cgroup v2 alone (systemd.unified_cgroup_hierarchy=1)"
_PROC = "mount /proc, and let this user see its processes there (hidepid=0)"
_NEWER_KERNEL = "a newer kernel"
_ONLY_ON_V2 = ("memory_kernel_parts", "oom_events", "io", "io_ops", "io_devices")
_KERNEL_FIXES = {
    "cpu_pressure": "boot the kernel with psi=1",
    "memory_pressure": "boot the kernel with psi=1",
    "io_pressure": "boot the kernel with psi=1",
    "memory_kernel_peak": "Linux 5.19 or later",
    "memory_kernel": "Linux 5.18 or later",
    "memory_swap": "boot the kernel with swapaccount=1",
    "oom_kills": "Linux 4.13 or later",
}


def fix_for_number(
    group: str,
    kind: str,
    *,
    missing: Collection[str] = (),
    group_advice: str = "",
    io_advice: str = "",
) -> str:
    """Returns the fix for a group of sample fields on a machine of that cgroup kind where groups can be
    made. `missing`: controllers that they lack; the advice says how to get them."""
    if kind != "cgroup-v2" and group in _ONLY_ON_V2:
        return _V2_ALONE
    if kind == "cgroup-v1" and group.endswith("_pressure"):
        return _V2_ALONE
    if _controller(group) in missing:
        return io_advice if _controller(group) == "io" else group_advice
    if group.startswith(("host_", "open_files")) or group in ("io_calls", "memory_virtual", "processes"):
        return _PROC
    return _KERNEL_FIXES.get(group, _NEWER_KERNEL)


def _controller(group: str) -> str:
    """Returns the cgroup controller that provides a group of fields; pressure needs none."""
    if group.endswith("_pressure") or group == "cpu":
        return ""
    if group == "throttling":
        return "cpu"
    if group.startswith(("memory", "oom", "faults")):
        return "memory"
    if group.startswith(("pids", "threads")):
        return "pids"
    return "io" if group in ("io", "io_ops", "io_devices") else ""


_LIMITS = ("cpus", "memory", "pids")
_WITHOUT_KERNEL = {
    "cpus": "CPU affinity: whole CPUs only",
    "memory": "watched by joblens, 10 to 20 times per second",
    "pids": "watched by joblens, 10 times per second",
}
_GROUP_WAYS = {
    Way.SCOPE: "a control group for each job, in a systemd scope",
    Way.OWN_GROUP: "a control group for each job, inside {base}",
    Way.INSIDE_JOB: "a control group for each job, inside the job that joblens runs in",
    Way.CONFIGURED: "a control group for each job, inside {base} (limits.cgroup_parent)",
    Way.WITHOUT_CONTROLLERS: "a control group for each job, which counts CPU time only",
}
_TREE = "/proc of every process below the launcher, and its reaped processes"
_PR_GET_CHILD_SUBREAPER = 37


class Advice(Struct, frozen=True):
    """How to get control groups, and the io controller in them."""

    groups: str
    io: str


def probe_capabilities(clock: Clock, parent: str | None = None) -> list[Capability]:
    """Returns all capabilities except the store's. `parent` as for Accountant."""
    layout = read_layout()
    caller = read_caller(layout, cgroup_parent=parent)
    advice = Advice(group_advice(caller, layout.kind), io_advice(caller, layout.kind))
    network: list[Capability] = []
    accountant = Accountant(clock, parent)
    try:
        trial = try_accounting(
            accountant, lambda groups: network.extend(network_capabilities(groups, advice.groups))
        )
    finally:
        accountant.close()
    network = network or network_capabilities({}, advice.groups)
    numbers = [*_numbers(trial, advice), *network, *gpu_capabilities()]
    numbers += [*energy_capabilities(), *instrument_capabilities()]
    ways = [*_limits(trial, advice), *_ending(trial, advice), _terminal()]
    return [*_accounting(trial, advice), *numbers, *ways, *container_capabilities(parent, advice.groups)]


def _accounting(trial: Trial, advice: Advice) -> list[Capability]:
    kinds = ("cgroup-v2", "cgroup-hybrid", "cgroup-v1")
    rows = [*(_control_groups(kind, trial, advice) for kind in kinds), _process_tree(trial)]
    if trial.slot_way is not trial.way:
        rows.append(_slots(trial, advice))
    refusal = "" if trial.way in _GROUP_WAYS else trial.reason
    return [*rows, *slurm_group_capability(refusal, advice.groups)]


def _control_groups(kind: str, trial: Trial, advice: Advice) -> Capability:
    if kind == trial.accounting:
        return Capability(
            area="accounting",
            name=kind,
            available=True,
            mechanism=_GROUP_WAYS[trial.way].format(base=trial.base),
            reason=trial.reason,
            fix=advice.groups if trial.reason else "",
            way=trial.way,
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
    reason = trial.reason or f"its v2 part cannot be used, so {trial.accounting} is"
    way = trial.way if trial.way is Way.NONE else None
    return Capability(
        area="accounting", name=kind, available=False, reason=reason, fix=advice.groups, way=way
    )


def _slots(trial: Trial, advice: Advice) -> Capability:
    """Returns capabilities of slots that are measured in another way than single jobs."""
    mechanism = _GROUP_WAYS.get(trial.slot_way, _TREE).format(base=trial.base)
    return Capability(
        area="accounting",
        name=SLOTS,
        available=trial.slot_way is not Way.NONE,
        mechanism=mechanism if trial.slot_way is not Way.NONE else "",
        reason=trial.slot_reason,
        fix=advice.groups if trial.slot_reason else "",
        way=trial.slot_way,
    )


def _process_tree(trial: Trial) -> Capability:
    works = os.path.exists("/proc/self/stat")
    return Capability(
        area="accounting",
        name="process-tree",
        available=works,
        mechanism=_TREE if works else "",
        reason="" if works else "/proc is not mounted",
        fix="" if works else "mount /proc",
        way=trial.way if trial.way is Way.PROCESS_TREE else None,
    )


def _numbers(trial: Trial, advice: Advice) -> list[Capability]:
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
                fix=_fix_for(group, trial, advice) if reason else "",
            )
        )
    return found


def _source_of(fields: tuple[str, ...], source: str, unknown: Mapping[str, str]) -> tuple[str, str]:
    """Returns (where the group is read, why some or all of it is unknown)."""
    gaps = [unknown[field].removesuffix(SEE_DOCTOR) for field in fields if field in unknown]
    return ("" if len(gaps) == len(fields) else source), next(iter(gaps), "")


def _fix_for(group: str, trial: Trial, advice: Advice) -> str:
    if not trial.sources:
        return advice.groups
    return fix_for_number(
        group, trial.accounting, missing=trial.missing, group_advice=advice.groups, io_advice=advice.io
    )


def _limits(trial: Trial, advice: Advice) -> list[Capability]:
    found = []
    for limit in _LIMITS:
        by_kernel = trial.enforced.get(limit, "")
        reason = "" if by_kernel else trial.reason or trial.limit_gaps.get(limit, "")
        found.append(
            Capability(
                area="limits",
                name=limit,
                available=True,
                mechanism=by_kernel or _WITHOUT_KERNEL[limit],
                reason=reason,
                fix="" if by_kernel else advice.groups,
            )
        )
    found.append(Capability(area="limits", name="timeout", available=True, mechanism="joblens' timer"))
    return found


def _ending(trial: Trial, advice: Advice) -> list[Capability]:
    subreaper = _knows_subreapers()
    return [
        Capability(
            area="ending",
            name="kill every process",
            available=bool(trial.kill) or subreaper,
            mechanism=trial.kill or "SIGKILL to everything below the launcher until nothing is left",
            reason="" if trial.kill else trial.reason,
            fix="" if trial.kill else advice.groups,
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
