"""Killing a job with its owner, if the job must not continue alone: another worker starts a worker's job
again, and both would do the same work. launcher.py and slot_launcher.py, which run as plain files, import
this, so it imports as little as they do."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module around it imports enum, which costs
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

import launcher  # type: ignore[import-not-found]  # noqa: E402 - beside this one; no package here

_PR_SET_PDEATHSIG = 1
_CALL = _signal.SIGUSR2  # sent by the kernel
_GIVE_UP = _signal.SIGRTMAX  # on this signal the client of a container removes the container
_PAUSE_S = 0.005
_REMOVE_TRIES = 50
_TIMEOUT_S = 30.0  # for an engine that does not answer, and for processes that the kernel cannot kill


def call_on_owner_exit(then: Callable[[], None]) -> None:
    """Calls `then` when the owner is gone, in a launcher that only waits for its job. The kernel sends the
    signal when the thread that started this process ends; the process of that thread may still run."""
    owner = os.getppid()

    def called(_number: int, _frame: object) -> None:
        if os.getppid() != owner:
            then()

    _signal.signal(_CALL, called)
    launcher.prctl(_PR_SET_PDEATHSIG, _CALL)


def end_slot_with_owner(groups: list[str], clean_up: Callable[[], None]) -> None:
    """Kills the job of a slot's launcher with its owner. The groups stay, because the launcher is inside; the
    slot's mark names their owner."""

    def end() -> None:
        end_job(groups)
        clean_up()
        os._exit(0)

    call_on_owner_exit(end)


def end_with_owner(groups: list[str], main_pid: int = 0) -> None:
    """Kills the job and exits. Leaves no outcome: the next worker of the job records it."""
    end_job(groups, main_pid)
    remove_groups(groups)
    os._exit(0)


def end_job(groups: list[str], main_pid: int = 0, reap: Callable[[], object] | None = None) -> None:
    """Kills all processes of the groups and all descendants of this process, except itself. `main_pid`: the
    client of a container, which is signalled first, to remove the container. `reap`: waits for ended
    processes."""
    reap = reap or _reap
    deadline_s = time.monotonic() + _TIMEOUT_S
    if main_pid:
        _send((main_pid,), _GIVE_UP)
    while time.monotonic() < deadline_s:
        alive = (_members(groups) | _descendants()) - {os.getpid()}
        if not alive:
            return
        _send(alive - {main_pid}, _signal.SIGKILL)
        reap()
        time.sleep(_PAUSE_S)
    _send((_members(groups) | _descendants()) - {os.getpid()}, _signal.SIGKILL)
    reap()


def remove_groups(paths: list[str]) -> None:
    """Removes empty groups and those below them. A process that has just ended is still counted for a
    moment."""
    for path in paths:
        for folder in [folder for folder, _, _ in os.walk(path, topdown=False)]:
            _remove_group(folder)


def _remove_group(path: str) -> None:
    for _ in range(_REMOVE_TRIES):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.002)
        else:
            return


def _send(pids: set[int] | tuple[int, ...], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass  # it has ended


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _members(groups: list[str]) -> set[int]:
    found: set[int] = set()
    for group in groups:
        for folder, _, _ in os.walk(group):
            try:
                with open(f"{folder}/cgroup.procs", "rb") as file:
                    found.update(map(int, file.read().split()))
            except OSError:
                pass  # it was just removed
    return found


def _descendants() -> set[int]:
    """Returns all processes started from here: orphans among them are children of this process."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                words = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if words[0] not in (b"Z", b"X"):
            parents[int(name)] = int(words[1])
    found: set[int] = set()
    border = {os.getpid()}
    while border:
        border = {pid for pid, parent in parents.items() if parent in border} - found
        found |= border
    return found
