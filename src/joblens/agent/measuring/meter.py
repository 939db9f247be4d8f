"""Meter of one job: reads its probes, writes samples and details to the store, and checks limits that the
kernel does not enforce.

Memory is unreclaimable memory. A limit of the address space is no substitute: programs reserve far more than
they use, and a program that is refused memory fails in its own way instead of being killed."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from joblens.agent.instruments.table import MEASURED, DetailTaker, OtherProbes, pause_ns
from joblens.agent.runtime.recorder import Recorder
from joblens.analysis.numbers.rates import unreclaimable_bytes
from joblens.analysis.numbers.sample_buffer import RunningSummary
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import ProbeError
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import ExitUsage, Job
from joblens.model.jobs.sample import DeviceIo, Sample
from joblens.model.writes import DetailsTaken, SamplesTaken
from joblens.probes.proc.processes import IO_FIELDS

if TYPE_CHECKING:
    from joblens.ports.clock import Clock
    from joblens.ports.probe import DetailProbe, Probe

# Counters: the value at the start is subtracted. All other fields are gauges.
COUNTERS = frozenset(
    {
        "cpu_total_usec",
        "cpu_user_usec",
        "cpu_system_usec",
        "cpu_periods",
        "cpu_throttled_periods",
        "cpu_throttled_usec",
        "cpu_some_usec",
        "cpu_full_usec",
        "memory_some_usec",
        "memory_full_usec",
        "io_some_usec",
        "io_full_usec",
        "faults_minor",
        "faults_major",
        "oom_events",
        "oom_kills",
        "io_read_bytes",
        "io_write_bytes",
        "io_read_ops",
        "io_write_ops",
        "io_call_read_bytes",
        "io_call_write_bytes",
        "io_call_reads",
        "io_call_writes",
        "memory_limit_events",
        "pids_limit_events",
        "network_rx_bytes",
        "network_tx_bytes",
        "network_rx_packets",
        "network_tx_packets",
        "network_tcp_rx_bytes",
        "network_tcp_tx_bytes",
        "network_udp_rx_bytes",
        "network_udp_tx_bytes",
        "network_ipv6_rx_bytes",
        "network_ipv6_tx_bytes",
        "instructions",
        "cycles",
        "cpu_migrations",
        "context_switches",
        "host_energy_package_uj",
        "host_energy_dram_uj",
    }
)
_DEVICE_TOTALS = ("io_read_bytes", "io_write_bytes", "io_read_ops", "io_write_ops")
_REAPED_FIELDS = ("cpu_user_usec", "cpu_system_usec", "faults_minor", "faults_major")


class JobMeter:
    """`probe` returns the job's totals. `details`, if any, reads single processes. `probe_counts_reaped` is
    False for the process tree, which contains only live processes. `others` measure beyond the group; their
    failures are recorded as reasons."""

    def __init__(
        self,
        probe: "Probe",
        details: "Probe | None",
        host: "Probe",
        clock: "Clock",
        *,
        probe_counts_reaped: bool,
        others: Sequence["Probe"] = (),
    ) -> None:
        self.probe = probe
        self.details = details
        self.others = OtherProbes(others)
        self._host = host
        self._clock = clock
        self._probe_counts_reaped = probe_counts_reaped
        self._base: dict[str, Any] = {}
        self._io_base: dict[str, Any] = {}
        self._knows_devices = True
        self._high: dict[str, int] = {}
        self._last_values: dict[str, int] = {}  # by the previous owner
        self._start_mono_ns = 0
        self._details_due_ns = 0
        self._cpu_usec: int | None = None  # at the last sample
        self._processes: dict[str, Any] | None = None  # their reading, while none of them runs
        self._idle_readings = 0
        self.has_end = False  # the last sample was read after the job's end
        self.is_idle = False  # no process of the job has run between the last two samples
        MEASURED.add(self)
        self._lock = threading.RLock()  # reentrant: instruments may list live processes

    def take_base(self) -> dict[str, int]:
        """Reads the base, when the job's process waits in its group."""
        reading = {**self.others.read(), **self.probe.read()}
        # Most counters of a new group are 0 and need no base.
        self._base = {
            name: value
            for name, value in reading.items()
            if value and (name in COUNTERS or name == "devices")
        }
        if self.details is not None:
            # I/O of the waiting process so far belongs to joblens.
            self._io_base = self.details.read()
        for probe in (self.probe, self.details):
            forget_peaks = getattr(probe, "forget_peaks", None)  # of probes that read processes
            if forget_peaks is not None:
                forget_peaks()
        return {name: value for name, value in self._base.items() if name != "devices"}

    def start_at(self, mono_ns: int) -> None:
        self._start_mono_ns = mono_ns

    def resume(self, base: Mapping[str, int], start_mono_ns: int, last: Sample | None = None) -> None:
        """Continues a job that another process began to measure. `last`: its last sample."""
        self._base = {name: value for name, value in base.items() if name in COUNTERS}
        # The base per device is not recorded: it is known only if it was 0.
        self._knows_devices = not any(base.get(name) for name in _DEVICE_TOTALS)
        self._start_mono_ns = start_mono_ns
        for name in (*_REAPED_FIELDS, *IO_FIELDS) if last is not None else ():
            value = getattr(last, name)
            if value is not None:
                self._high[name] = value
        if last is not None:
            self._last_values = {
                name: value for name in COUNTERS if (value := getattr(last, name)) is not None
            }

    def counter_files(self) -> list[str]:
        """Returns files with the job's totals at its end; empty if no group counts them."""
        probe = getattr(self.probe, "main", self.probe)  # of several trees
        files: list[str] = getattr(probe, "noted_files", list)()
        return files

    def read_totals_by(self, probe: "Probe") -> None:
        """Reads the job's totals from a probe of its groups from now on. Closes the previous probe."""
        with self._lock:
            self.probe, earlier = probe, self.probe
            self._probe_counts_reaped = True
        earlier.close()

    def sample(self, reaped: ExitUsage, *, final: bool = False, continues: bool = False) -> Sample:
        """`reaped`: usage of reaped processes, read before the live ones. `final`: this is the last sample.
        `continues`: only the measurement ends, not the job."""
        with self._lock:
            at_us, mono_ns = self._clock.now_us(), self._clock.mono_ns()
            if final and (scan_all := getattr(self.probe, "scan_all", None)):
                scan_all()  # of a process tree
            totals = self.probe.read()
            self.is_idle = not final and self._has_not_run(totals)
            fields = self._since_base(self.others.read(is_idle=self.is_idle), totals)
            if final and not continues:
                self._add_io(fields, {}, reaped)
            elif self.details is not None:
                if not self.is_idle:
                    self._processes, self._idle_readings = None, 0
                if self._processes is not None:
                    self._add_io(fields, self._processes, reaped)
                elif final or mono_ns >= self._details_due_ns:
                    cpu_before_ns = time.thread_time_ns()
                    self._add_io(fields, self._read_processes(self.details), reaped)
                    cost_ns = time.thread_time_ns() - cpu_before_ns
                    self._details_due_ns = mono_ns + pause_ns(cost_ns)
            self.has_end = final
            return self._build_sample(fields, reaped, at_us, mono_ns)

    def _read_processes(self, details: "Probe") -> dict[str, Any]:
        """Keeps the reading once each process had its turn, for as long as none of them runs."""
        living = details.read()
        self._idle_readings += 1
        if self._idle_readings >= getattr(details, "round_length", math.inf):
            self._processes = living
        return living

    def _has_not_run(self, totals: Mapping[str, Any]) -> bool:
        """Returns whether no process of the job has run since the last sample."""
        before, self._cpu_usec = self._cpu_usec, totals.get("cpu_total_usec")
        counts_each_run = getattr(self.probe, "counts_each_run", False)
        return counts_each_run and before is not None and before == self._cpu_usec

    def peek(self, reaped: ExitUsage) -> Sample:
        """Returns a sample of the totals only, which is not stored. Other probes report much of their data
        only once, for a stored sample."""
        with self._lock:
            at_us, mono_ns = self._clock.now_us(), self._clock.mono_ns()
            return self._build_sample(self._since_start(self.probe.read()), reaped, at_us, mono_ns)

    def read_others(self) -> dict[str, Any]:
        """Returns the last readings beyond the totals, when no process is left to count."""
        with self._lock:
            return {**self._since_base(self.others.read(), {}), **self._host.read()}

    def live_pids(self) -> list[int]:
        """Returns the job's processes if only the process tree contains them."""
        with self._lock:
            pids: list[int] = self.probe.descendants()  # type: ignore[attr-defined]
            return pids

    def close(self) -> None:
        MEASURED.discard(self)
        self.probe.close()
        self.others.close()
        if self.details is not None:
            self.details.close()

    def _build_sample(self, fields: dict[str, Any], reaped: ExitUsage, at_us: int, mono_ns: int) -> Sample:
        if not self._probe_counts_reaped:
            self._add_reaped(fields, reaped)
        fields.update(self._host.read())
        return Sample(at_us=at_us, elapsed_us=(mono_ns - self._start_mono_ns) // 1000, **fields)

    def _since_base(self, others: dict[str, Any], totals: dict[str, Any]) -> dict[str, Any]:
        """Returns both since the start; totals take precedence."""
        fields = self._since_start({**others, **totals})
        if self._last_values:
            self._continue_counters(fields, others)
        return fields

    def _since_start(self, reading: dict[str, Any]) -> dict[str, Any]:
        for name, base in self._base.items():
            if name == "devices":
                reading["devices"] = devices_since(reading.get("devices") or {}, base or {})
            elif name in reading:
                reading[name] = max(0, reading[name] - base)
        if not self._knows_devices:
            reading.pop("devices", None)
        return reading

    def _continue_counters(self, fields: dict[str, Any], others: Mapping[str, Any]) -> None:
        """Continues counters that restarted with this process at their last value."""
        for name, seen in self._last_values.items():
            if name in others and fields[name] < seen:
                self._base[name] = self._base.get(name, 0) - (seen - fields[name])
                fields[name] = seen
        # Some probes do not report every time.
        self._last_values = {name: seen for name, seen in self._last_values.items() if name not in fields}

    def _add_io(self, fields: dict[str, Any], living: dict[str, Any], reaped: ExitUsage) -> None:
        """Adds the I/O of live processes, each with its reaped children, and of processes that the launcher
        reaped."""
        fields.update({name: value for name, value in living.items() if name not in IO_FIELDS})
        for name in IO_FIELDS:
            done = getattr(reaped, name)
            if name in fields or done is None or (living and name not in living):
                continue  # the group's own counter is better, or a part is unknown
            alive = max(0, living[name] - self._io_base.get(name, 0)) if living else 0
            fields[name] = self._keep_monotonic(name, done + alive)

    def _add_reaped(self, fields: dict[str, Any], reaped: ExitUsage) -> None:
        for name, done in (
            ("cpu_user_usec", reaped.user_usec),
            ("cpu_system_usec", reaped.system_usec),
            ("faults_minor", reaped.faults_minor),
            ("faults_major", reaped.faults_major),
        ):
            fields[name] = self._keep_monotonic(name, fields.get(name, 0) + done)
        fields["cpu_total_usec"] = fields["cpu_user_usec"] + fields["cpu_system_usec"]
        for name in IO_FIELDS:
            if name in fields:
                done = getattr(reaped, name)
                fields[name] = self._keep_monotonic(name, fields[name] + (done or 0))
                if done is None and not fields[name]:
                    del fields[name]  # ended processes did some I/O, of unknown size

    def _keep_monotonic(self, name: str, value: int) -> int:
        # A process that ends between two readings is briefly in neither; a counter must not decrease.
        highest = max(value, self._high.get(name, 0))
        self._high[name] = highest
        return highest


def devices_since(now: dict[str, DeviceIo], base: dict[str, DeviceIo]) -> dict[str, DeviceIo]:
    nothing = DeviceIo()
    return {
        name: DeviceIo(
            read_bytes=io.read_bytes - base.get(name, nothing).read_bytes,
            write_bytes=io.write_bytes - base.get(name, nothing).write_bytes,
            read_ops=io.read_ops - base.get(name, nothing).read_ops,
            write_ops=io.write_ops - base.get(name, nothing).write_ops,
            discard_bytes=io.discard_bytes - base.get(name, nothing).discard_bytes,
            discard_ops=io.discard_ops - base.get(name, nothing).discard_ops,
        )
        for name, io in now.items()
    }


CALM_S = 0.1  # between checks
CLOSE_S = 0.05  # near a limit, which may be exceeded before the next check
_CLOSE_PART = 0.5  # of its limit


class LimitWatch:
    """Limits of one job. `interval_s`: time until the next check."""

    def __init__(self, memory_bytes: int | None = None, pids: int | None = None) -> None:
        self.interval_s = CALM_S
        self._memory_bytes = memory_bytes
        self._pids = pids

    def __bool__(self) -> bool:
        return self._memory_bytes is not None or self._pids is not None

    def judge(self, sample: Sample) -> EndCause | None:
        """Returns why the job must be killed, or None."""
        used = unreclaimable_bytes(sample)
        if used is not None and self._memory_bytes is not None:
            if used > self._memory_bytes:
                return EndCause.MEMORY_LIMIT
            self.interval_s = CLOSE_S if used > _CLOSE_PART * self._memory_bytes else CALM_S
        if self._pids is not None and (sample.threads or 0) > self._pids:
            return EndCause.PIDS_LIMIT
        return None


class Measurement:
    """Samples and details of one job. `take` and `peek` are called on the sampler's thread, `finish` after
    the sampler has released the job."""

    def __init__(
        self,
        job: Job,
        recorder: Recorder,
        meter: JobMeter,
        details: Sequence["DetailProbe"] = (),
        on_sample: Callable[[Sample], None] | None = None,
    ) -> None:
        self.meter = meter
        self.summary = RunningSummary()
        self._job = job
        self._recorder = recorder
        self._details = DetailTaker(job.uuid, details, self._put_details)
        self._on_sample = on_sample
        self._next_index = 0

    @property
    def details(self) -> Details:
        """Details as last read."""
        return self._details.latest

    def take(self, reaped: ExitUsage) -> Sample | None:
        """Takes and stores a sample. Returns None if the group has just vanished."""
        sample = self._read(reaped)
        if sample is not None:
            self._details.tick(is_idle=self.meter.is_idle)
            self._store(sample)  # last: it may wake the recorder, which needs the interpreter too
        return sample

    def peek(self, reaped: ExitUsage) -> Sample | None:
        """Takes a sample that is not stored but counts for peaks."""
        try:
            sample = self.meter.peek(reaped)
        except ProbeError:
            return None
        self.summary.add_unstored(sample)
        return sample

    def finish(self, reaped: ExitUsage, *, continues: bool = False) -> Sample | None:
        """Takes the last sample while the groups still exist; returns None if they do not. `continues`: only
        the measurement ends, not the job."""
        last = self._read(reaped, final=True, continues=continues)
        if last is not None:
            self._store(last)
            self._details.tick(final=True)
        return last

    def close(self) -> None:
        self.meter.close()
        self._details.close()

    def _read(self, reaped: ExitUsage, *, final: bool = False, continues: bool = False) -> Sample | None:
        try:
            return self.meter.sample(reaped, final=final, continues=continues)
        except ProbeError:
            return None

    def _store(self, sample: Sample) -> None:
        if not self._job.monitor:
            self.summary.add_unstored(sample)  # the first and the last sample give the totals
            return
        self.summary.add(sample)
        self._recorder.put([SamplesTaken(self._job.uuid, self._next_index, (sample,))], can_wait=True)
        self._next_index += 1
        if self._on_sample is not None:
            self._on_sample(sample)

    def _put_details(self, writes: list[DetailsTaken]) -> None:
        self._recorder.put(writes, can_wait=True)
