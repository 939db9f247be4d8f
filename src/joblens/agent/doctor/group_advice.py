"""Advice for users whose jobs get no control group, or one that lacks controllers: the commands that help in
the situation joblens runs in. A first line says what to do; the lines after it can be typed as they are."""

import os
import re
import shlex
from collections.abc import Mapping

from msgspec import Struct

from joblens.agent.cgroups.leaf_group import is_delegated
from joblens.agent.cgroups.placement import slurm_step
from joblens.agent.cgroups.scope_terms import scope_terms, user_name
from joblens.agent.cgroups.systemd_manager import manager_sockets
from joblens.probes.cgroup.layout import CgroupLayout
from joblens.probes.proc.kernel_files import read_text

CONTROLLERS = "cpu cpuset io memory pids"
_DROP_IN = "/etc/systemd/system/user@.service.d"
_CONTAINER_FILES = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}
_WRITABLE = {
    "docker": "docker run --security-opt writable-cgroups=true IMAGE …  # Docker 28 and later",
    "podman": "podman run --security-opt unmask=/sys/fs/cgroup IMAGE …",
}
_USER_MANAGER = re.compile(r"/user@(\d+)\.service/")
_ANY_GROUP = "name a control group that this user may divide, with the setting limits.cgroup_parent"


class Caller(Struct, frozen=True, kw_only=True):
    """Who runs joblens, and in which group of which manager."""

    uid: int
    user: str
    own_path: str = ""  # of its group in cgroup v2
    has_systemd: bool = True  # as init
    has_manager: bool = True  # a manager of this user's units runs
    is_transient: bool = False  # systemd-run made the unit
    is_delegated: bool = False  # the unit has Delegate=yes
    may_have_scope: bool = True  # no limit of the unit speaks against one
    needs_linger: bool = False  # but the manager would stop at a logout
    is_read_only: bool = False  # the cgroup mount
    cgroup_parent: str = ""  # the setting limits.cgroup_parent
    container: str = ""  # docker, podman, container; empty: none
    shell_pid: int = 1

    @property
    def unit(self) -> str:
        """Scope or service that joblens runs in; empty: none."""
        name = os.path.basename(self.own_path)
        return name if name.endswith((".scope", ".service")) else ""

    @property
    def is_unit_of_user(self) -> bool:
        """Whether a user manager started the unit."""
        return _USER_MANAGER.search(self.own_path) is not None

    @property
    def is_login(self) -> bool:
        """Whether the unit is a login session, of whatever user."""
        return self.unit.startswith("session-") and self.unit.endswith(".scope")


def read_caller(
    layout: CgroupLayout,
    environ: Mapping[str, str] = os.environ,
    root: str = "",
    cgroup_parent: str | None = None,
) -> Caller:
    """`root`: before every path, for tests."""
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
    """How this user gets control groups for jobs, with the controllers that they need. `kind`: of the mounted
    cgroups."""
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
    """How job groups get the io controller."""
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
    return _commands("let user managers hand on the io controller, too:", *steps)


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
            "let the root of all groups hand on its controllers:",
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
        f"restart the systemd manager of {caller.user}; that ends its services:",
        f"sudo systemctl restart user@{caller.uid}.service",
    )


def _commands(text: str, *commands: str) -> str:
    return "\n".join([text, *commands])


def _container(environ: Mapping[str, str], root: str) -> str:
    """As engines mark the containers that they start."""
    for file, name in _CONTAINER_FILES.items():
        if os.path.exists(root + file):
            return name
    marks = (environ.get("container", ""), read_text(f"{root}/run/systemd/container") or "")
    found = next(filter(None, marks), "")
    if not found and "KUBERNETES_SERVICE_HOST" in environ:
        found = "kubernetes"
    return found.strip()
