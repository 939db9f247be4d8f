"""Session host: starts jobs on the loop, stops them, and notifies its owner of their ends.

Every owner of jobs has one: a command in the foreground, the Python API, a run, a worker, the supervisor.
Starting Python and moving a process into control groups takes tens of milliseconds, most of it waiting.
Neither depends on the job, so `Standby` does both while other jobs run."""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.launcher.launch import LauncherProcess, LaunchPlan
from joblens.agent.measuring.outcome import not_started
from joblens.agent.session.context import AgentContext, PreparedLauncher
from joblens.agent.session.session import JobSession
from joblens.agent.terminal.streams import OutputFiles
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import JoblensError, LaunchError
from joblens.model.jobs.job import Accounting, Job, Record
from joblens.model.values.ids import new_uuid
from joblens.model.writes import CancelAsked, JobEnded, JobQueued

_MAX_STANDBY, _MORE_STANDBY = 12, 2


class SessionOrder(Struct, frozen=True, kw_only=True):
    """Job to start, and the folder of its output."""

    job: Job
    plan: LaunchPlan  # its streams are set by the host
    folder: str
    output_max_bytes: int
    streams: str = ""  # as in `slot_launcher`


class HostedJob(Protocol):
    """A job on a host: a session, or a job adopted from an earlier owner."""

    job: Job
    record: Record
    error: JoblensError | None

    @property
    def is_stopping(self) -> bool: ...

    @property
    def is_steady(self) -> bool: ...

    def start(self) -> None: ...

    def request_stop(self, cause: EndCause, number: int = ...) -> None: ...

    def kill(self) -> None: ...


class SessionHost:
    """Runs on the loop."""

    def __init__(
        self,
        context: AgentContext,
        *,
        on_end: Callable[[Record, JoblensError | None], None],
        on_outcome: Callable[[Record], None] | None = None,
        accounting: Accounting | None = None,
    ) -> None:
        """Calls `on_outcome` once an outcome is known and `on_end` once it is in the store, with the reason
        if the job could not be started. Prepares launchers for jobs with this `accounting`."""
        self._context = context
        self._on_end = on_end
        self._on_outcome = on_outcome
        self._accounting = accounting
        self._standby = Standby(context, accounting) if accounting is not None else None
        self._hosted: dict[str, HostedJob] = {}
        self._refused: set[str] = set()  # not in the store yet
        self._expected = 0
        self._spare = 1  # launchers beyond one for each job that runs
        self._has_started = False

    def expect(self, count: int) -> None:
        """Sets how many jobs are expected to start: launchers are prepared for the next few."""
        self._expected = count

    def start(self, order: SessionOrder) -> JobSession:
        """Raises LaunchError if the output files cannot be made. Any other reason why the job cannot start is
        in its record and in `error`."""
        try:
            output = OutputFiles(order.folder, order.output_max_bytes, order.streams)
        except OSError as error:
            why = f"the job could not be started: its output files cannot be created: {error}"
            raise LaunchError(why) from error
        session = JobSession(
            order.job,
            replace(order.plan, stdio=("/dev/null", *_output_paths(order.streams, output))),
            self._context,
            output=output,
            on_outcome=self.handle_outcome,
            on_end=self.handle_end,
            prepared=self._take_launcher(order.job),
        )
        self.add(session)
        if self._standby is not None:
            self._expected -= 1
            if session.error is None:
                self._standby.want(min(_MAX_STANDBY, self._expected, len(self._hosted) + self._spare))
        return session

    def add(self, hosted: HostedJob) -> None:
        """Starts a job whose callbacks are `handle_outcome` and `handle_end`."""
        uuid = hosted.job.uuid
        self._hosted[uuid] = hosted
        try:
            hosted.start()
        except BaseException:
            self._hosted.pop(uuid, None)
            raise

    def refuse(self, job: Job, error: JoblensError) -> None:
        """Records a job that cannot be started, with the reason."""
        outcome = not_started(job, error, self._context.clock.now_us())
        record = Record(status=outcome.status, job=job, outcome=outcome)

        def recorded() -> None:
            self._refused.discard(job.uuid)
            self._on_end(record, error)

        self._refused.add(job.uuid)
        self._context.recorder.put(
            [JobQueued(job), JobEnded(job.uuid, outcome)], then=partial(self._context.loop.call, recorded)
        )
        if self._on_outcome is not None:
            self._on_outcome(record)

    def holds(self, uuid: str) -> bool:
        return uuid in self._hosted or uuid in self._refused

    def __len__(self) -> int:
        return len(self._hosted) + len(self._refused)

    @property
    def is_steady(self) -> bool:
        """Returns whether every job runs and no work is in progress that only this process can finish."""
        return not self._refused and all(hosted.is_steady for hosted in self._hosted.values())

    def stop(self, uuid: str, number: int) -> None:
        if (hosted := self._hosted.get(uuid)) is not None:
            hosted.request_stop(EndCause.CANCELLED, number)

    def stop_all(self, cause: EndCause) -> None:
        for hosted in list(self._hosted.values()):
            hosted.request_stop(cause)

    def poll_cancels(self) -> None:
        """Polls the store for jobs to cancel."""
        self._context.recorder.poll_cancels(self.cancel, self._context.loop.call)

    def cancel(self, requests: Mapping[str, CancelAsked]) -> None:
        """Stops each requested job once."""
        for uuid in requests:
            hosted = self._hosted.get(uuid)
            if hosted is not None and not hosted.is_stopping:
                hosted.request_stop(EndCause.CANCELLED)

    def close(self) -> None:
        """Kills the running jobs; each launcher leaves the outcome for the next owner."""
        for hosted in list(self._hosted.values()):
            with suppress(Exception):
                hosted.kill()
        if self._standby is not None:
            self._standby.close()

    def handle_outcome(self, hosted: HostedJob) -> None:
        if self._on_outcome is not None:
            self._on_outcome(hosted.record)

    def handle_end(self, hosted: HostedJob) -> None:
        self._hosted.pop(hosted.job.uuid, None)
        self._on_end(hosted.record, hosted.error)

    def _take_launcher(self, job: Job) -> PreparedLauncher | None:
        if self._standby is None or job.container is not None or job.accounting is not self._accounting:
            return None  # launchers are prepared for other jobs
        launcher = self._standby.take()
        if launcher is None and self._has_started:
            self._spare += _MORE_STANDBY  # jobs start faster than launchers
        self._has_started = True
        return launcher


