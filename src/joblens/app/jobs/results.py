"""What a Python program gets back for a job."""

import os
from typing import Any

from joblens.model.errors import JoblensError
from joblens.model.jobs.finding import Finding
from joblens.model.jobs.job import Record, Usage
from joblens.model.jobs.sample import Sample
from joblens.model.settings import Settings


class Result:
    """One job that has ended. `record` is everything; the rest are the parts people ask for."""

    def __init__(self, record: Record, settings: Settings) -> None:
        self.record = record
        self._settings = settings

    @property
    def uuid(self) -> str:
        return self.record.job.uuid

    @property
    def status(self) -> str:
        return str(self.record.status)

    @property
    def ok(self) -> bool:
        return self.status == "success"

    @property
    def returncode(self) -> int | None:
        return self.record.outcome.exit_code if self.record.outcome else None

    @property
    def duration_s(self) -> float:
        return self.record.outcome.duration_s if self.record.outcome else 0.0

    @property
    def usage(self) -> Usage:
        return self.record.outcome.usage if self.record.outcome else Usage()

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.record.outcome.findings if self.record.outcome else ()

    @property
    def profile(self) -> dict[str, Any]:
        """The detailed profile, from the samples and totals."""
        from joblens.analysis.numbers.profile import detailed_profile

        stored = self.record.outcome.profile if self.record.outcome else None
        return stored or detailed_profile(self.samples, self.usage, self.duration_s)

    @property
    def samples(self) -> list[Sample]:
        from joblens.app.wiring.drivers import open_store

        store = open_store(self._settings)
        try:
            return [sample for _, sample in store.samples(self.uuid)]
        finally:
            store.close()

    @property
    def stdout(self) -> str:
        return self._printed("stdout.log")

    @property
    def stderr(self) -> str:
        return self._printed("stderr.log")

    def as_dict(self) -> dict[str, Any]:
        """The record in the history form."""
        from joblens.analysis.formats.history import to_history_record

        return to_history_record(self.record)

    def _printed(self, name: str) -> str:
        folder = self.record.attempt.logs_dir if self.record.attempt else ""
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def __repr__(self) -> str:
        return f"<Result {self.record.job.name!r} {self.status} {self.duration_s:.3f} s>"


class JobFailed(JoblensError):
    """A job that had to succeed did not."""

    def __init__(self, result: Result) -> None:
        outcome = result.record.outcome
        why = outcome.error if outcome else None
        super().__init__(f"{result.record.job.name}: {result.status}: {why or 'no reason known'}")
        self.result = result
