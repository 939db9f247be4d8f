"""Attribution of GPU use to jobs: matches the processes a driver reports with the processes of each job.

Everything here happens on the driver's own thread, so that the list of the GPU's processes and the list of
the job's are of the same moment.
"""

import threading
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.jobs.details import GpuFacts
from joblens.model.jobs.job import EVERY_GPU
from joblens.model.jobs.sample import GpuReading
from joblens.model.values.sums import sum_of_all

_WHOLE = 10_000  # hundredths of a percent


class GpuProcess(Struct, frozen=True, kw_only=True):
    """Use of one device by one process. None: not reported by the driver."""

    memory_bytes: int | None = None
    utilization: int | None = None
    busy_usec: int | None = None  # counter, since the driver was first queried
    encoder_utilization: int | None = None
    decoder_utilization: int | None = None
    is_listed: bool = True  # False: it has ended, and only its last use is reported


class GpuState(Struct, frozen=True, kw_only=True):
    """One device in total, and by process (None: unknown). `reading.energy_mj` is the driver's counter."""

    facts: GpuFacts
    reading: GpuReading = GpuReading()
    processes: Mapping[int, GpuProcess] | None = None


class JobGpus(Struct, frozen=True, kw_only=True):
    """Readings of one job. `readings` None: unknown, `problem` says why."""

    readings: dict[str, GpuReading] | None = None
    facts: tuple[GpuFacts, ...] = ()
    problem: str = ""


class GpuFollower:
    """One job. Every device that it was given or has used is in all later readings, even when idle.

    `before`: last readings of another process that measured it, by device; its counters continue. `began_ns`:
    when the job started, on the monotonic clock, if all use of its processes counts; None: they were running
    before.
    """

    def __init__(
        self,
        pids: Callable[[], list[int]],
        given: Sequence[str] = (),
        before: Mapping[str, GpuReading] | None = None,
        began_ns: int | None = None,
    ) -> None:
        self.began_ns = began_ns
        self._read_pids = pids
        self._given = tuple(given)
        self._alive: frozenset[int] = frozenset()
        self._known: frozenset[int] = frozenset()  # alive now or at the reading before
        self._devices: set[str] = set(before or ())
        self._energy_before = {
            device: reading.energy_mj
            for device, reading in (before or {}).items()
            if reading.energy_mj is not None
        }
        self._energy_base: dict[str, int] = {}
        self._busy_seen: dict[tuple[str, int], int] = {}
        self._busy_usec = {
            device: reading.job_busy_usec
            for device, reading in (before or {}).items()
            if reading.job_busy_usec is not None
        }
        self._has_begun = began_ns is not None

    def scan(self) -> frozenset[int]:
        """Returns its processes: living ones, and those of the last sample."""
        try:
            alive = frozenset(self._read_pids())
        except Exception:  # noqa: BLE001 - its group has just vanished
            alive = frozenset()
        self._known = alive | self._alive
        self._alive = alive
        return self._known

    def find_devices(
        self, processes: Mapping[str, Mapping[int, object]], facts: Sequence[GpuFacts]
    ) -> set[str]:
        """Devices it uses or was given, by id; `processes` by device, as the driver lists them now."""
        for each in facts:
            if any(is_named(each, name) for name in self._given) or not self._known.isdisjoint(
                processes.get(each.id, {})
            ):
                self._devices.add(each.id)
        return self._devices

    def tell(self, states: Mapping[str, GpuState], foreign: str = "") -> JobGpus:
        """`foreign`: why the driver's processes cannot be matched to ours, where that is so."""
        mine = [states[each] for each in sorted(self._devices) if each in states]
        matched = any(not self._known.isdisjoint(state.processes or ()) for state in mine)
        problem = "" if matched else foreign
        readings = {state.facts.id: self._reading(state, is_known=not problem) for state in mine}
        self._has_begun = True
        return JobGpus(
            readings=None if problem and not readings else readings,
            facts=tuple(state.facts for state in mine),
            problem=problem,
        )

    def _reading(self, state: GpuState, *, is_known: bool) -> GpuReading:
        device, reading = state.facts.id, state.reading
        if reading.energy_mj is not None:
            began_mj = reading.energy_mj - self._energy_before.get(device, 0)
            base = self._energy_base.setdefault(device, began_mj)
            reading = replace(reading, energy_mj=max(0, reading.energy_mj - base))
        if not is_known or state.processes is None:
            return reading
        mine = {pid: use for pid, use in state.processes.items() if pid in self._known}
        listed = [use for use in mine.values() if use.is_listed]
        return replace(
            reading,
            job_processes=len(listed),
            job_memory_bytes=sum_of_all([use.memory_bytes for use in listed]),
            job_utilization=_share([use.utilization for use in mine.values()]),
            job_busy_usec=self._busy(device, mine),
            job_encoder_utilization=_share([use.encoder_utilization for use in mine.values()]),
            job_decoder_utilization=_share([use.decoder_utilization for use in mine.values()]),
        )

    def _busy(self, device: str, mine: Mapping[int, GpuProcess]) -> int | None:
        total = self._busy_usec.get(device, 0)
        counters = {pid: use.busy_usec for pid, use in mine.items() if use.busy_usec is not None}
        if len(counters) < len(mine):
            return None
        for pid, busy_usec in counters.items():
            # Use before the first sample does not count, unless joblens started the job.
            before = self._busy_seen.get((device, pid), 0 if self._has_begun else busy_usec)
            total += max(0, busy_usec - before)
            self._busy_seen[device, pid] = busy_usec
        self._busy_usec[device] = total
        return total


class Followers:
    """Jobs that a driver reports on. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_job: dict[str, GpuFollower] = {}

    def add(self, job: str, follower: GpuFollower) -> None:
        with self._lock:
            self._by_job = {**self._by_job, job: follower}

    def remove(self, job: str) -> None:
        with self._lock:
            self._by_job = {each: follower for each, follower in self._by_job.items() if each != job}

    def now(self) -> dict[str, GpuFollower]:
        with self._lock:
            return self._by_job


def is_named(facts: GpuFacts, name: str) -> bool:
    """Whether CUDA_VISIBLE_DEVICES selects it: by number, or prefix of a UUID. All are."""
    if name == EVERY_GPU:
        return True
    if name.isdecimal():
        return facts.vendor == "nvidia" and not facts.parent and facts.index == int(name)
    return name != "" and (facts.uuid.startswith(name) or name in (facts.id, facts.pci))


def _share(values: Sequence[int | None]) -> int | None:
    total = sum_of_all(values)
    return None if total is None else min(total, _WHOLE)
