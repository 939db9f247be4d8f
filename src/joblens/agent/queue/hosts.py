"""Who carries out a worker's jobs: slots those without limits, sessions of their own the others."""

from joblens.agent.attempts.preparation import PreparedAttempt
from joblens.agent.attempts.reports import RunReports
from joblens.agent.attempts.sessions import RunSessions
from joblens.agent.attempts.slots import RunSlots
from joblens.agent.queue.capacity import Taken
from joblens.agent.queue.claimed_jobs import ClaimedJob
from joblens.agent.queue.worker_plan import WorkerPlan
from joblens.agent.session.context import AgentContext
from joblens.agent.slots.loop import SlotPlan

_SLOTS = "worker:slots"
_SLOTS_EVERY_S = 1.0


class WorkerHosts:
    def __init__(self, plan: WorkerPlan, context: AgentContext, reports: RunReports) -> None:
        self._context = context
        slots = SlotPlan(
            width=1,
            logs_dir=plan.logs_dir,
            output_max_bytes=plan.output_max_bytes,
            accounting=plan.accounting,
        )
        self._slots = RunSlots(context, slots, reports, plan.end_signal)
        self._sessions = RunSessions(
            context,
            plan.environ,
            reports,
            accounting=plan.accounting,
            output_max_bytes=plan.output_max_bytes,
            end_signal=plan.end_signal,
        )

    def begin_samples(self) -> None:
        self._context.sampler.add(_SLOTS, _SLOTS_EVERY_S)

    def end_samples(self) -> None:
        self._context.sampler.remove(_SLOTS)

    def take_sample(self, name: str) -> None:
        """On the sampler's thread."""
        if name == _SLOTS:
            self._slots.take_samples()
        else:
            self._sessions.take_sample(name)

    def start(self, held: ClaimedJob, taken: Taken) -> None:
        """It goes with the next `flush`."""
        attempt = held.with_devices(taken.devices)
        if held.is_plain:
            self._slots.start(attempt, taken.weight, behind=taken.is_behind)
        else:
            self._sessions.expect(2)  # where there was one there may be another: a launcher stands by
            self._sessions.start(attempt)

    def start_beside(self, attempt: PreparedAttempt) -> None:
        """A command that is no job of anybody's."""
        self._sessions.start(attempt)

    def flush(self) -> None:
        self._slots.flush()

    def end(self, uuid: str, *, at_once: bool) -> None:
        for host in (self._slots, self._sessions):
            if host.holds(uuid):
                host.end(uuid, at_once=at_once)

    def close(self) -> None:
        self._slots.close(at_once=True)
        self._sessions.close()
