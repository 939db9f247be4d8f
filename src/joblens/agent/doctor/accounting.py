"""Accounting check of doctor: tries the groups that jobs get here, also inside Slurm, and gives advice if
they get none."""

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.cgroups.placement import is_delegated, is_job_group, slurm_step
from joblens.agent.cgroups.systemd_manager import manager_sockets
from joblens.agent.cgroups.systemd_scope import scope_terms
from joblens.agent.launcher.launch import LauncherProcess
from joblens.agent.measuring.accounting import PROCESS_TREE, Accountant
from joblens.files.private import user_name
from joblens.model.capabilities import Capability, Way
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Accounting
from joblens.model.values.ids import new_uuid
from joblens.probes.cgroup.layout import UNIFIED, CgroupLayout, read_layout
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.proc.kernel_files import read_text, read_words

_NAME = "Slurm's group"
_NO_GROUP = "this Slurm holds jobs in no control groups (ProctrackType, TaskPlugin); joblens makes its own"


def slurm_group_capability(
    refusal: str,
    group_advice: str,
    environ: Mapping[str, str] = os.environ,
    layout: CgroupLayout | None = None,
) -> list[Capability]:
    """Returns nothing outside Slurm jobs. `refusal`: why no groups can be made."""
    if "SLURM_JOB_ID" not in environ:
        return []
    hierarchies = (layout or read_layout()).hierarchies.values()
    steps = [step for hierarchy in hierarchies if (step := slurm_step(hierarchy.own_path))]
    if not steps:
        return [Capability(area="accounting", name=_NAME, available=False, applies=False, reason=_NO_GROUP)]
    return [
        Capability(
            area="accounting",
            name=_NAME,
            available=not refusal,
            mechanism="" if refusal else f"job groups inside of {steps[0]}",
            reason=refusal,
            fix=f"{group_advice}; without them, joblens enforces memory limits itself" if refusal else "",
        )
    ]


CONTROLLERS = "cpu cpuset io memory pids"
_DROP_IN = "/etc/systemd/system/user@.service.d"
_CONTAINER_FILES = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}
_WRITABLE = {
    "docker": "docker run --security-opt writable-cgroups=true IMAGE …  # Docker 28 and later",
    "podman": "podman run --security-opt unmask=/sys/fs/cgroup IMAGE …",
}
_USER_MANAGER = re.compile(r"/user@(\d+)\.service/")
_ANY_GROUP = "set limits.cgroup_parent to a control group that this user may divide"


class Caller(Struct, frozen=True, kw_only=True):
    """The user who runs joblens, and the group and manager it runs in."""

    uid: int
    user: str
    own_path: str = ""  # of its group in cgroup v2
    has_systemd: bool = True  # as init
    has_manager: bool = True  # a manager of this user's units is running
    is_transient: bool = False  # systemd-run made the unit
    is_delegated: bool = False  # the unit has Delegate=yes
    may_have_scope: bool = True  # no limit of the unit prevents one
    needs_linger: bool = False  # the manager would stop at a logout
    is_read_only: bool = False  # the cgroup mount
    cgroup_parent: str = ""  # the setting limits.cgroup_parent
    container: str = ""  # docker, podman, container; empty: none
    shell_pid: int = 1

    @property
    def unit(self) -> str:
        """Scope or service that contains joblens; empty: none."""
        name = os.path.basename(self.own_path)
        return name if name.endswith((".scope", ".service")) else ""

    @property
    def is_unit_of_user(self) -> bool:
        """Whether a user manager started the unit."""
        return _USER_MANAGER.search(self.own_path) is not None

    @property
    def is_login(self) -> bool:
        """Whether the unit is a login session of any user."""
        return self.unit.startswith("session-") and self.unit.endswith(".scope")


def read_caller(
    layout: CgroupLayout,
    environ: Mapping[str, str] = os.environ,
    root: str = "",
    cgroup_parent: str | None = None,
) -> Caller:
    """`root`: prefix of every path, for tests."""
    uid = os.geteuid()
    unified = layout.unified
    own_path = unified.own_path if unified is not None else ""
    unit = os.path.basename(own_path)
    terms = scope_terms(layout)
    transient = [f"{root}/run/systemd/transient/{unit}", f"{root}/run/user/{uid}/systemd/transient/{unit}"]
    return Caller(
        uid=uid,
        user=user_name(uid),
        own_path=own_path,
        has_systemd=os.path.isdir(f"{root}/run/systemd/system"),
        has_manager=bool(manager_sockets(environ, f"{root}/run")),
        is_transient=bool(unit) and any(map(os.path.exists, transient)),
        is_delegated=bool(unified and unified.directory and is_delegated(unified.directory, own_path)),
        may_have_scope=not terms.refusal or terms.needs_linger,
        needs_linger=terms.needs_linger,
        is_read_only=unified is not None and not unified.is_writable,
        cgroup_parent=cgroup_parent or "",
        container=_container(environ, root),
        shell_pid=os.getppid(),
    )


