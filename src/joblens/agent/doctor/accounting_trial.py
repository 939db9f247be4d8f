"""Trial of the accounting that jobs get here: a launcher is started and put into groups as for `joblens run`,
the groups are read and limited, and all of it is removed. A second launcher goes the way of a slot."""

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.cgroups.placement import is_job_group
from joblens.agent.launcher.launch import LauncherProcess
from joblens.agent.measuring.accounting import PROCESS_TREE, Accountant
from joblens.model.errors import JoblensError
from joblens.model.jobs.capability import Way
from joblens.model.jobs.job import Accounting
from joblens.model.values.ids import new_uuid
from joblens.probes.cgroup.layout import UNIFIED, CgroupLayout, read_layout
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.proc.kernel_files import read_words

_SCOPE = re.compile(r"/joblens-[^/]+\.scope/")
_LIMITS: dict[str, Any] = {"cpus": 1.0, "memory_bytes": 256 << 20, "pids": 64}
_CONTROLLERS = ("memory", "pids", "cpu", "io")


class Trial(Struct, kw_only=True):
    """`kind`: of the mounted cgroups. `accounting`: as in records. `reason`: why jobs are counted without
    groups, or by groups that lack the memory controller. `missing`: controllers that job groups lack."""

    kind: str
    accounting: str = PROCESS_TREE
    way: Way = Way.PROCESS_TREE
    slot_way: Way = Way.PROCESS_TREE
    base: str = ""  # group that holds those of jobs: name of a unit, or path
    reason: str = ""
    slot_reason: str = ""
    missing: frozenset[str] = frozenset()
    sources: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    enforced: Mapping[str, str] = field(default_factory=dict)  # limit -> file of the group
    limit_gaps: Mapping[str, str] = field(default_factory=dict)
    kill: str = ""


def try_accounting(accountant: Accountant, inspect: Callable[[Mapping[str, str]], None]) -> Trial:
    """`inspect` is called with the groups while a process is in them, or with none."""
    layout = read_layout()
    trial = Trial(kind=layout.kind)
    with contextlib.ExitStack() as stack:
        try:
            launcher, slot_launcher = _launcher(stack), _launcher(stack)
            groups = _groups(stack, accountant, new_uuid(), launcher.pid)
            if groups is None:
                trial.reason = accountant.why_not or "the control group of the job could not be made"
            else:
                _measure(trial, groups, launcher, accountant.parent, layout)
                inspect(groups.paths)
            slot_pid = slot_launcher.pid if accountant.needs_scope(Accounting.AUTO) else None
            slot_groups = _groups(stack, accountant, f"slot-{new_uuid()}", slot_pid)
            trial.slot_way = _way_of(slot_groups, accountant.parent, layout)
            trial.slot_reason = "" if slot_groups is not None else accountant.why_not
        except (JoblensError, OSError) as error:
            # A job would not start at all.
            trial.accounting, trial.way, trial.reason = "", Way.NONE, str(error)
            trial.slot_way, trial.slot_reason = trial.way, trial.reason
            trial.enforced, trial.kill = {}, ""
    if trial.way is Way.WITHOUT_CONTROLLERS:
        trial.reason = accountant.why_not
    return trial


def _launcher(stack: contextlib.ExitStack) -> LauncherProcess:
    launcher = LauncherProcess(None)
    stack.callback(launcher.abandon)
    launcher.greeted()
    return launcher


def _groups(
    stack: contextlib.ExitStack, accountant: Accountant, name: str, pid: int | None
) -> JobGroups | None:
    groups = accountant.groups_for_process(name, Accounting.AUTO, pid)
    if groups is not None:
        stack.callback(groups.remove)
        stack.callback(groups.kill)
    return groups


def _measure(
    trial: Trial, groups: JobGroups, launcher: LauncherProcess, parent: str | None, layout: CgroupLayout
) -> None:
    trial.accounting, trial.way = groups.kind, _way_of(groups, parent, layout)
    main = groups.paths.get(UNIFIED) or next(iter(groups.paths.values()))
    trial.base = _short_name(os.path.dirname(os.path.dirname(main)))
    trial.missing = _missing(groups)
    trial.enforced = groups.set_limits(**_LIMITS)
    trial.limit_gaps = groups.limit_gaps
    launcher.join(groups.attach_files())
    launcher.joined()
    probe = CgroupProbe(groups.paths, groups.kind)
    trial.sources, trial.unknown = dict(probe.sources), dict(probe.unknown)
    probe.close()
    has_kill = any(os.path.exists(f"{path}/cgroup.kill") for path in groups.paths.values())
    trial.kill = "cgroup.kill" if has_kill else "SIGKILL to each process until the group is empty"


def _short_name(directory: str) -> str:
    name = os.path.basename(directory)
    return name if name.endswith((".scope", ".service")) else directory


def _missing(groups: JobGroups) -> frozenset[str]:
    """Controllers that give nothing for these groups."""
    unified = groups.paths.get(UNIFIED)
    present = set(groups.paths) | (set(read_words(f"{unified}/cgroup.controllers")) if unified else set())
    return frozenset(controller for controller in _CONTROLLERS if controller not in present)


def _way_of(groups: JobGroups | None, parent: str | None, layout: CgroupLayout) -> Way:
    if groups is None:
        return Way.PROCESS_TREE
    own = layout.unified.directory if layout.unified is not None else None
    return way_of(
        groups.paths.get(UNIFIED, ""),
        own or "",
        is_configured=parent is not None,
        lacks_memory="memory" in _missing(groups),
        mounts=[hierarchy.mount_point for hierarchy in layout.hierarchies.values()],
    )


def way_of(group: str, own: str, *, is_configured: bool, lacks_memory: bool, mounts: list[str]) -> Way:
    """How a job came to its group. `group`: its directory in cgroup v2, empty where it has none there. `own`:
    the same of this process."""
    if lacks_memory:
        return Way.WITHOUT_CONTROLLERS
    if is_configured:
        return Way.CONFIGURED
    scope = _SCOPE.search(group)
    if scope and not f"{own}/".startswith(group[: scope.end()]):
        return Way.SCOPE
    above = os.path.dirname(group)
    while len(above) > 1:
        if is_job_group(above, mounts):
            return Way.INSIDE_JOB
        above = os.path.dirname(above)
    return Way.OWN_GROUP
