"""Hosts of a run's attempts: slots, sessions, workers, and attempts adopted from an earlier driver."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from joblens.agent.attempts.hosts import QueueReports, RunReports, RunSessions, RunSlots
from joblens.agent.attempts.preparation import BESIDE, AttemptMaker, PreparedAttempt, RunSetup, signal_number
from joblens.agent.clusters.tickets import QueueSide, RunTickets
from joblens.agent.recovery.adoption import AdoptedJob
from joblens.agent.recovery.orphans import Recovery
from joblens.agent.recovery.settlement import Circumstances, Seen
from joblens.agent.runtime.ownership import alone
from joblens.agent.session.context import AgentContext
from joblens.agent.slots.after_kill import end_unknown
from joblens.agent.slots.loop import SlotPlan
from joblens.engine.life.job_life import EndCause
from joblens.engine.schedule.events import StartAttempt
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Record
from joblens.model.runs.run import RunFact
from joblens.model.writes import CancelAsked
from joblens.ports.store import Store

_PATIENCE_S = 30.0


class RunAdopted:
    def __init__(self, context: AgentContext, recovery: Recovery, reports: RunReports, user: str) -> None:
        self._context = context
        self._recovery = recovery
        self._reports = reports
        self._user = user
        self._adopted: dict[str, AdoptedJob] = {}
        self._elsewhere: dict[str, Record] = {}

    def settle(self, run_uuid: str, logs_dir: str) -> list[Record]:
        """Brings to their end the run's jobs of which nothing is left. -> those that still run"""
        with alone(self._context.spool_dir, "recovery", _PATIENCE_S):
            recorder = self._context.recorder
            recorder.write(self._recovery.unrecorded(recorder.read))
            unfinished = self._unfinished(run_uuid)
            found = self._recovery.orphans(unfinished)
            for record in found.dead:
                uuid = record.job.uuid
                self._settle(record, owns_groups=uuid not in found.superseded)
            for record in found.never_started:
                self._context.recorder.write(self._recovery.give_up(record))
            for record in found.adoptable:
                seen = self._read_seen(record.job.uuid)
                adopted = AdoptedJob(record, seen, self._context, self._recovery, self._ended)
                self._adopted[record.job.uuid] = adopted
            left = self._unfinished(run_uuid)
            end_unknown(self._context.spool_dir, logs_dir, self._context.host, left)
            for adopted in self._adopted.values():
                adopted.start()
        self._elsewhere = {one.job.uuid: one for one in left if one.job.uuid not in self._adopted}
        for record in left:
            if record.job.run is not None and record.job.run.index == BESIDE:
                self.end(record.job.uuid, at_once=True)  # it was cut off, and is run again
        return [one for one in left if one.job.run is not None and one.job.run.index != BESIDE]

    def _settle(self, record: Record, *, owns_groups: bool) -> None:
        uuid = record.job.uuid
        seen = self._read_seen(uuid)
        asked = self._context.recorder.read(lambda store: store.cancel_requests().get(uuid))
        asked_at_us = asked.asked_at_us if asked else None
        how = Circumstances(cancel_asked_at_us=asked_at_us, owns_groups=owns_groups)
        self._context.recorder.write(self._recovery.settle(record, seen, how))
        self._recovery.forget(uuid)

    def _read_seen(self, uuid: str) -> Seen:
        return self._context.recorder.read(lambda store: Seen(store.samples(uuid), store.details(uuid)))

    def _unfinished(self, run_uuid: str) -> list[Record]:
        return self._context.recorder.read(lambda store: store.running(run=run_uuid))

    def let_go(self, uuids: Iterable[str]) -> None:
        """Somebody else follows them."""
        for uuid in uuids:
            self._elsewhere.pop(uuid, None)

    def holds(self, uuid: str) -> bool:
        return uuid in self._adopted or uuid in self._elsewhere

    def end(self, uuid: str, *, at_once: bool) -> None:
        import signal

        adopted = self._adopted.get(uuid)
        if adopted is not None:
            adopted.ask_stop(EndCause.CANCELLED, signal.SIGKILL if at_once else signal.SIGTERM)
        elif uuid in self._elsewhere:
            self._context.recorder.put([CancelAsked(uuid, self._context.clock.now_us(), self._user)])

    def _ended(self, adopted: AdoptedJob) -> None:
        self._adopted.pop(adopted.job.uuid, None)
        self._tell(adopted.record)

    def _tell(self, record: Record) -> None:
        if record.outcome is not None:
            self._reports.ended(record.job.uuid, record.outcome)
        self._reports.recorded(record)

    def poll_elsewhere(self) -> None:
        """Asks the store for jobs that another process owns."""
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
                self._tell(record)


