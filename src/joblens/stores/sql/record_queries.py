"""Queries of ports.store.Store that all SQL stores share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from joblens.model.errors import StoreCorrupt, UnknownJob
from joblens.model.jobs.details import Details
from joblens.model.writes import CancelAsked

if TYPE_CHECKING:
    from joblens.model.history import HistoryQuery, Page, TaggedJobs
    from joblens.model.jobs.details import Provenance
    from joblens.model.jobs.job import Record
    from joblens.model.runs.run import JobResult, Run, RunEvent, Workflow
    from joblens.stores.sql import Ask

_RECORDS_AT_ONCE = 500
Position = tuple[int, "int | str | None"]  # number of a job and its sort key; None: unknown


class RecordQueries:
    """Reading half of a store. Imports its parts on demand, so that running a job stays fast."""

    _warn: Callable[[str], None]

    def _asking(self) -> AbstractContextManager[Ask]:
        raise NotImplementedError

    def _reading(self) -> AbstractContextManager[Ask]:
        """Reads several queries from one snapshot."""
        raise NotImplementedError

    def _matching(self, query: HistoryQuery) -> list[Position]:
        """Returns number and sort key of matching jobs, in the requested order."""
        raise NotImplementedError

    def _count_matching(self, query: HistoryQuery) -> int:
        raise NotImplementedError

    def _report_damage(self, uuid: str) -> Callable[[int, StoreCorrupt], None]:
        return lambda first, error: self._warn(
            f"samples of job {uuid} from index {first} on are lost: {error}"
        )

    def find(self, ident: str) -> Record:
        from joblens.stores.sql.job_rows import find_job

        with self._reading() as ask:
            return find_job(ask, ident)

    def number_of(self, uuid: str) -> int:
        with self._asking() as ask:
            for (number,) in ask("number_of_uuid", uuid):
                return int(number)
        raise UnknownJob(f"no job has the ID '{uuid}'")

    def records(self, query: HistoryQuery) -> Iterator[Record]:
        from joblens.stores.sql.job_rows import read_records

        numbers = [number for number, _ in self._matching(query)]
        for start in range(0, len(numbers), _RECORDS_AT_ONCE):
            with self._asking() as ask:
                part = list(read_records(ask, numbers[start : start + _RECORDS_AT_ONCE]))
            yield from part

    def page(self, query: HistoryQuery) -> Page:
        from joblens.model.cursor import Cursor, encode_cursor
        from joblens.model.history import Page
        from joblens.stores.sql.job_rows import read_records

        limit = None if query.limit is None else max(0, query.limit)
        found = self._matching(replace(query, limit=None if limit is None else limit + 1))
        shown = found[:limit]
        with self._asking() as ask:
            records = tuple(read_records(ask, [number for number, _ in shown]))
        if len(shown) == len(found) or not shown:
            return Page(records=records)
        number, key = shown[-1]
        cursor = Cursor(query.sort, query.ascending, key, number)
        return Page(records=records, next=encode_cursor(cursor))

    def count(self, query: HistoryQuery) -> int:
        everything = replace(query, without_tag="")
        count = self._count_matching(everything)
        if query.without_tag:  # few jobs have it: faster than to search each job's tags
            count -= self._count_matching(replace(everything, tags=(*query.tags, query.without_tag)))
        return count

    def tagged(self, prefix: str) -> list[TaggedJobs]:
        from joblens.stores.sql.run_rows import read_tagged

        with self._asking() as ask:
            return read_tagged(ask, prefix)

    def running(self, *, user: str | None = None, run: str | None = None) -> list[Record]:
        from joblens.stores.sql.job_rows import read_unfinished

        with self._reading() as ask:
            return read_unfinished(ask, user, run)

    def still_running(self, known: Mapping[int, Record], most_queued: int | None = None) -> list[Record]:
        from joblens.stores.sql.job_rows import read_changed

        with self._reading() as ask:
            return read_changed(ask, known, most_queued)

    def cancel_requests(self) -> dict[str, CancelAsked]:
        with self._asking() as ask:
            asked = [CancelAsked(*row) for row in ask("cancel_requests")]
        return {each.uuid: each for each in asked}

    def details(self, uuid: str) -> Details:
        from joblens.stores.samples.packed_details import unpack_details

        with self._asking() as ask:
            rows = ask("details_of_uuid", uuid)
        for (data,) in rows:
            try:
                return unpack_details(data)
            except StoreCorrupt as error:
                self._warn(f"details of job {uuid} are lost: {error}")
        return Details()

    def provenance(self, digest: str) -> Provenance | None:
        from joblens.stores.samples.packed_details import unpack_provenance

        with self._asking() as ask:
            rows = ask("provenance_of", digest)
        for (data,) in rows:
            try:
                return unpack_provenance(data)
            except StoreCorrupt as error:
                self._warn(f"the environment of jobs ({digest}) is lost: {error}")
        return None

    def workflows(self) -> list[Workflow]:
        from joblens.stores.sql.run_rows import read_workflows

        with self._asking() as ask:
            return read_workflows(ask, "workflows")

    def find_workflow(self, ident: str) -> Workflow:
        from joblens.stores.sql import run_rows as run_search

        with self._reading() as ask:
            return run_search.find_workflow(ask, ident)

    def workflow_of_source(self, source: str, name: str, user: str) -> Workflow | None:
        from joblens.stores.sql.run_rows import read_workflows

        with self._asking() as ask:
            return next(iter(read_workflows(ask, "workflow_of_source", (source, name, user))), None)

    def runs(self, workflow_uuid: str) -> list[Run]:
        from joblens.stores.sql.run_rows import read_runs

        with self._reading() as ask:
            return read_runs(ask, workflow_uuid)

    def find_run(self, ident: str) -> Run:
        from joblens.stores.sql import run_rows as run_search

        with self._reading() as ask:
            return run_search.find_run(ask, ident)

    def run_events(self, run_uuid: str, after: int = 0) -> list[tuple[int, RunEvent]]:
        from joblens.stores.sql.run_rows import read_events

        with self._asking() as ask:
            return read_events(ask, run_uuid, after)

    def run_results(self, run_uuid: str) -> list[JobResult]:
        from joblens.stores.sql.run_rows import read_results

        with self._reading() as ask:
            return read_results(ask, run_uuid)
