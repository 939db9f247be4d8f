"""Worker actions of runs: the commands of on_worker_start and on_worker_complete.

A worker begins to serve a run with its first job of it, which waits for the commands. It stops when the run
is over, and when the worker itself leaves; a later job runs the start commands again. Commands are recorded
and measured like those of other actions. A failed command ends its action; jobs run nevertheless."""

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from joblens.agent.attempts.preparation import PreparedAttempt, safe_name
from joblens.agent.queue.claimed_jobs import ClaimedJobs
from joblens.agent.session.context import AgentContext
from joblens.model.delivery import Order, WorkerActions, WorkerCommand
from joblens.model.errors import UnknownRun
from joblens.model.jobs.job import Outcome, Status
from joblens.model.redaction.secrets import SecretValues
from joblens.model.runs.run import ActionRan, RunEvent, RunStatus
from joblens.model.values.ids import new_uuid
from joblens.model.writes import RunNoted
from joblens.ports.store import Store

_POLL_S = 2.0  # between polls whether runs are over


class _Service:
    """One run. `commands` remain to be run, the first of them runs under `uuid`."""

    def __init__(self, actions: WorkerActions, secrets: SecretValues) -> None:
        self.actions = actions
        self.secrets = secrets
        self.commands = list(actions.on_start)
        self.uuid = ""
        self.is_leaving = False

    @property
    def is_ready(self) -> bool:
        return not self.commands and not self.is_leaving


class ServedRuns:
    """Runs with worker actions, on the loop; loop.Timed."""

    def __init__(
        self,
        worker: str,
        context: AgentContext,
        maker: ClaimedJobs,
        *,
        start: Callable[[PreparedAttempt], None],
        report: Callable[[str, bool | None], None],
    ) -> None:
        """`start` executes a command and then calls `ended`. `report` gets the uuid of a run and whether its
        jobs may start; None: the worker no longer serves it."""
        self._worker = worker
        self._context = context
        self._maker = maker
        self._start = start
        self._report = report
        self._services: dict[str, _Service] = {}  # by the run's uuid
        self._unrecorded: set[str] = set()  # commands that are not completely in the store yet
        self._is_polling = False
        self._next_poll_s = 0.0

    def serve(self, order: Order) -> None:
        """Begins to serve the run of a job."""
        actions = order.worker_actions
        if actions is None or actions.run in self._services:
            return
        service = self._services[actions.run] = _Service(actions, SecretValues(order.secrets))
        self._next_poll_s = self._now_s() + _POLL_S
        self._run_next(service)
        if service.is_ready:
            self._report(actions.run, True)

    def leave(self) -> bool:
        """Stops serving all runs. Returns whether their commands have ended and are recorded."""
        for service in list(self._services.values()):
            self._stop(service)
        return not self._services and not self._unrecorded

    def ended(self, uuid: str, outcome: Outcome) -> None:
        """Handles the end of a command; ignores other attempts."""
        service = next((one for one in self._services.values() if one.uuid == uuid), None)
        if service is None:
            return
        done, service.uuid = service.commands.pop(0), ""
        self._note(service, done, uuid, outcome.status)
        if outcome.status is not Status.SUCCESS:
            service.commands = [one for one in service.commands if one.action != done.action]
        self._run_next(service)
        if service.is_ready:
            self._report(service.actions.run, True)

    def recorded(self, uuid: str) -> None:
        """Notes that a command is recorded."""
        self._unrecorded.discard(uuid)

    def _now_s(self) -> float:
        return self._context.clock.mono_ns() / 1e9

    # ---- timed ---------------------------------------------------------------------------------------------

    def next_wake_s(self) -> float | None:
        is_due = any(service.is_ready for service in self._services.values()) and not self._is_polling
        return self._next_poll_s if is_due else None

    def wake(self) -> None:
        runs = [run for run, service in self._services.items() if service.is_ready]
        if not runs or self._is_polling or self._now_s() < self._next_poll_s:
            return
        self._is_polling = True
        loop = self._context.loop
        self._context.recorder.ask(
            lambda store: [run for run in runs if _is_over(store, run)],
            lambda over: loop.call(partial(self._take_answer, over)),
            lambda _error: loop.call(partial(self._take_answer, [])),
        )

    def _take_answer(self, over: list[str]) -> None:
        self._is_polling = False
        self._next_poll_s = self._now_s() + _POLL_S
        for run in over:
            service = self._services.get(run)
            if service is not None:
                self._stop(service)

    # ---- commands ------------------------------------------------------------------------------------------

    def _stop(self, service: _Service) -> None:
        """Waits for the running start command, skips the others, and runs the commands of the end."""
        if service.is_leaving:
            return
        service.is_leaving = True
        self._report(service.actions.run, False)
        service.commands = [*service.commands[: bool(service.uuid)], *service.actions.on_complete]
        if not service.uuid:
            self._run_next(service)

    def _run_next(self, service: _Service) -> None:
        if service.commands:
            attempt = self._attempt(service.actions, service.commands[0])
            service.uuid = attempt.job.uuid
            self._unrecorded.add(service.uuid)
            self._context.add_secrets(service.secrets, service.uuid)
            self._start(attempt)
        elif service.is_leaving:
            self._services.pop(service.actions.run, None)
            self._report(service.actions.run, None)

    def _attempt(self, actions: WorkerActions, command: WorkerCommand) -> PreparedAttempt:
        name = f"{command.job.name}@{self._worker}"
        job = replace(
            command.job,
            uuid=new_uuid(),
            name=name,
            created_at_us=self._context.clock.now_us(),
            created_by=self._context.owner,
            cwd=self._maker.here(command.job.cwd),
        )
        folder = f"{self._maker.here(command.folder)}@{safe_name(self._worker)}"
        return PreparedAttempt(job, command.argv, actions.env, folder, "")

    def _note(self, service: _Service, done: WorkerCommand, uuid: str, status: Status) -> None:
        fact = ActionRan(done.action, done.command, uuid, status, self._worker)
        event = RunEvent(new_uuid(), service.actions.run, self._context.clock.now_us(), fact)
        self._context.recorder.put([RunNoted(event)])


def _is_over(store: Store, run: str) -> bool:
    try:
        return store.find_run(run).status not in (RunStatus.CREATED, RunStatus.RUNNING)
    except UnknownRun:
        return True
