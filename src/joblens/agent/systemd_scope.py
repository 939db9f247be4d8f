"""A delegated cgroup from systemd, for machines where joblens may not make groups where it stands.

A job's launcher is started inside a fresh scope (`scope_argv`) and there moved, and nothing else, into a leaf
(`enter_leaf`): the kernel gives controllers only to groups below one without processes. A supervisor that
systemd started in a delegated unit does the same with itself (`own_group`)."""

import os
from collections.abc import Mapping, Sequence

from joblens.model.errors import AccountingUnavailable
from joblens.probes.cgroup_layout import CgroupLayout, read_layout
from joblens.probes.kernel_files import read_text

LEAF = "joblens-self"


def user_systemd_available(environ: Mapping[str, str] | None = None, run: str = "/run") -> bool:
    """Whether systemd-run is there and a manager that would answer it: the user's own, for root the system's.
    Looks only; starts nothing."""
    variables = os.environ if environ is None else environ
    if os.geteuid() == 0:
        sockets = [f"{run}/systemd/private"]
    else:
        runtime = variables.get("XDG_RUNTIME_DIR") or f"{run}/user/{os.geteuid()}"
        sockets = [f"{runtime}/systemd/private", f"{runtime}/bus"]
    return _on_path("systemd-run", variables) and any(os.path.exists(path) for path in sockets)


def scope_argv(argv: Sequence[str], unit: str) -> list[str]:
    """The command line that runs `argv` in a scope of its own, handed over with all its controllers."""
    manager = [] if os.geteuid() == 0 else ["--user"]
    options = ["--scope", "--quiet", "--collect", f"--unit={unit}", "-p", "Delegate=yes"]
    return ["systemd-run", *manager, *options, "--", *argv]


def enter_leaf(layout: CgroupLayout | None = None, pid: int | None = None) -> str:
    """Move a process of ours (default: this one) from its group into a leaf below; `layout` is that
    process's. Returns the group's path below the mount, to be given to GroupFactory.detect as parent. Refuses
    when any other process is in the group."""
    moved = pid or os.getpid()
    unified = (layout or read_layout(pid=str(moved))).unified
    if unified is None or unified.directory is None:
        raise AccountingUnavailable("this process is in no cgroup v2 group")
    others = set((read_text(f"{unified.directory}/cgroup.procs") or "").split()) - {str(moved)}
    if others:
        raise AccountingUnavailable(
            f"{unified.directory} holds {len(others)} other processes, which joblens does not move",
            hint="start joblens in a scope of its own: systemd-run --user --scope -p Delegate=yes joblens …",
        )
    leaf = f"{unified.directory}/{LEAF}"
    try:
        os.makedirs(leaf, exist_ok=True)
        with open(f"{leaf}/cgroup.procs", "wb", buffering=0) as file:
            file.write(str(moved).encode())
    except OSError as error:
        raise AccountingUnavailable(f"cannot move into {leaf}: {error.strerror}") from error
    return unified.directory.removeprefix(unified.mount_point.rstrip("/")) or "/"


def own_group(layout: CgroupLayout | None = None) -> str:
    """The delegated group this process was started in, whether it stands there or in a leaf of it already
    (DelegateSubgroup=): a path below the mount, as GroupFactory.detect takes it."""
    unified = (layout or read_layout()).unified
    if unified is not None and unified.directory is not None and os.path.basename(unified.directory) == LEAF:
        above = os.path.dirname(unified.directory)
        return above.removeprefix(unified.mount_point.rstrip("/")) or "/"
    return enter_leaf(layout)


def _on_path(program: str, variables: Mapping[str, str]) -> bool:
    folders = variables.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(f"{folder}/{program}", os.X_OK) for folder in folders if folder)