def group_advice(caller: Caller, kind: str) -> str:
    """Returns how this user gets control groups for jobs, with the controllers that they need. `kind`: of
    the mounted cgroups."""
    if kind == "none":
        return "mount a cgroup hierarchy: mount -t cgroup2 none /sys/fs/cgroup"
    if caller.cgroup_parent:
        return (
            f"name a control group that exists and that {caller.user} may divide in limits.cgroup_parent, "
            "or remove that setting"
        )
    if kind != "cgroup-v2":
        return f"{_ANY_GROUP}, or run joblens as root"
    if slurm_step(caller.own_path):
        return f"ask the cluster's administrators to delegate the groups of steps, or {_ANY_GROUP}"
    if caller.container:
        return _in_container(caller)
    if not caller.has_systemd:
        return _without_systemd(caller)
    return _with_systemd(caller)


def _with_systemd(caller: Caller) -> str:
    is_service = caller.unit.endswith(".service")
    if caller.unit and not caller.is_login and (is_service or not caller.may_have_scope):
        return _delegate_unit(caller)
    if caller.uid == 0 or not caller.may_have_scope:
        return _ANY_GROUP
    if caller.has_manager and not caller.needs_linger:
        return _restart_manager(caller)
    return _start_manager(caller)


def io_advice(caller: Caller, kind: str) -> str:
    """Returns how job groups get the io controller."""
    if caller.cgroup_parent and kind == "cgroup-v2":
        return f"enable io in cgroup.subtree_control of {caller.cgroup_parent} and of the groups above it"
    is_below_manager = caller.own_path.startswith("/user.slice/")
    if kind != "cgroup-v2" or caller.container or not caller.has_systemd or not is_below_manager:
        return group_advice(caller, kind)
    steps = [
        f"sudo mkdir -p {_DROP_IN}",
        f"printf '[Service]\\nDelegate={CONTROLLERS}\\n' |",
        f"  sudo tee {_DROP_IN}/delegate.conf",
        "sudo systemctl daemon-reload",
    ]
    if caller.uid != 0:
        steps.append("systemctl --user daemon-reexec")
    return _commands("let user managers delegate the io controller, too:", *steps)


def _in_container(caller: Caller) -> str:
    if caller.is_read_only:
        engines = [caller.container] if caller.container in _WRITABLE else [*_WRITABLE]
        return _commands(
            "start the container with a control group that it may write:",
            *(_WRITABLE[engine] for engine in engines),
        )
    if caller.uid != 0:
        return "run joblens as root of the container"
    return _commands(
        "move the container's processes into a leaf group, and enable controllers beside it:",
        "cd /sys/fs/cgroup && mkdir -p init",
        "for pid in $(cat cgroup.procs); do echo $pid > init/cgroup.procs; done",
        "echo '+cpu +io +memory +pids' > cgroup.subtree_control",
    )


def _without_systemd(caller: Caller) -> str:
    if caller.uid == 0:
        return _commands(
            "let the root group delegate its controllers:",
            "echo '+cpu +io +memory +pids' > /sys/fs/cgroup/cgroup.subtree_control",
        )
    group = f"/sys/fs/cgroup/{caller.user}"
    return _commands(
        "have root put this shell into a control group of yours:",
        'sudo sh -c \'cd /sys/fs/cgroup && echo "+cpu +io +memory +pids" > cgroup.subtree_control &&',
        f"  mkdir -p {group}/shell && echo {caller.shell_pid} > {group}/shell/cgroup.procs &&",
        f'  echo "+cpu +io +memory +pids" > {group}/cgroup.subtree_control &&',
        f"  chown -R {caller.user} {group}'",
    )


