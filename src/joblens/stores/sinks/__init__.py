"""Plain files beside the store: history and sample lines, time-series databases, Parquet."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from joblens.model.jobs.details import Details, Provenance
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample

if TYPE_CHECKING:  # `joblens run` does without
    from joblens.model.runs.run import Run, Workflow


class SelectiveSink:
    """Implements ports.store.Sink by ignoring every event; subclasses override those they record."""

    def job_started(self, record: Record) -> None:
        pass

    def samples_taken(self, uuid: str, samples: Sequence[Sample]) -> None:
        pass

    def details_taken(self, uuid: str, details: Details) -> None:
        pass

    def jobs_ended(self, records: Sequence[Record]) -> None:
        pass

    def provenance_seen(self, digest: str, provenance: Provenance) -> None:
        pass

    def run_changed(self, workflow: "Workflow", run: "Run") -> None:
        pass

    def close(self) -> None:
        pass
