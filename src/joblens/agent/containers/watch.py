"""Container watch: finds the runs of a container that joblens did not start by its name, and measures
them."""

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct, structs

from joblens.agent.instruments.table import DetailTaker
from joblens.agent.measuring.window_measurement import Measurement
from joblens.agent.runtime.driver_thread import DriverThread
from joblens.analysis.numbers.usage import mean_unreclaimable, total_usage
from joblens.model.errors import ContainerError, ProbeError
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import NOTHING_REAPED, Job
from joblens.model.jobs.sample import Sample
from joblens.ports.clock import Clock
from joblens.ports.probe import Probe
from joblens.probes.containers.api import ContainerApi
from joblens.probes.containers.info import ContainerInfo, EngineCounters, counters_of

# Counters that start again with every run of a container.
COUNTERS_OF_A_RUN = (
    "cpu_total_usec",
    "cpu_user_usec",
    "cpu_system_usec",
    "cpu_throttled_usec",
    "faults_minor",
    "faults_major",
    "oom_kills",
    "io_read_bytes",
    "io_write_bytes",
    "io_read_ops",
    "io_write_ops",
    "io_call_read_bytes",
    "io_call_write_bytes",
    "io_call_reads",
    "io_call_writes",
    "network_rx_bytes",
    "network_tx_bytes",
    "network_rx_packets",
    "network_tx_packets",
)

_PEAK = "memory_kernel_peak_bytes"


class RunningContainer(Struct, frozen=True):
    """A running container, as its engine reports it."""

    info: ContainerInfo
    counters: dict[str, Any]  # empty if its group is readable here

    @property
    def run(self) -> tuple[str, int | None]:
        return self.info.id, self.info.started_at_us


class Reader(Protocol):
    """Returns samples since the watch began; raises ProbeError when the run is over."""

    def sample(self) -> Sample: ...

    @property
    def details(self) -> Details: ...

    def origins(self) -> tuple[dict[str, str], dict[str, str]]: ...

    def close(self) -> None: ...


OpenReader = Callable[[RunningContainer, int, "dict[str, int] | None"], Reader]


