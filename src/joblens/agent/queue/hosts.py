"""Hosts of a worker's jobs: slots that plain jobs share, and sessions of their own for the others."""

from joblens.agent.attempts.hosts import RunReports, RunSessions, RunSlots
from joblens.agent.attempts.preparation import PreparedAttempt
from joblens.agent.queue.claimed_jobs import ClaimedJob, WorkerPlan
from joblens.agent.session.context import AgentContext
from joblens.agent.slots.loop import SlotPlan
from joblens.engine.life.worker_capacity import Share

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
        self._context.sampler.add(_SLOTS, _SLOTS_EVERY_S, self._slots.take_samples)

    def end_samples(self) -> None:
        self._context.sampler.remove(_SLOTS)

    def start(self, held: ClaimedJob, share: Share) -> None:
        """Jobs in slots start with the next `flush`."""
        attempt = held.with_devices(share.devices)
        if held.is_plain:
            self._slots.start(attempt, share.weight, behind=share.is_behind)
        else:
            self._sessions.expect(2)  # another may follow: a launcher stands by
            self._sessions.start(attempt)

    def start_beside(self, attempt: PreparedAttempt) -> None:
        """Runs a command of a worker action."""
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
