"""The last samples of running jobs, and their counters as they are now where those are old."""

import time
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from joblens.agent.attempts.live_readings import LiveReadings
from joblens.app.jobs.queries import SampleTails
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample
from joblens.ports.store import Store
from joblens.probes.host.machine_load import read_host

_OLD_US = 300_000
FIRST_RATE_S = 0.4  # between two readings of a job that rates are worked out from


class LiveTails:
    """For pictures one after the other: each has values of that moment for jobs on this machine, whatever
    the interval between their samples."""

    def __init__(self, store: Store, count: int) -> None:
        self._store = store
        self._tails = SampleTails(store, count)
        self._count = count
        self._readings = LiveReadings(read_host())
        self._live: dict[str, list[Sample]] = {}
        self._records: dict[str, Record] = {}

    def look_at(self, records: Iterable[Record]) -> dict[str, list[Sample]]:
        self._records = {record.job.uuid: record for record in records}
        return self._look()

    def look_at_jobs(self, uuids: Iterable[str]) -> dict[str, list[Sample]]:
        """The same for those of which only the id is known."""
        known, self._records = self._records, {}
        for uuid in uuids:
            record = known.get(uuid) or self._find(uuid)
            if record is not None:
                self._records[uuid] = record
        return self._look()

    def close(self) -> None:
        self._readings.close()

    def _find(self, uuid: str) -> Record | None:
        try:
            record = self._store.find(uuid)
        except JoblensError:
            return None  # its start is not written yet
        return record if record.attempt is not None else None

    def _look(self) -> dict[str, list[Sample]]:
        stored = self._tails.look_at(list(self._records))
        self._readings.forget_others(self._records)
        self._live = {
            uuid: self._current(record, stored.get(uuid, [])) for uuid, record in self._records.items()
        }
        return {uuid: (stored.get(uuid, []) + live)[-self._count :] for uuid, live in self._live.items()}

    def _current(self, record: Record, stored: list[Sample]) -> list[Sample]:
        """Readings since its last sample, with one of now."""
        since_us = stored[-1].at_us if stored else 0
        live = [sample for sample in self._live.get(record.job.uuid, ()) if sample.at_us > since_us]
        last = live[-1] if live else stored[-1] if stored else None
        if last is None or time.time_ns() // 1000 - last.at_us >= _OLD_US:
            reading = self._readings.read(record)
            if reading is not None:
                live.append(_not_back(reading, last))
        return live[-self._count :]


def _not_back(reading: Sample, last: Sample | None) -> Sample:
    """Without groups, what the launcher has waited for is in samples only: time is not to run backwards."""
    now_usec, before_usec = reading.cpu_total_usec, last.cpu_total_usec if last is not None else None
    if now_usec is None or before_usec is None or now_usec >= before_usec:
        return reading
    return replace(reading, cpu_total_usec=before_usec)


def has_rates(tails: Mapping[str, list[Sample]], records: Iterable[Record]) -> bool:
    """Whether every job that has begun has two samples or more, which rates are worked out from."""
    return all(len(tails.get(one.job.uuid, ())) > 1 for one in records if one.attempt is not None)
