"""Live readings of running jobs: their last samples, counters, and a detailed scan of memory."""

import time
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from joblens.agent.measuring.readings import LiveReadings
from joblens.agent.recovery.finalization import standing_groups
from joblens.agent.runtime.ownership import has_valid_pid, is_local
from joblens.app.jobs.queries import SampleTails
from joblens.model.errors import JoblensError
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Attempt, Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.writes import DetailsTaken
from joblens.ports.store import Store
from joblens.probes.cgroup.memory_detail import read_memory_depth
from joblens.probes.host.machine_load import read_host
from joblens.probes.proc.process_tree import ProcessTreeProbe

_OLD_US = 300_000
FIRST_RATE_S = 0.4  # between two readings of a job for a rate


class LiveTails:
    """Successive readings: each has present values for jobs on this machine, whatever their sampling
    interval."""

    def __init__(self, store: Store, count: int) -> None:
        self._store = store
        self._tails = SampleTails(store, count)
        self._count = count
        self._readings = LiveReadings(read_host())
        self._live: dict[str, list[Sample]] = {}
        self._records: dict[str, Record] = {}

    def read(self, records: Iterable[Record]) -> dict[str, list[Sample]]:
        self._records = {record.job.uuid: record for record in records}
        return self._read()

    def tails_of(self, uuids: Iterable[str]) -> dict[str, list[Sample]]:
        """Reads jobs of which only the id is known."""
        known, self._records = self._records, {}
        for uuid in uuids:
            record = known.get(uuid) or self._find(uuid)
            if record is not None:
                self._records[uuid] = record
        return self._read()

    def close(self) -> None:
        self._readings.close()

    def _find(self, uuid: str) -> Record | None:
        try:
            record = self._store.find(uuid)
        except JoblensError:
            return None  # its start is not recorded yet
        return record if record.attempt is not None else None

    def _read(self) -> dict[str, list[Sample]]:
        stored = self._tails.read(list(self._records))
        self._readings.forget_others(self._records)
        self._live = {
            uuid: self._current(record, stored.get(uuid, [])) for uuid, record in self._records.items()
        }
        return {uuid: (stored.get(uuid, []) + live)[-self._count :] for uuid, live in self._live.items()}

    def _current(self, record: Record, stored: list[Sample]) -> list[Sample]:
        """Returns the readings since its last sample, with a present one."""
        since_us = stored[-1].at_us if stored else 0
        live = [sample for sample in self._live.get(record.job.uuid, ()) if sample.at_us > since_us]
        last = live[-1] if live else stored[-1] if stored else None
        if last is None or time.time_ns() // 1000 - last.at_us >= _OLD_US:
            reading = self._readings.read(record)
            if reading is not None:
                live.append(_not_back(reading, last))
        return live[-self._count :]


def _not_back(reading: Sample, last: Sample | None) -> Sample:
    """Returns the reading, whose counters must not decrease: without groups, reaped processes are only in
    samples."""
    now_usec, before_usec = reading.cpu_total_usec, last.cpu_total_usec if last is not None else None
    if now_usec is None or before_usec is None or now_usec >= before_usec:
        return reading
    return replace(reading, cpu_total_usec=before_usec)


def has_rates(tails: Mapping[str, list[Sample]], records: Iterable[Record]) -> bool:
    """Returns whether every started job has at least two samples, for rates."""
    return all(len(tails.get(one.job.uuid, ())) > 1 for one in records if one.attempt is not None)


_WITHIN_S = 5.0


def read_now(store: Store, record: Record) -> Details:
    """Scans the job's memory now and records it. Empty if the job has ended; if it cannot be scanned from
    here, the reason."""
    attempt = record.attempt
    if record.status is not Status.RUNNING or attempt is None:
        return Details()
    host = read_host()
    if not is_local(attempt.owner, host):
        return _nothing(f"it runs on {attempt.owner.host}; its processes are visible only there")
    if not has_valid_pid(attempt.owner, host):
        return _nothing("its processes are not visible from this container, or ended with the last boot")
    depth = read_memory_depth(_living(attempt), attempt.groups, within_s=_WITHIN_S)
    if not depth.seen:
        return _nothing("none of its processes is running")
    details = Details(memory=depth)
    store.apply([DetailsTaken(record.job.uuid, details)])
    return details


def _nothing(why: str) -> Details:
    return Details(unknown={"memory": why})


def _living(attempt: Attempt) -> list[int]:
    groups = standing_groups(attempt)
    if groups is not None:
        # A slot's launcher is in the group of its jobs, but not a part of them.
        return [pid for pid in groups.pids() if pid != attempt.launcher_pid]
    root = attempt.launcher_pid or attempt.pid
    if root is None:
        return []
    tree = ProcessTreeProbe(root, include_root=attempt.launcher_pid is None)
    try:
        return tree.descendants()
    finally:
        tree.close()