def _output_paths(streams: str, output: OutputFiles) -> tuple[str, str]:
    out = "/dev/null" if "o" in streams else output.stdout.path
    if "c" in streams:
        return out, out
    return out, "/dev/null" if "e" in streams else output.stderr.path


class Standby:
    """Prepared launchers. Never waits: without a ready one, a job starts its own launcher."""

    def __init__(self, context: AgentContext, accounting: Accounting) -> None:
        self._context = context
        self._accounting = accounting
        self._ready: deque[PreparedLauncher] = deque()
        self._coming: dict[int, LauncherProcess] = {}  # by their sockets
        self._groups: dict[int, JobGroups | None] = {}
        self._is_off = False

    def want(self, count: int) -> None:
        """Prepares launchers until this many are ready or starting."""
        if self._is_off:
            return
        for _ in range(count - len(self._ready) - len(self._coming)):
            try:
                launcher = LauncherProcess(None)
            except LaunchError:
                self._is_off = True  # jobs start their own launchers and report the problem
                return
            self._coming[launcher.socket] = launcher
            self._context.loop.watch(launcher.socket, partial(self._try, launcher, self._join))

    def take(self) -> PreparedLauncher | None:
        return self._ready.popleft() if self._ready else None

    def close(self) -> None:
        self._is_off = True
        for launcher in list(self._coming.values()):
            self._give_up(launcher)
        while self._ready:
            prepared = self._ready.popleft()
            _dismiss(prepared.launcher, prepared.groups)

    def _try(self, launcher: LauncherProcess, step: Callable[[LauncherProcess], None]) -> None:
        try:
            step(launcher)
        except (JoblensError, OSError):
            self._is_off = True
            self._give_up(launcher)

    def _join(self, launcher: LauncherProcess) -> None:
        launcher.wait_until_up()
        groups = self._context.accountant.groups_for_process(new_uuid(), self._accounting, launcher.pid)
        self._groups[launcher.socket] = groups
        self._context.loop.unwatch(launcher.socket)
        self._context.loop.watch(launcher.socket, partial(self._try, launcher, self._make_ready))
        launcher.join(groups.attach_files() if groups else ())

    def _make_ready(self, launcher: LauncherProcess) -> None:
        launcher.wait_until_joined()
        self._context.loop.unwatch(launcher.socket)
        del self._coming[launcher.socket]
        self._ready.append(PreparedLauncher(launcher, self._groups.pop(launcher.socket)))

    def _give_up(self, launcher: LauncherProcess) -> None:
        self._context.loop.unwatch(launcher.socket)
        del self._coming[launcher.socket]
        _dismiss(launcher, self._groups.pop(launcher.socket, None))


def _dismiss(launcher: LauncherProcess, groups: JobGroups | None) -> None:
    """Stops a launcher; its child is killed with it."""
    launcher.abandon()
    if groups is not None:
        groups.kill()
        groups.remove()
