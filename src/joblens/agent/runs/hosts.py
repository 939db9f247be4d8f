"""Hosts of a run's attempts: slots, sessions, workers, and attempts adopted from an earlier driver."""

import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from joblens.agent.attempts.hosts import AttemptHosts, QueueReports, RunReports
from joblens.agent.attempts.preparation import (
    AUXILIARY,
    AttemptMaker,
    PreparedAttempt,
    RunSetup,
    signal_number,
)
from joblens.agent.clusters.tickets import QueueSide, RunTickets
from joblens.agent.recovery.adoption import AdoptedJob
from joblens.agent.recovery.orphans import Recovery, read_history
from joblens.agent.runtime.ownership import exclusive_lock
from joblens.agent.session.context import AgentContext
from joblens.agent.session.host import SessionHost
from joblens.agent.slots.after_kill import kill_unrecorded
from joblens.agent.slots.loop import SlotPlan
from joblens.engine.schedule.events import StartAttempt
from joblens.model.errors import JoblensError, LaunchError
from joblens.model.jobs.job import Record
from joblens.model.runs.run import RunFact
from joblens.model.writes import CancelAsked
from joblens.ports.store import Store

_TIMEOUT_S = 30.0


class RunAdopted:
    def __init__(self, context: AgentContext, recovery: Recovery, reports: RunReports, user: str) -> None:
        self._context = context
        self._recovery = recovery
        self._reports = reports
        self._user = user
        self._host = SessionHost(context, on_end=lambda record, _error: self._report(record))
        self._elsewhere: dict[str, Record] = {}

    def finalize(self, run_uuid: str, logs_dir: str) -> list[Record]:
        """Finalizes jobs of the run without processes. Returns those that still run."""
        with exclusive_lock(self._context.spool_dir, "recovery", _TIMEOUT_S):
            recorder = self._context.recorder
            recorder.write(self._recovery.unrecorded(recorder.read))
            unfinished = self._unfinished(run_uuid)
            found = self._recovery.orphans(unfinished)
            for record in found.dead:
                uuid = record.job.uuid
                self._recovery.finalize_stored(record, recorder, owns_groups=uuid not in found.superseded)
            for record in found.never_started:
                self._context.recorder.write(self._recovery.give_up(record))
            adopted: list[AdoptedJob] = []
            for record in found.adoptable:
                history = read_history(recorder, record.job.uuid)
                adopted.append(
                    AdoptedJob(record, history, self._context, self._recovery, self._host.handle_end)
                )
            left = self._unfinished(run_uuid)
            kill_unrecorded(self._context.spool_dir, logs_dir, self._context.host, left)
            for one in adopted:
                self._host.add(one)
        self._elsewhere = {one.job.uuid: one for one in left if not self._host.holds(one.job.uuid)}
        for record in left:
            if record.job.run is not None and record.job.run.index == AUXILIARY:
                self.end(record.job.uuid, at_once=True)  # it was interrupted, and runs again
        return [one for one in left if one.job.run is not None and one.job.run.index != AUXILIARY]

    def _unfinished(self, run_uuid: str) -> list[Record]:
        return self._context.recorder.read(lambda store: store.running(run=run_uuid))

    def let_go(self, uuids: Iterable[str]) -> None:
        """Stops following these jobs: another process does."""
        for uuid in uuids:
            self._elsewhere.pop(uuid, None)

    def end(self, uuid: str, *, at_once: bool) -> None:
        self._host.stop(uuid, signal.SIGKILL if at_once else signal.SIGTERM)
        if uuid in self._elsewhere:
            self._context.recorder.put([CancelAsked(uuid, self._context.clock.now_us(), self._user)])

    def _report(self, record: Record) -> None:
        if record.outcome is not None:
            self._reports.ended(record.job.uuid, record.outcome)
        self._reports.recorded(record)

    def poll_elsewhere(self) -> None:
        """Polls the store for jobs that another process owns."""
        elsewhere = list(self._elsewhere)
        if elsewhere:
            self._context.recorder.ask(
                partial(_find_all, elsewhere),
                lambda records: self._context.loop.call(partial(self._take_news, records)),
                name="adopted elsewhere",
            )

    def _take_news(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.status.is_final and self._elsewhere.pop(record.job.uuid, None) is not None:
                self._report(record)


def _find_all(uuids: Iterable[str], store: Store) -> list[Record]:
    """Returns the records that can be found."""
    found: list[Record] = []
    for uuid in uuids:
        with suppress(JoblensError):
            found.append(store.find(uuid))
    return found


class RunHosts:
    def __init__(
        self,
        setup: RunSetup,
        context: AgentContext,
        recovery: Recovery,
        maker: AttemptMaker,
        reports: QueueReports,
        *,
        side: QueueSide | None,
        note: Callable[[str], None],
        note_fact: Callable[[RunFact], None],
    ) -> None:
        self._setup = setup
        slots = SlotPlan(
            width=1,
            logs_dir=setup.logs_dir,
            output_max_bytes=setup.output_max_bytes,
            accounting=setup.accounting,
            env=maker.common_env,
        )
        self._here = AttemptHosts(
            context,
            slots,
            reports,
            environ={**setup.environ, **maker.common_env},
            end_signal=signal_number(setup.plan.execution.termination_signal),
        )
        self._adopted = RunAdopted(context, recovery, reports, setup.user)
        self._tickets: RunTickets | None = None
        if side is not None:
            self._tickets = RunTickets(
                context,
                side,
                reports,
                common_env=maker.common_env,
                worker_actions=maker.make_worker_actions(),
                user=setup.user,
                note=note,
                note_fact=note_fact,
            )

    def adopt(self) -> list[Record]:
        """Finalizes jobs of an earlier driver. Returns those that still run, or wait for a worker."""
        running = self._adopted.finalize(self._setup.run.uuid, self._setup.logs_dir)
        if self._tickets is not None:
            queued = [record for record in running if record.job.queue]
            self._adopted.let_go([record.job.uuid for record in queued])
            jobs = self._setup.plan.jobs
            followed = [one for one in queued if one.job.run is not None and one.job.run.index >= 0]
            self._tickets.follow(followed, [jobs[one.job.run.index] for one in followed if one.job.run])
        return running

    def expect_limited(self, count: int) -> None:
        if self._tickets is None:
            self._here.sessions.expect(count)

    def start(self, attempt: PreparedAttempt, start: StartAttempt, *, is_limited: bool) -> None:
        if attempt.refusal:
            self._here.sessions.refuse(attempt.job, LaunchError(attempt.refusal))
        elif self._tickets is not None:
            self._tickets.start(attempt, self._setup.plan.jobs[start.index])
        elif is_limited or attempt.job.container is not None:
            self._here.start_session(attempt)
        else:
            self._here.slots.start(attempt, start.requirements, behind=start.behind)

    def start_auxiliary(self, attempt: PreparedAttempt) -> None:
        self._here.slots.start(attempt, None, behind=False)

    def flush(self) -> None:
        self._here.slots.flush()
        if self._tickets is not None:
            self._tickets.flush()

    def end(self, uuid: str, *, at_once: bool) -> None:
        self._here.end(uuid, at_once=at_once)
        self._adopted.end(uuid, at_once=at_once)
        if self._tickets is not None and self._tickets.holds(uuid):
            self._tickets.end(uuid, at_once=at_once)

    def ask_for_nodes(self, action: int) -> None:
        """Requests nodes from a cluster, if there is one."""
        if self._tickets is not None:
            self._tickets.ask_for_nodes(action)

    def is_with_workers(self, uuid: str) -> bool:
        return self._tickets is not None and self._tickets.holds(uuid)

    @property
    def is_idle(self) -> bool:
        return not self._here.sessions

    def finalize(self) -> None:
        """Returns when all records are safe."""
        self._here.slots.close()

    def close(self, *, is_over: bool) -> None:
        self._here.close()  # kills jobs only after a fault: otherwise none runs
        if self._tickets is not None:
            self._tickets.close(is_over=is_over)

    def wait(self) -> None:
        if self._tickets is not None:
            self._tickets.wait()

    def take_samples(self) -> None:
        """Called on the sampler's thread."""
        self._here.slots.take_samples()

    def poll_elsewhere(self) -> None:
        self._adopted.poll_elsewhere()
