"""Answers to the questions that commands ask a server in place of a store (`model.questions`). A caller
that may only see own jobs gets the answers of a store that has no others."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from joblens.app.jobs.series import check_columns
from joblens.app.server.access import Principal
from joblens.app.server.runs import find_workflow
from joblens.model import questions as q
from joblens.model.access import Scope
from joblens.model.errors import AmbiguousJob, UnknownJob, UnknownRun
from joblens.model.history import HistoryQuery, Page, Statistics, TaggedJobs
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Record, Status
from joblens.model.jobs.sample import Sample, SampleSeries
from joblens.model.runs.run import Run, Workflow
from joblens.model.sql import SqlAnswer, SqlLimits
from joblens.ports.store import QueueStore
from joblens.stores.samples.blocks import runs_of_indexes
from joblens.stores.samples.rows import encode_piece

_BLOCK = 2000  # samples
_SQL = SqlLimits()  # no more for one who asks over the network


class Answering:
    """Answers to one caller."""

    def __init__(self, store: QueueStore, caller: Principal) -> None:
        self._store = store
        self._caller = caller
        self._sees_all = caller.scope is Scope.ALL

    # ---- jobs

    def find(self, question: q.OneJob) -> Record:
        return self._caller.find(
            lambda: self._store.find(question.ident),
            lambda record: record.job.user,
            self._caller.unknown_job(question.ident),
        )

    def page(self, question: q.JobQuery) -> Page:
        limit = q.MOST_RECORDS if question.limit is None else min(question.limit, q.MOST_RECORDS)
        return self._store.page(replace(self._caller.visible(question), limit=limit))

    def count(self, question: q.JobQuery) -> q.Count:
        return q.Count(self._store.count(self._caller.visible(question)))

    def statistics(self, question: q.JobQuery) -> Statistics:
        return self._store.statistics(self._caller.visible(question))

    def tagged(self, question: q.TagPrefix) -> q.Tagged:
        found = self._store.tagged(question.prefix)
        if not self._sees_all:
            own = [mine for each in found if (mine := self._own_part(each)) is not None]
            found = sorted(own, key=lambda each: each.began_at_us, reverse=True)
        return q.Tagged(tuple(found))

    def running(self, question: q.RunningQuery) -> q.RunningAnswer:
        found = self._store.running(user=question.user, run=question.run)
        items = [
            number
            if (number := record.number) is not None
            and question.known.get(number) == q.digest_of_record(record)
            else record
            for record in found
            if self._caller.may_see_user(record.job.user)
        ]
        return q.RunningAnswer(tuple(items))

    def cancel_requests(self, _question: q.Nothing) -> q.CancelRequests:
        found = self._store.cancel_requests()
        visible = self._visible(found)
        return q.CancelRequests(tuple(each for uuid, each in found.items() if uuid in visible))

    def samples(self, question: q.SamplesQuery) -> q.SampleBlocks:
        if not self._visible([question.uuid]):
            return q.SampleBlocks(blocks=())
        most = q.MOST_SAMPLES if question.most is None else min(question.most, q.MOST_SAMPLES)
        found = self._store.samples(question.uuid, question.after, most + 1)
        is_cut = len(found) > most and most == q.MOST_SAMPLES
        return q.SampleBlocks(blocks=_blocks(found[:most]), has_more=is_cut)

    def series(self, question: q.SeriesQuery) -> SampleSeries:
        if not self._visible([question.uuid]):
            return SampleSeries([], {name: [] for name in question.names})
        check_columns(question.names)
        return self._store.series(question.uuid, question.names, question.from_us, question.to_us)

    def tails(self, question: q.TailsQuery) -> q.SampleTails:
        visible = self._visible(question.after)
        after = {uuid: position for uuid, position in question.after.items() if uuid in visible}
        found = self._store.tails(after, question.most) if after else {}
        return q.SampleTails({uuid: _blocks(samples) for uuid, samples in found.items()})

    def details(self, question: q.OneJob) -> Details:
        return self._store.details(question.ident) if self._visible([question.ident]) else Details()

    def provenance(self, question: q.ProvenanceQuery) -> q.ProvenanceAnswer:
        """Programs and paths of others must not be read by a digest alone."""
        if not self._sees_all:
            record = self.find(q.OneJob(question.job)) if question.job else None
            attempt = None if record is None else record.attempt
            if attempt is None or attempt.provenance != question.digest:
                return q.ProvenanceAnswer(None)
        return q.ProvenanceAnswer(self._store.provenance(question.digest))

    def annotations(self, question: q.OneJob) -> q.Notes:
        found = self._store.annotations(question.ident) if self._visible([question.ident]) else []
        return q.Notes(tuple(found))

    def tombstones(self, question: q.ManyJobs) -> q.Tombstones:
        found = self._store.tombstones(question.uuids)
        return q.Tombstones(tuple(each for each in found if self._caller.may_see_user(each.user)))

    # ---- runs

    def workflows(self, _question: q.Nothing) -> q.WorkflowList:
        found = self._store.workflows()
        return q.WorkflowList(tuple(each for each in found if self._caller.may_see_user(each.user)))

    def find_workflow(self, question: q.OneRun) -> Workflow:
        return find_workflow(self._store, self._caller, question.ident)

    def workflow_of_source(self, question: q.SourceQuery) -> q.WorkflowAnswer:
        if not self._caller.may_see_user(question.user):
            return q.WorkflowAnswer(None)
        return q.WorkflowAnswer(self._store.workflow_of_source(question.source, question.name, question.user))

    def runs(self, question: q.OneRun) -> q.RunsAnswer:
        found = self._store.runs(question.ident)
        return q.RunsAnswer(tuple(each for each in found if self._caller.may_see_user(each.user)))

    def find_run(self, question: q.OneRun) -> Run:
        return self._caller.find(
            lambda: self._store.find_run(question.ident),
            lambda run: run.user,
            self._caller.unknown_run(question.ident),
        )

    def run_events(self, question: q.EventsQuery) -> q.EventPart:
        found = (
            self._store.run_events(question.run, question.after) if self._may_see_run(question.run) else []
        )
        return q.EventPart(items=tuple(found[: q.MOST_EVENTS]), has_more=len(found) > q.MOST_EVENTS)

    def run_results(self, question: q.OneRun) -> q.Results:
        found = self._store.run_results(question.ident) if self._may_see_run(question.ident) else []
        return q.Results(tuple(found))

    # ---- queue

    def holdings(self, question: q.HoldingsQuery) -> q.Holdings:
        found = self._store.holdings(of=question.of)
        visible = self._visible(each.uuid for each in found)
        return q.Holdings(tuple(each for each in found if each.uuid in visible))

    def workers(self, question: q.WorkersQuery) -> q.WorkerList:
        found = self._store.workers(host=question.host)
        return q.WorkerList(tuple(each for each in found if self._caller.may_see_user(each.user)))

    def backlog(self, _question: q.Nothing) -> q.BacklogList:
        """A queue counts jobs of all users."""
        return q.BacklogList(tuple(self._store.backlog()) if self._sees_all else ())

    def states(self, question: q.ManyJobs) -> q.States:
        return q.States(self._store.states(self._only_visible(question.uuids)))

    def former_workers(self, question: q.ManyJobs) -> q.FormerWorkers:
        return q.FormerWorkers(self._store.former_workers(self._only_visible(question.uuids)))

    def now(self, _question: q.Nothing) -> q.Clock:
        return q.Clock(self._store.now_us())

    def sql(self, question: q.SqlQuery) -> SqlAnswer:
        limits = SqlLimits(
            seconds=max(0.0, min(question.limits.seconds, _SQL.seconds)),
            rows=max(0, min(question.limits.rows, _SQL.rows)),
            bytes=max(0, min(question.limits.bytes, _SQL.bytes)),
        )
        only = self._caller.visible(HistoryQuery(user=question.only_user)).user
        return self._store.sql(question.text, limits, only_user=only)

    # ---- visibility

    def _visible(self, uuids: Iterable[str]) -> set[str]:
        """Returns those of jobs that the caller may see. All at once: most that are asked about run."""
        idents = set(uuids)
        if self._sees_all or not idents:
            return idents
        unfinished = {record.job.uuid: record for record in self._store.running(user=self._caller.user)}
        return {uuid for uuid in idents if self._is_own(unfinished.get(uuid), uuid)}

    def _is_own(self, known: Record | None, uuid: str) -> bool:
        try:
            record = known or self._store.find(uuid)
        except (UnknownJob, AmbiguousJob):
            return False
        return record.job.uuid == uuid and self._caller.may_see_user(record.job.user)

    def _only_visible(self, uuids: Sequence[str]) -> list[str]:
        visible = self._visible(uuids)
        return [uuid for uuid in uuids if uuid in visible]

    def _may_see_run(self, uuid: str) -> bool:
        if self._sees_all:
            return True
        try:
            run = self.find_run(q.OneRun(uuid))
        except UnknownRun:
            return False
        return run.uuid == uuid

    def _own_part(self, tagged: TaggedJobs) -> TaggedJobs | None:
        """Returns the caller's jobs of a tag; None: there are none."""
        mine = HistoryQuery(tags=(tagged.tag,), user=self._caller.user)
        first = next(iter(self._store.records(replace(mine, limit=1, ascending=True))), None)
        if first is None:
            return None
        counts = {status: self._store.count(replace(mine, statuses=(status,))) for status in Status}
        by_status = {status: count for status, count in counts.items() if count}
        return TaggedJobs(
            tag=tagged.tag, one_of_them=first.job.uuid, began_at_us=first.began_at_us, by_status=by_status
        )


def _blocks(found: Sequence[tuple[int, Sample]]) -> tuple[q.SampleBlock, ...]:
    samples = dict(found)
    runs = runs_of_indexes([index for index, _ in found], _BLOCK)
    return tuple(q.SampleBlock(run[0], encode_piece(samples[index] for index in run)) for run in runs)
