"""Launchers that wait inside fresh groups for the next job, so that its start has nothing slow left to do.

Starting a Python and having the kernel move a process into control groups takes tens of milliseconds, most
of it waiting. Both need to know nothing of the job, so they are done while other jobs run."""

from collections import deque
from collections.abc import Callable
from functools import partial

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.launcher.launch import LauncherProcess
from joblens.agent.session.context import AgentContext, PreparedLauncher
from joblens.model.errors import JoblensError, LaunchError
from joblens.model.jobs.job import Accounting
from joblens.model.values.ids import new_uuid


class Standby:
    """Keeps up to `most` places ready. Everything happens on the loop and nothing waits: a place that is
    not ready when it is wanted is simply not there, and the job starts the slow way."""

    def __init__(self, context: AgentContext, accounting: Accounting) -> None:
        self._context = context
        self._accounting = accounting
        self._ready: deque[PreparedLauncher] = deque()
        self._coming: dict[int, LauncherProcess] = {}  # by their sockets
        self._groups: dict[int, JobGroups | None] = {}
        self._is_off = False

    def want(self, count: int) -> None:
        """From now on as many are to be ready; more come, none is sent away."""
        if self._is_off:
            return
        for _ in range(count - len(self._ready) - len(self._coming)):
            try:
                launcher = LauncherProcess(None)
            except LaunchError:
                self._is_off = True  # jobs start the slow way, and say what is wrong
                return
            self._coming[launcher.socket] = launcher
            self._context.loop.watch(launcher.socket, self._step(launcher, self._has_greeted))

    def take(self) -> PreparedLauncher | None:
        return self._ready.popleft() if self._ready else None

    def close(self) -> None:
        self._is_off = True
        for launcher in list(self._coming.values()):
            self._give_up(launcher)
        while self._ready:
            place = self._ready.popleft()
            _send_away(place.launcher, place.groups)

    def _step(self, launcher: LauncherProcess, then: Callable[[LauncherProcess], None]) -> Callable[[], None]:
        return partial(self._try, launcher, then)

    def _try(self, launcher: LauncherProcess, then: Callable[[LauncherProcess], None]) -> None:
        try:
            then(launcher)
        except (JoblensError, OSError):
            self._is_off = True
            self._give_up(launcher)

    def _has_greeted(self, launcher: LauncherProcess) -> None:
        launcher.greeted()
        groups = self._context.accountant.groups_for_process(new_uuid(), self._accounting, launcher.pid)
        self._groups[launcher.socket] = groups
        self._context.loop.unwatch(launcher.socket)
        self._context.loop.watch(launcher.socket, self._step(launcher, self._has_joined))
        launcher.join(groups.attach_files() if groups else ())

    def _has_joined(self, launcher: LauncherProcess) -> None:
        launcher.joined()
        self._context.loop.unwatch(launcher.socket)
        del self._coming[launcher.socket]
        self._ready.append(PreparedLauncher(launcher, self._groups.pop(launcher.socket)))

    def _give_up(self, launcher: LauncherProcess) -> None:
        self._context.loop.unwatch(launcher.socket)
        del self._coming[launcher.socket]
        _send_away(launcher, self._groups.pop(launcher.socket, None))


def _send_away(launcher: LauncherProcess, groups: JobGroups | None) -> None:
    """Its child ends with it."""
    launcher.abandon()
    if groups is not None:
        groups.kill()
        groups.remove()