def _find_all(uuids: Iterable[str], store: Store) -> list[Record]:
    """A record that cannot be found does not hide the others."""
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
        end_signal = signal_number(setup.plan.execution.termination_signal)
        slots = SlotPlan(
            width=1,
            logs_dir=setup.logs_dir,
            output_max_bytes=setup.output_max_bytes,
            accounting=setup.accounting,
            env=maker.common_env,
        )
        self._slots = RunSlots(context, slots, reports, end_signal)
        self._sessions = RunSessions(
            context,
            {**setup.environ, **maker.common_env},
            reports,
            accounting=setup.accounting,
            output_max_bytes=setup.output_max_bytes,
            end_signal=end_signal,
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
        """Settles what an earlier driver left. -> what still runs, or waits for a worker"""
        running = self._adopted.settle(self._setup.run.uuid, self._setup.logs_dir)
        if self._tickets is not None:
            queued = [record for record in running if record.job.queue]
            self._adopted.let_go([record.job.uuid for record in queued])
            jobs = self._setup.plan.jobs
            followed = [one for one in queued if one.job.run is not None and one.job.run.index >= 0]
            self._tickets.follow(followed, [jobs[one.job.run.index] for one in followed if one.job.run])
        return running

    def expect_limited(self, count: int) -> None:
        if self._tickets is None:
            self._sessions.expect(count)

    def start(self, attempt: PreparedAttempt, start: StartAttempt, *, is_limited: bool) -> None:
        if attempt.refusal:
            self._sessions.refuse(attempt)
        elif self._tickets is not None:
            self._tickets.start(attempt, self._setup.plan.jobs[start.index])
        elif is_limited or attempt.job.container is not None:
            self._sessions.start(attempt)
        else:
            self._slots.start(attempt, start.requirements, behind=start.behind)

    def start_beside(self, attempt: PreparedAttempt) -> None:
        self._slots.start(attempt, None, behind=False)

    def flush(self) -> None:
        self._slots.flush()
        if self._tickets is not None:
            self._tickets.flush()

    def end(self, uuid: str, *, at_once: bool) -> None:
        for host in (self._slots, self._sessions, self._adopted, self._tickets):
            if host is not None and host.holds(uuid):
                host.end(uuid, at_once=at_once)

    def ask_for_nodes(self, action: int) -> None:
        """Of a cluster; elsewhere nobody asks."""
        if self._tickets is not None:
            self._tickets.ask_for_nodes(action)

    def is_with_workers(self, uuid: str) -> bool:
        return self._tickets is not None and self._tickets.holds(uuid)

    @property
    def is_idle(self) -> bool:
        return self._sessions.is_idle

    def settle(self) -> None:
        """All records are safe when this returns."""
        self._slots.close()

    def close(self, *, is_over: bool) -> None:
        self._sessions.close()
        self._slots.close(at_once=True)  # only after a fault: else nothing runs any more
        if self._tickets is not None:
            self._tickets.close(is_over=is_over)

    def wait(self) -> None:
        if self._tickets is not None:
            self._tickets.wait()

    def take_samples(self) -> None:
        """On the sampler's thread."""
        self._slots.take_samples()

    def poll_elsewhere(self) -> None:
        self._adopted.poll_elsewhere()
