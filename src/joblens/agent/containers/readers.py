"""What reads one run of a container that joblens did not start."""

import time
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from joblens.agent.instruments.details import DetailTaker
from joblens.model.jobs.details import Details
from joblens.model.jobs.exit_usage import NOTHING_REAPED
from joblens.model.jobs.job import Job
from joblens.model.jobs.sample import Sample
from joblens.ports.clock import Clock
from joblens.ports.probe import Probe
from joblens.probes.containers.counters import EngineCounters
from joblens.probes.containers.info import ContainerInfo

# What begins again with every run of a container.
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


class Found(Struct, frozen=True):
    """A container that runs, as its engine tells it."""

    info: ContainerInfo
    counters: dict[str, Any]  # empty where its group can be read from here

    @property
    def run(self) -> tuple[str, int | None]:
        return self.info.id, self.info.started_at_us


class Reader(Protocol):
    """Samples since the watch began; ProbeError when the run is over."""

    def sample(self) -> Sample: ...

    @property
    def details(self) -> Details: ...

    def origins(self) -> tuple[dict[str, str], dict[str, str]]: ...

    def close(self) -> None: ...


OpenReader = Callable[[Found, int, "dict[str, int] | None"], Reader]


class EngineReader:
    """Reads what the engine has told last."""

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
            fields.pop(_PEAK, None)  # of the time before, until it rises
        elapsed_us = (time.monotonic_ns() - self._start_mono_ns) // 1000
        return Sample(at_us=time.time_ns() // 1000, elapsed_us=elapsed_us, **{**self._read_host(), **fields})

    def origins(self) -> tuple[dict[str, str], dict[str, str]]:
        return dict(self.probe.sources), {}

    def close(self) -> None:
        self.probe.close()


class GroupReader:
    """Reads the container's control group, and what instruments see of it. Linux."""

    def __init__(
        self,
        found: Found,
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
        from joblens.probes.proc.baselined import BaselinedProbe
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