def _start_manager(caller: Caller) -> str:
    return _commands(
        f"start a systemd manager for {caller.user}; it then runs from boot on:",
        f"sudo loginctl enable-linger {shlex.quote(caller.user)}",
    )


def _delegate_unit(caller: Caller) -> str:
    unit = caller.unit
    if caller.is_delegated:
        return f"run nothing but joblens in {unit}: in a script, start it with exec joblens …"
    if caller.is_transient:
        start = "systemd-run --user" if caller.is_unit_of_user else "sudo systemd-run"
        scope = " --scope" if unit.endswith(".scope") else ""
        command = f"{start}{scope} -p Delegate=yes …"
        return f"start {unit} with Delegate=yes, and nothing but joblens in it: {command}"
    edit = "systemctl --user" if caller.is_unit_of_user else "sudo systemctl"
    return _commands(
        f"add the line Delegate=yes to [Service] of {unit}, and restart it:",
        f"{edit} edit {shlex.quote(unit)}",
        f"{edit} restart {shlex.quote(unit)}",
    )


def _restart_manager(caller: Caller) -> str:
    return _commands(
        f"restart the systemd manager of {caller.user}; that stops its services:",
        f"sudo systemctl restart user@{caller.uid}.service",
    )


def _commands(text: str, *commands: str) -> str:
    return "\n".join([text, *commands])


def _container(environ: Mapping[str, str], root: str) -> str:
    """Reads the marks that engines put into their containers."""
    for file, name in _CONTAINER_FILES.items():
        if os.path.exists(root + file):
            return name
    marks = (environ.get("container", ""), read_text(f"{root}/run/systemd/container") or "")
    found = next(filter(None, marks), "")
    if not found and "KUBERNETES_SERVICE_HOST" in environ:
        found = "kubernetes"
    return found.strip()


_SCOPE = re.compile(r"/joblens-[^/]+\.scope/")
_LIMITS: dict[str, Any] = {"cpus": 1.0, "memory_bytes": 256 << 20, "pids": 64}
_CONTROLLERS = ("memory", "pids", "cpu", "io")


class Trial(Struct, kw_only=True):
    """`kind`: of the mounted cgroups. `accounting`: as in records. `reason`: why jobs are measured
    without groups, or by groups that lack the memory controller. `missing`: controllers that job groups
    lack."""

    kind: str
    accounting: str = PROCESS_TREE
    way: Way = Way.PROCESS_TREE
    slot_way: Way = Way.PROCESS_TREE
    base: str = ""  # parent of job groups: name of a unit, or path
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
                trial.reason = accountant.accounting_gap or "the control group of the job could not be made"
            else:
                _measure(trial, groups, launcher, accountant.parent, layout)
                inspect(groups.paths)
            slot_pid = slot_launcher.pid if accountant.needs_scope(Accounting.AUTO) else None
            slot_groups = _groups(stack, accountant, f"slot-{new_uuid()}", slot_pid)
            trial.slot_way = _way_of(slot_groups, accountant.parent, layout)
            trial.slot_reason = "" if slot_groups is not None else accountant.accounting_gap
        except (JoblensError, OSError) as error:
            # A job would not start at all.
            trial.accounting, trial.way, trial.reason = "", Way.NONE, str(error)
            trial.slot_way, trial.slot_reason = trial.way, trial.reason
            trial.enforced, trial.kill = {}, ""
    if trial.way is Way.WITHOUT_CONTROLLERS:
        trial.reason = accountant.accounting_gap
    return trial


def _launcher(stack: contextlib.ExitStack) -> LauncherProcess:
    launcher = LauncherProcess(None)
    stack.callback(launcher.abandon)
    launcher.wait_until_up()
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
    launcher.wait_until_joined()
    probe = CgroupProbe(groups.paths, groups.kind)
    trial.sources, trial.unknown = dict(probe.sources), dict(probe.unknown)
    probe.close()
    has_kill = any(os.path.exists(f"{path}/cgroup.kill") for path in groups.paths.values())
    trial.kill = "cgroup.kill" if has_kill else "SIGKILL to each process until the group is empty"


def _short_name(directory: str) -> str:
    name = os.path.basename(directory)
    return name if name.endswith((".scope", ".service")) else directory


def _missing(groups: JobGroups) -> frozenset[str]:
    """Returns controllers without any effect for these groups."""
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
    """Returns how a job gets its group. `group`: its directory in cgroup v2, empty if it has none there.
    `own`: that of this process."""
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