class EngineReader:
    """Reads the last report of the engine."""

    details = Details()

    def __init__(
        self,
        counters: dict[str, Any],
        start_mono_ns: int,
        read_host: Callable[[], dict[str, Any]],
        base: dict[str, int] | None,
    ) -> None:
        self.probe = EngineCounters()
        self.probe.latest = counters
        self._base = counters if base is None else base
        self._peak_before = self._base.get(_PEAK) or 0
        self._start_mono_ns = start_mono_ns
        self._read_host = read_host

    def sample(self) -> Sample:
        fields = self.probe.read()
        for name in COUNTERS_OF_A_RUN:
            if name in fields:
                fields[name] = max(0, fields[name] - self._base.get(name, 0))
        if (fields.get(_PEAK) or 0) <= self._peak_before:
            fields.pop(_PEAK, None)  # belongs to the time before, until it rises
        elapsed_us = (time.monotonic_ns() - self._start_mono_ns) // 1000
        return Sample(at_us=time.time_ns() // 1000, elapsed_us=elapsed_us, **{**self._read_host(), **fields})

    def origins(self) -> tuple[dict[str, str], dict[str, str]]:
        return dict(self.probe.sources), {}

    def close(self) -> None:
        self.probe.close()


class GroupReader:
    """Reads the container's control group and its instruments. Linux only."""

    def __init__(
        self,
        found: RunningContainer,
        job: Job,
        instruments: Any,
        host: Probe,
        clock: Clock,
        start_mono_ns: int,
        base: dict[str, int] | None,
    ) -> None:
        from joblens.agent.instruments.table import Watched
        from joblens.agent.measuring.meter import JobMeter
        from joblens.probes.cgroup.probe import CgroupProbe
        from joblens.probes.proc.attached import BaselinedProbe
        from joblens.probes.proc.kernel_files import list_pids
        from joblens.probes.proc.processes import ProcessesProbe

        info = found.info
        main = info.groups.get("unified") or info.groups.get("memory") or next(iter(info.groups.values()))

        def pids() -> list[int]:
            return list_pids(main)

        probe: Probe = CgroupProbe(info.groups, info.layout)
        processes: Probe = ProcessesProbe(pids)
        if base is None:
            probe, processes = BaselinedProbe(probe), BaselinedProbe(processes)
        opened = instruments.open(
            Watched(job=job, main_pid=None, kind=info.layout, groups=info.groups, pids=pids)
        )
        self._meter = JobMeter(probe, processes, host, clock, probe_counts_reaped=True, others=opened.probes)
        self._taker = DetailTaker(job.uuid, opened.details, lambda _: None)
        if base is None:
            self._meter.take_base()
            self._meter.start_at(start_mono_ns)
        else:
            self._meter.resume(base, start_mono_ns)

    def sample(self) -> Sample:
        sample = self._meter.sample(NOTHING_REAPED)
        self._taker.tick()
        return sample

    @property
    def details(self) -> Details:
        return self._taker.latest

    def origins(self) -> tuple[dict[str, str], dict[str, str]]:
        meter = self._meter
        sources, unknown, _ = meter.others.origins()
        for probe in (meter.details, meter.probe):
            if probe is not None:
                sources.update(probe.sources)
        return sources, {**unknown, **meter.probe.unknown}

    def close(self) -> None:
        self._meter.close()
        self._taker.close()


_POLL_S = 1.0
_FIRST_ANSWER_S = 0.25
_MOST_KEPT = 4096


class ContainerFinder:
    """Polls the engine for the container until it runs."""

    name = "container engine"
    interval_s = _POLL_S

    def __init__(self, container: str, connect: Callable[[], ContainerApi], *, can_read_groups: bool) -> None:
        self._container = container
        self._connect = connect
        self._can_read_groups = can_read_groups
        self._api: ContainerApi | None = None

    def read(self) -> RunningContainer:
        try:
            api = self._api or self._connect()
            self._api = api
            info = api.inspect(self._container)
            if not info.is_running:
                raise ContainerError(f"container {self._container} is not running: it is {info.status}")
            is_found = self._can_read_groups and has_group_here(info)
            return RunningContainer(info, {} if is_found else counters_of(api.stats(info.id)))
        except ContainerError as error:
            if not error.status:
                self._api = None  # another engine may answer next time
            raise

    def close(self) -> None:
        self._api = None


def has_group_here(info: ContainerInfo) -> bool:
    """Returns whether the groups belong to this container. Its pid may be another process's here: engines put
    the id into the group's name."""
    return bool(info.groups) and all(info.id in path for path in info.groups.values())


class ContainerWatch:
    """Measures the runs of a container, on its own thread. `open_reader(found, start_mono_ns, base)` reads a
    container whose group is on this machine; a base of None: read it now."""

    def __init__(
        self,
        finder: ContainerFinder,
        interval_s: float,
        read_host: Callable[[], dict[str, Any]],
        open_reader: OpenReader,
    ) -> None:
        self._interval_s = interval_s
        self._read_host = read_host
        self._open_reader = open_reader
        self._driver: DriverThread[RunningContainer] = DriverThread(finder)
        self._lock = threading.RLock()
        self._started_at_us, self._started_mono_ns = time.time_ns() // 1000, time.monotonic_ns()
        self._reader: Reader | None = None
        self._run: tuple[str, int | None] | None = None  # run of the reader
        self._taken = 0  # number of the finder's last answer that was used …
        self._sampled = 0  # … and of the last that became a sample
        self._earlier_runs: dict[str, int] = {}  # counters of runs that are over
        self._last_values: Sample | None = None
        self._samples: list[Sample] = []
        self._count = 0
        self._origins: tuple[dict[str, str], dict[str, str]] = ({}, {})
        self._details = Details()
        self.info: ContainerInfo | None = None
        self._counted_from_us: int | None = None  # this and the next: since the watch began
        self._counted_until_us = 0
        self._answered_us = 0  # when the engine last answered
        self._stopped = threading.Event()
        self._driver.use()
        self._is_asking = True
        self._await_answer()
        self._take()
        threading.Thread(target=self._work, name="joblens-container", daemon=True).start()

    def problem(self) -> str:
        """Returns why it could not be measured, if known."""
        return self._driver.problem()

    def is_found(self) -> bool:
        with self._lock:
            return self._last_values is not None

    def peek(self) -> Measurement:
        with self._lock:
            self._take()
            return self._measurement()

    def end(self) -> Measurement:
        """Takes the last sample and stops."""
        with self._lock:
            if not self._stopped.is_set():
                self._stopped.set()
                self._take()
                if self._has_nothing_new():
                    self._add(self._without_container())  # marks the duration
                self._close_reader()
                if self._is_asking:
                    self._driver.leave()
            return self._measurement()

    def samples(self) -> tuple[Sample, ...]:
        with self._lock:
            return tuple(self._samples)

    def _await_answer(self) -> None:
        """Waits for the first answer. A local engine answers at once: a container that already runs is then
        measured from the start."""
        deadline_s = time.monotonic() + _FIRST_ANSWER_S
        while time.monotonic() < deadline_s and self._driver.latest() is None and not self._driver.problem():
            time.sleep(_FIRST_ANSWER_S / 50)

    # -- the thread

    def _work(self) -> None:
        due_ns = self._started_mono_ns
        interval_ns = int(self._interval_s * 1e9)
        while True:
            due_ns += interval_ns * max(1, -(-(time.monotonic_ns() - due_ns) // interval_ns))
            if self._stopped.wait((due_ns - time.monotonic_ns()) / 1e9):
                return
            with self._lock:
                if not self._stopped.is_set():
                    self._take()

    def _take(self) -> None:
        self._find()
        if not self._has_nothing_new():
            self._add(self._sample())

    def _has_nothing_new(self) -> bool:
        """Returns whether the engine has no new numbers. It updates them once per second: read twice, they
        would give a rate of 0 and then a peak."""
        return isinstance(self._reader, EngineReader) and self._sampled == self._taken

    def _add(self, sample: Sample) -> None:
        self._count += 1
        self._samples.append(sample)
        if len(self._samples) >= _MOST_KEPT:
            self._samples = self._samples[::2]

    def _find(self) -> None:
        latest = self._driver.latest()
        if latest is None or latest.number == self._taken:
            return
        self._taken = latest.number
        self._answered_us = max(0, latest.at_mono_ns - self._started_mono_ns) // 1000
        found = latest.value
        if self._reader is None or found.run != self._run:
            self._close_reader()
            self._open(found)
        if isinstance(self._reader, EngineReader):
            self._reader.probe.latest = found.counters

    def _open(self, found: RunningContainer) -> None:
        # A container that was started after the watch counts from zero.
        began_us = found.info.started_at_us
        is_new = self._count > 0 and began_us is not None and began_us > self._started_at_us
        base: dict[str, int] | None = {} if is_new else None
        if self._counted_from_us is None:
            now_us = (time.monotonic_ns() - self._started_mono_ns) // 1000
            base_us = self._answered_us if found.counters else now_us
            began_then_us = 0 if began_us is None else began_us - self._started_at_us
            self._counted_from_us = min(began_then_us, base_us) if is_new else base_us
        self.info, self._run = found.info, found.run
        if found.counters:
            self._reader = EngineReader(found.counters, self._started_mono_ns, self._read_host, base)
            return
        try:
            self._reader = self._open_reader(found, self._started_mono_ns, base)
        except (ProbeError, OSError):
            return  # it has just ended
        self._is_asking = False
        self._driver.leave()

    def _sample(self) -> Sample:
        if self._reader is not None:
            try:
                return self._with_earlier_runs(self._reader.sample())
            except ProbeError:
                self._close_reader()
        return self._without_container()

    def _without_container(self) -> Sample:
        now_ns = time.monotonic_ns()
        elapsed_us = (now_ns - self._started_mono_ns) // 1000
        return Sample(at_us=time.time_ns() // 1000, elapsed_us=elapsed_us, **self._host())

    def _host(self) -> dict[str, Any]:
        try:
            return self._read_host()
        except (OSError, ValueError, LookupError):
            return {}

    def _with_earlier_runs(self, sample: Sample) -> Sample:
        if self._earlier_runs:
            sums = {
                name: value + self._earlier_runs.get(name, 0)
                for name in COUNTERS_OF_A_RUN
                if (value := getattr(sample, name)) is not None
            }
            sample = structs.replace(sample, **sums)
        if isinstance(self._reader, EngineReader):
            self._sampled = self._taken
            before_us = self._samples[-1].elapsed_us if self._samples else 0
            sample = structs.replace(sample, elapsed_us=max(before_us, self._answered_us))
        self._last_values = sample
        self._counted_until_us = sample.elapsed_us
        return sample

    def _close_reader(self) -> None:
        """Closes the reader when the run or the watch is over; its totals stay."""
        reader, self._reader = self._reader, None
        if reader is None:
            return
        self._origins, self._details = reader.origins(), self._details.updated(reader.details)
        reader.close()
        if self._last_values is not None:
            self._earlier_runs = {
                name: value
                for name in COUNTERS_OF_A_RUN
                if (value := getattr(self._last_values, name)) is not None
            }
        if not self._is_asking and not self._stopped.is_set():
            self._driver.use()
            self._is_asking = True

    def _measurement(self) -> Measurement:
        if self._reader is not None:
            self._origins, self._details = self._reader.origins(), self._details.updated(self._reader.details)
        sources, unknown = self._origins
        layout = "" if self.info is None else self.info.layout or "cgroup by its engine"
        duration_s = self._samples[-1].elapsed_us / 1e6
        usage = total_usage(self._samples, None, accounting=layout, sources=sources, unknown=unknown)
        mean = mean_unreclaimable(self._samples, self._samples)  # it ran at the first and at the last sample
        return Measurement(
            ended_at_us=time.time_ns() // 1000,
            duration_s=duration_s,
            usage=usage if mean is None else structs.replace(usage, memory_mean_bytes=mean),
            findings=(),
            samples=self._count,
            sampling_interval_s=duration_s / max(1, self._count - 1),
            first_pending=0,
            pending=(),
            kept=tuple(self._samples),
            details=self._details,
            counted_s=None
            if self._counted_from_us is None
            else max(0, self._counted_until_us - self._counted_from_us) / 1e6,
        )
