"""Attempts that an earlier driver of the run began and that still go on: those of a dead owner are looked
after here, those that another process (the supervisor) has adopted are followed in the store."""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from joblens.agent.attempts.preparation import BESIDE
from joblens.agent.attempts.reports import RunReports
from joblens.agent.recovery.adopted import AdoptedJob
from joblens.agent.recovery.orphans import Recovery
from joblens.agent.recovery.settling import Circumstances, Seen
from joblens.agent.runtime.locks import alone
from joblens.agent.session.context import AgentContext, watch_name
from joblens.agent.slots.after_kill import end_unknown
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Record
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

    # ---- on the sampler's thread -----------------------------------------------------------------------

    def look(self) -> None:
        """At those that another process looks after."""
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

    def take_sample(self, name: str) -> None:
        uuid = name.removeprefix(watch_name(""))
        adopted = self._adopted.get(uuid)
        if adopted is not None and name == uuid:
            adopted.take_sample()
        elif adopted is not None:
            adopted.watch_limits()


def _find_all(uuids: Iterable[str], store: Store) -> list[Record]:
    """A record that cannot be found does not hide the others."""
    found: list[Record] = []
    for uuid in uuids:
        with suppress(JoblensError):
            found.append(store.find(uuid))
    return found
