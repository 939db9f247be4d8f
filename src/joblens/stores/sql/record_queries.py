"""The questions of ports.store.Store that every store in a database answers alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from joblens.model.errors import StoreCorrupt, UnknownJob
from joblens.model.jobs.details import Details
from joblens.model.writes import CancelAsked

if TYPE_CHECKING:
    from joblens.model.history import HistoryQuery, TaggedJobs
    from joblens.model.jobs.details import Provenance
    from joblens.model.jobs.job import Record
    from joblens.model.runs.run import JobResult, Run, RunEvent, Workflow
    from joblens.stores.sql.queries import Ask

_RECORDS_AT_ONCE = 500


class RecordQueries:
    """The half of a store that is asked what happened. What it needs is imported when it is asked for, so
    that running a job does not pay for it."""

    _warn: Callable[[str], None]

    def _asking(self) -> AbstractContextManager[Ask]:
        raise NotImplementedError

    def _reading(self) -> AbstractContextManager[Ask]:
        """One snapshot for several questions."""
        raise NotImplementedError

    def _matching(self, query: HistoryQuery) -> list[int]:
        """The numbers of the jobs that are meant, in the order that is wanted."""
        raise NotImplementedError

    def find(self, ident: str) -> Record:
        from joblens.stores.sql.job_rows import find_job

        with self._reading() as ask:
            return find_job(ask, ident)

    def number_of(self, uuid: str) -> int:
        with self._asking() as ask:
            for (number,) in ask("number_of_uuid", uuid):
                return int(number)
        raise UnknownJob(f"no job has the id '{uuid}'")

    def records(self, query: HistoryQuery) -> Iterator[Record]:
        from joblens.stores.sql.job_rows import read_records

        numbers = self._matching(query)
        for start in range(0, len(numbers), _RECORDS_AT_ONCE):
            with self._asking() as ask:
                part = list(read_records(ask, numbers[start : start + _RECORDS_AT_ONCE]))
            yield from part

    def count(self, query: HistoryQuery) -> int:
        return len(self._matching(replace(query, limit=None)))

    def tagged(self, prefix: str) -> list[TaggedJobs]:
        from joblens.stores.sql.run_rows import read_tagged

        with self._asking() as ask:
            return read_tagged(ask, prefix)

    def running(self, *, user: str | None = None, run: str | None = None) -> list[Record]:
        from joblens.stores.sql.job_rows import read_unfinished

        with self._reading() as ask:
            return read_unfinished(ask, user, run)

    def still_running(self, known: Mapping[int, Record]) -> list[Record]:
        from joblens.stores.sql.job_rows import read_changed

        with self._reading() as ask:
            return read_changed(ask, known)

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
                self._warn(f"what jobs ran in ({digest}) is lost: {error}")
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

        with self._asking() as ask:
            return read_results(ask, run_uuid)
