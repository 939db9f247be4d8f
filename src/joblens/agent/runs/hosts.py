"""Those who carry out the attempts of a run. Jobs without limits run in slots, the others in sessions of
their own, or all of them on workers of a queue; what an earlier driver had begun is followed to its end.
Commands beside the jobs always run here."""

from collections.abc import Callable

from joblens.agent.attempts.preparation import AttemptMaker, PreparedAttempt, RunSetup, signal_number
from joblens.agent.attempts.reports import QueueReports
from joblens.agent.attempts.sessions import RunSessions
from joblens.agent.attempts.slots import RunSlots
from joblens.agent.clusters.tickets import QueueSide, RunTickets
from joblens.agent.recovery.orphans import Recovery
from joblens.agent.runs.adopted import RunAdopted
from joblens.agent.session.context import AgentContext
from joblens.agent.slots.loop import SlotPlan
from joblens.engine.schedule.events import StartAttempt
from joblens.model.jobs.job import Record
from joblens.model.runs.run import RunFact


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

    # ---- on the sampler's thread -----------------------------------------------------------------------

    def take_samples(self) -> None:
        self._slots.take_samples()

    def take_sample(self, name: str) -> None:
        self._sessions.take_sample(name)
        self._adopted.take_sample(name)

    def look(self) -> None:
        self._adopted.look()
