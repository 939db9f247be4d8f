"""Division of a cgroup v2 group that holds processes: they move into a leaf of it, and its controllers go to
the groups beside the leaf. The kernel gives controllers only to groups below one without processes.

A group that joblens made for a job stays divided. The group of a delegated unit is put back as it was."""

import contextlib
import errno
import os
import time

from joblens.model.errors import ProbeError
from joblens.probes.proc.kernel_files import read_text, read_words, subgroups
from joblens.probes.proc.proc_files import parse_stat

LEAF = "joblens-self"
V2_CONTROLLERS = ("memory", "pids", "cpu", "io")  # memory first: see enable_controllers
_DIVIDE_PATIENCE_S = 2.0
_PAUSE_S = 0.001


def enable_controllers(directory: str) -> dict[str, str]:
    """Hand the v2 controllers on to the groups below; controller -> why not, for those that are missing.

    Never in a group that holds processes: there the kernel refuses memory and io, but takes pids and cpu and
    turns the group into a threaded one, in which no job can run. Memory comes first, since no process can
    enter the group once it is enabled."""
    offered = read_words(f"{directory}/cgroup.controllers")
    enabled = read_words(f"{directory}/cgroup.subtree_control")
    gaps = {}
    refusal = ""
    for controller in V2_CONTROLLERS:
        if controller in enabled:
            continue
        if controller not in offered:
            gaps[controller] = f"the {controller} controller is not handed down to {directory}"
            continue
        if not refusal and holds_processes(directory):
            refusal = f"{directory} holds processes, so the kernel gives no controllers to groups below it"
        if not refusal:
            error = _write(f"{directory}/cgroup.subtree_control", f"+{controller}")
            if error is None:
                continue
            if error.errno == errno.EBUSY:
                refusal = f"{directory} is in use, so the kernel gives no controllers to groups below it"
            else:
                gaps[controller] = (
                    f"the {controller} controller cannot be enabled in {directory}: {error.strerror}"
                )
                continue
        gaps[controller] = refusal
    return gaps


def missing_controllers(directory: str) -> dict[str, str]:
    """Controller -> why groups below this one lack it, as things are."""
    enabled = read_words(f"{directory}/cgroup.subtree_control")
    why = "holds processes and " if holds_processes(directory) else ""
    return {
        controller: f"{directory} {why}does not hand down the {controller} controller"
        for controller in V2_CONTROLLERS
        if controller not in enabled
    }


def holds_processes(directory: str) -> bool:
    """Whether processes keep the kernel from giving controllers to groups below. Processes in the root of all
    groups, which has no type, do not."""
    if not os.path.exists(f"{directory}/cgroup.type"):
        return False
    processes = read_text(f"{directory}/cgroup.procs")
    return processes is None or bool(processes.strip())  # None: a threaded group


def divide(directory: str, patience_s: float = _DIVIDE_PATIENCE_S) -> str:
    """Move all processes of the group into its leaf and enable its controllers. Any number of joblens
    processes may do so at once. Returns why that failed; empty: it is done."""
    leaf = f"{directory}/{LEAF}"
    try:
        os.makedirs(leaf, exist_ok=True)
    except OSError as error:
        return f"cannot make {leaf}: {error.strerror}"
    deadline = time.monotonic() + patience_s
    while True:
        reason = _move_processes(directory, leaf)
        if reason:
            return reason
        gaps = enable_controllers(directory)
        if "memory" not in gaps:
            return ""
        if not holds_processes(directory):
            return gaps["memory"]
        # A process forked while its parent was being moved; the next round moves the child.
        if time.monotonic() > deadline:
            return f"processes keep starting in {directory} faster than they can be moved into {leaf}"
        time.sleep(_PAUSE_S)


def undo_division(directory: str, patience_s: float = _DIVIDE_PATIENCE_S) -> None:
    """Put a group back as it was before `divide`: no controllers below it, its processes in it, no leaf.
    Each step is tried even if one before it fails. Leaves it alone while groups of jobs are in it."""
    leaf = f"{directory}/{LEAF}"
    if any(group != leaf for group in subgroups(directory)):
        return
    for controller in reversed(V2_CONTROLLERS):
        if controller in read_words(f"{directory}/cgroup.subtree_control"):
            _write(f"{directory}/cgroup.subtree_control", f"-{controller}")
    deadline = time.monotonic() + patience_s
    while os.path.isdir(leaf):
        _move_processes(leaf, directory)
        with contextlib.suppress(OSError):
            os.rmdir(leaf)
            return
        if time.monotonic() > deadline:
            return
        time.sleep(_PAUSE_S)


def is_delegated(directory: str, own_path: str) -> bool:
    """Whether systemd has handed the group of this process over to it. The system's manager says so at the
    group itself; a user's manager has to be asked about the unit."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            return os.getxattr(directory, name) == b"1"
    if f"/user@{os.geteuid()}.service/" not in own_path:
        return False
    from joblens.agent.cgroups.systemd_manager import ManagerError, SystemdManager

    try:
        return SystemdManager().unit_property(os.path.basename(own_path), "Delegate") is True
    except ManagerError:
        return False


def holds_only_own_processes(directory: str, proc: str = "/proc") -> bool:
    """Whether all processes of the group are this one and its descendants."""
    words = (read_text(f"{directory}/cgroup.procs") or "0").split()
    return all(_is_own(int(word), proc) for word in words)


def _is_own(pid: int, proc: str) -> bool:
    own = os.getpid()
    while pid > 1 and pid != own:
        try:
            with open(f"{proc}/{pid}/stat", "rb", buffering=0) as file:
                pid = parse_stat(file.read()).parent_pid
        except FileNotFoundError:
            return True  # it has ended
        except (OSError, ValueError, ProbeError):
            return False
    return pid == own


def _move_processes(source: str, target: str) -> str:
    """Why not all that were in it could be moved; empty: they were, though more may have started since."""
    try:
        with open(f"{source}/cgroup.procs", "rb", buffering=0) as file:
            pids = file.read().split()
    except OSError as error:
        return f"cannot list the processes in {source}: {error.strerror}"
    for pid in pids:
        if pid == b"0":
            return f"{source} holds processes of another pid namespace, which cannot be moved from here"
        failure = _write(f"{target}/cgroup.procs", pid.decode())
        if failure is not None and failure.errno != errno.ESRCH:
            return f"cannot move process {pid.decode()} into {target}: {failure.strerror}"
    return ""


def _write(path: str, text: str) -> OSError | None:
    try:
        with open(path, "wb", buffering=0) as file:
            file.write(text.encode())
    except OSError as error:
        return error
    return None
