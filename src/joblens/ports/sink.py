"""A plain-file mirror of what the store gets."""

from collections.abc import Sequence
from typing import Protocol

from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample


class Sink(Protocol):
    """A sink that fails warns once and never disturbs the job or the store."""

    def job_started(self, record: Record) -> None: ...

    def samples_taken(self, uuid: str, samples: Sequence[Sample]) -> None: ...

    def details_taken(self, uuid: str, details: Details) -> None: ...

    def jobs_ended(self, records: Sequence[Record]) -> None: ...

    def close(self) -> None: ...
