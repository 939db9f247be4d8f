"""Usage totals of a job: each number with its source, or the reason why it is None (docs/metrics.md)."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from joblens.analysis.numbers.rates import (
    FROM_WAITED,
    NOT_MEASURED,
    ONLY_IMPORTED,
    has_unreaped_processes,
    page_cache,
    unreclaimable_bytes,
)
from joblens.analysis.numbers.sample_buffer import (
    UNRECLAIMABLE,
    Mark,
    group_peak,
    is_noticeable,
    peak_of,
    process_mark,
    quiet_peak,
)
from joblens.model.jobs.job import USAGE_NUMBERS, ExitUsage, Usage
from joblens.model.jobs.sample import Sample

RUSAGE = "wait4 rusage"
_LARGEST_SAMPLE = "largest sample of"
_RSS_FILE = "/proc/PID/status RssFile of the largest process"
_BELOW_LAUNCHER = "no process was larger than the launcher, whose size the kernel's figure starts from"
_CHARGED_ELSEWHERE = "the memory of its processes was charged to their previous group"
_NO_PROCESS_SEEN = "no sample found a process"
_GPU_DOES_NOT_TELL = "unknown to the driver of its GPUs"
REAPED_IO = "/proc/PID/io of the launcher, which includes reaped processes"
_REAPED_IO_UNREAD = "the launcher could not read the I/O of the processes it reaped"

# Number -> (group under which its source is named, field of Sample that it comes from).
_ORIGINS: dict[str, tuple[str, str]] = {
    "cpu_total_usec": ("cpu", "cpu_total_usec"),
    "cpu_user_usec": ("cpu", "cpu_user_usec"),
    "cpu_system_usec": ("cpu", "cpu_system_usec"),
    "cpu_throttled_usec": ("throttling", "cpu_throttled_usec"),
    "memory_peak_bytes": ("memory_peak", "memory_anon_bytes"),
    "memory_kernel_peak_bytes": ("memory_kernel_peak", "memory_kernel_peak_bytes"),
    "memory_largest_process_bytes": ("memory_largest_process", "memory_largest_process_bytes"),
    "memory_mean_bytes": ("memory_parts", "memory_anon_bytes"),
    "memory_file_peak_bytes": ("memory_file_peak", "memory_file_bytes"),
    "faults_minor": ("faults", "faults_minor"),
    "faults_major": ("faults", "faults_major"),
    "oom_kills": ("oom_kills", "oom_kills"),
    "io_read_bytes": ("io", "io_read_bytes"),
    "io_write_bytes": ("io", "io_write_bytes"),
    "io_read_ops": ("io_ops", "io_read_ops"),
    "io_write_ops": ("io_ops", "io_write_ops"),
    "io_call_read_bytes": ("io_calls", "io_call_read_bytes"),
    "io_call_write_bytes": ("io_calls", "io_call_write_bytes"),
    "io_call_reads": ("io_calls", "io_call_reads"),
    "io_call_writes": ("io_calls", "io_call_writes"),
    "processes_peak": ("processes", "processes"),
    "threads_peak": ("threads", "threads"),
    "open_files_peak": ("open_files", "open_files"),
    "context_switches_voluntary": ("context_switches", ""),
    "context_switches_involuntary": ("context_switches", ""),
    "cpu_pressure_usec": ("cpu_pressure", "cpu_some_usec"),
    "memory_pressure_usec": ("memory_pressure", "memory_some_usec"),
    "io_pressure_usec": ("io_pressure", "io_some_usec"),
    "pids_limit_events": ("pids_limit_events", "pids_limit_events"),
    "network_rx_bytes": ("network", "network_rx_bytes"),
    "network_tx_bytes": ("network", "network_tx_bytes"),
    "network_rx_packets": ("network", "network_rx_packets"),
    "network_tx_packets": ("network", "network_tx_packets"),
    "gpu_memory_peak_bytes": ("gpu", "gpus"),
    "gpu_busy_usec": ("gpu", "gpus"),
    "gpu_energy_uj": ("gpu_energy", "gpus"),
    "energy_package_uj": ("energy", "host_energy_package_uj"),
    "energy_dram_uj": ("energy", "host_energy_dram_uj"),
    "co2_mg": ("co2", ""),
    "instructions": ("processor_counters", "instructions"),
    "cycles": ("processor_counters", "cycles"),
    "cpu_migrations": ("cpu_migrations", "cpu_migrations"),
    "memory_rss_sum_peak_bytes": ("memory_rss_sum", "memory_rss_sum_bytes"),
}
# Numbers that the last sample cannot have if the job continued after it.
GROWING = frozenset(group for group, _ in _ORIGINS.values()) - {"processes", "threads", "open_files"}
# The kernel counts these for a group and for nothing else.
_GROUP_COUNTERS = (
    "cpu_throttled_usec", "oom_kills", "io_read_ops", "io_write_ops", "cpu_pressure_usec",
    "memory_pressure_usec", "io_pressure_usec", "pids_limit_events",
)  # fmt: skip
# Counted by instruments of their own, where there are such.
_INSTRUMENT_COUNTERS = (
    "network_rx_bytes", "network_tx_bytes", "network_rx_packets", "network_tx_packets", "instructions",
    "cycles", "cpu_migrations",
)  # fmt: skip
_INSTRUMENT_NUMBERS = frozenset(USAGE_NUMBERS[USAGE_NUMBERS.index("network_rx_bytes") :])
_ONLY_WAITED = "known only when the job's processes are waited for"


def _last_reason(number: str) -> str:
    if number == "memory_rss_sum_peak_bytes":
        return ONLY_IMPORTED
    if number in _INSTRUMENT_NUMBERS:
        return NOT_MEASURED
    return "" if _ORIGINS[number][1] else _ONLY_WAITED


# Numbers of a single counter, and the last possible reason why each is unknown ('': it should be known):
# looked up for every job that ends.
_COUNTED = tuple((number, *_ORIGINS[number]) for number in (*_GROUP_COUNTERS, *_INSTRUMENT_COUNTERS))
_EXPLAINED = tuple(
    (
        number,
        *_ORIGINS[number],
        _last_reason(number),
    )
    for number in USAGE_NUMBERS
)
_CALLS = ("io_call_read_bytes", "io_call_write_bytes", "io_call_reads", "io_call_writes")


def total_usage(
    samples: Sequence[Sample],
    exit_usage: ExitUsage | None,
    *,
    accounting: str,
    sources: Mapping[str, str],
    unknown: Mapping[str, str],
    lower_bounds: Collection[str] = (),
    has_end: bool = True,
) -> Usage:
    """Returns the totals. `samples`: in order, counters since the start, the last one after the end unless
    `has_end` is False. `sources` and `lower_bounds`: by group or field, from the probes; `unknown`: by
    field."""
    has_group = accounting.startswith("cgroup")
    total = _Total(samples, exit_usage, sources, unknown, has_group=has_group, has_end=has_end)
    total.add_cpu()
    total.add_faults()
    total.add_io()
    total.add_memory()
    total.add_peaks()
    total.add_counters()
    total.add_energy()
    total.add_gpus()
    return total.usage(lower_bounds)


def source_of(usage: Usage, number: str) -> str | None:
    """Returns where a number of this usage was read; None: it is unknown."""
    if getattr(usage, number) is None:
        return None
    return usage.sources.get(_ORIGINS[number][0])


class _Total:
    def __init__(
        self,
        samples: Sequence[Sample],
        exit_usage: ExitUsage | None,
        sources: Mapping[str, str],
        unknown: Mapping[str, str],
        *,
        has_group: bool,
        has_end: bool,
    ) -> None:
        self.samples = samples
        self.exit = exit_usage
        self.has_group = has_group
        self.has_end = has_end
        self._given_sources = sources
        self._given_unknown = unknown
        self._numbers: dict[str, Any] = {}
        self._sources: dict[str, str] = {}
        self._unknown: dict[str, str] = {}
        self._lower: list[str] = []
        self._estimates: list[str] = []

    def usage(self, missed: Collection[str]) -> Usage:
        numbers, unknown, given = self._numbers, self._unknown, self._given_unknown.get
        not_read = "could not be read" if self.samples else "no sample was taken"
        for number, group, field, otherwise in _EXPLAINED:
            if number not in numbers and number not in unknown:
                unknown[number] = given(field) or given(group) or otherwise or not_read
        lower = set(self._lower)
        if missed:
            lower.update(number for number in numbers if self._may_miss(number, missed))
        return Usage(
            **numbers,
            sources=self._sources,
            unknown=unknown,
            lower_bounds=tuple(number for number in USAGE_NUMBERS if number in lower) if lower else (),
            estimates=tuple(self._estimates),
            memory_peak_basis=UNRECLAIMABLE if "memory_peak_bytes" in numbers else "",
        )

    def _may_miss(self, number: str, missed: Collection[str]) -> bool:
        group, field = _ORIGINS[number]
        if number == "memory_peak_bytes" and self._sources[group].startswith(_LARGEST_SAMPLE):
            group = "memory_parts"
        if group not in missed and field not in missed:
            return False
        # Usage of processes that were waited for is complete, even if the probe missed living ones. A group
        # also counts processes that no parent waits for, so without its last reading nothing is certain.
        return not self._is_of_waited(number) or (self.has_group and not self.has_end)

    def add_cpu(self) -> None:
        waited = None if self.exit is None else self.exit.user_usec + self.exit.system_usec
        self._add_larger("cpu_total_usec", waited, RUSAGE, prefer_seen=self.has_group)
        if "cpu_total_usec" in self._numbers:
            self._split_cpu(self._numbers["cpu_total_usec"])

    def _split_cpu(self, total: int) -> None:
        """Splits the total in the known proportion of user and system time, so that both add up to it."""
        user, system = self._last("cpu_user_usec")[0], self._last("cpu_system_usec")[0]
        if self.exit is not None and (self._sources["cpu"] == RUSAGE or user is None or system is None):
            user, system = self.exit.user_usec, self.exit.system_usec
        if user is None or system is None:
            return
        if user + system == 0 and total > 0:
            self._unknown["cpu_user_usec"] = "too short for the kernel to separate user from system time"
            self._unknown["cpu_system_usec"] = self._unknown["cpu_user_usec"]
            return
        scaled = round(total * user / (user + system)) if user + system != total else user
        self._numbers["cpu_user_usec"] = scaled
        self._numbers["cpu_system_usec"] = total - scaled

    def add_faults(self) -> None:
        for number in ("faults_minor", "faults_major"):
            waited = None if self.exit is None else getattr(self.exit, number)
            self._add_larger(number, waited, RUSAGE, prefer_seen=self.has_group)

    def add_io(self) -> None:
        # Only a group counts operations on devices: where it does, its bytes are exact too.
        group_counts = self.has_group and self._last("io_read_ops")[0] is not None
        for number in ("io_read_bytes", "io_write_bytes", *_CALLS):
            waited = None if self.exit is None else getattr(self.exit, number)
            prefer_seen = group_counts and number not in _CALLS
            self._add_larger(number, waited, REAPED_IO, prefer_seen=prefer_seen)
        if self.exit is not None:
            for number in ("context_switches_voluntary", "context_switches_involuntary"):
                self._put(number, getattr(self.exit, number), RUSAGE)
            if self.has_group and self.samples and has_unreaped_processes(self.samples[-1], self.exit):
                self._lower += [each for each in FROM_WAITED if self._is_of_waited(each)]

    def _is_of_waited(self, number: str) -> bool:
        return self._sources.get(_ORIGINS[number][0]) in (RUSAGE, REAPED_IO)

    def _add_larger(self, number: str, waited: int | None, waited_source: str, *, prefer_seen: bool) -> None:
        """Adds the exact usage of reaped processes, or that of the samples if it is larger: then some
        processes were never reaped (their parent ignores SIGCHLD), and it is a lower bound."""
        sampled, is_final = self._last(number)
        is_exact = prefer_seen and is_final
        if sampled is not None and (is_exact or waited is None or sampled > waited):
            self._put(number, sampled)
            if not is_exact:
                self._lower.append(number)
        elif waited is not None:
            self._put(number, waited, waited_source)
        elif waited_source is REAPED_IO and self.exit is not None and self.exit.reaped:
            self._unknown[number] = _REAPED_IO_UNREAD

    def add_memory(self) -> None:
        largest = self._largest_process()
        sampled = max(
            (size for one in self.samples if (size := unreclaimable_bytes(one)) is not None), default=0
        )
        kernel_peak = self._most("memory_kernel_peak_bytes")
        if kernel_peak is not None:
            # The files are read one after the other, and the sums of some kernels lag behind.
            kernel_peak = max(kernel_peak, sampled)
            self._put("memory_kernel_peak_bytes", kernel_peak)
        if kernel_peak is None:
            found = self._process_peak(sampled, largest)
        else:
            found = self._group_peak(sampled, largest, kernel_peak)
            if not self.has_end:  # the group's peak is that of the last sample, its processes' of their ends
                found = max(found, self._process_peak(sampled, largest))
                self._numbers["memory_kernel_peak_bytes"] = max(kernel_peak, found[0])
        if found[0]:
            peak, is_estimate, source = found
            self._put("memory_peak_bytes", peak, source)
            if kernel_peak is None and (self._may_have_been_several() or not self._knows_largest_process()):
                self._lower.append("memory_peak_bytes")
            elif is_estimate:
                self._estimates.append("memory_peak_bytes")
        else:
            self._explain_no_peak()
        self._drop_idle_bound()
        self._add_file_peak()
        mean = mean_unreclaimable(self.samples)
        if mean == 0 and self._unknown.get("memory_peak_bytes") == _CHARGED_ELSEWHERE:
            self._unknown["memory_mean_bytes"] = _CHARGED_ELSEWHERE
        elif mean is not None:
            self._put("memory_mean_bytes", mean)
        elif 0 < len(self.samples) < 3:
            self._unknown["memory_mean_bytes"] = "no sample was taken between start and end"

    def _group_peak(self, sampled: int, largest: int | None, kernel_peak: int) -> tuple[int, bool, str]:
        """Returns (peak, whether it is an estimate, source): the kernel's own peak without file pages."""
        removed = 0 if self.exit is None else self.exit.io_removed_bytes or 0
        io_bytes = self._io_bytes()
        found = quiet_peak(self.samples, sampled, io_bytes, removed)
        if found is None:
            found = group_peak(self.samples, sampled, self._held_bytes(), io_bytes, removed)
        if found is None:
            # A process's high-water mark has pages in it that others were charged for.
            peak = min(kernel_peak, max(sampled, largest or 0))
            return peak, peak > sampled, self._given("memory_kernel_peak", "memory_kernel_peak_bytes")
        peak, is_estimate = found
        return peak, is_estimate, self._peak_source(peak, sampled, self._sources["memory_kernel_peak"])

    def _process_peak(self, sampled: int, largest: int | None) -> tuple[int, bool, str]:
        """Returns the same without a peak of the group: the high-water mark of the largest process, without
        mapped files if these are known."""
        if largest is None:
            return sampled, False, self._peak_source(sampled, sampled, "")
        source = f"largest process: {self._sources['memory_largest_process']}"
        found = peak_of([*map(process_mark, self.samples), Mark(largest)])
        if found is None:
            peak = max(sampled, largest)
            source = self._peak_source(peak, sampled, f"{source}, with the files that it maps", "")
            return peak, is_noticeable(peak - sampled, peak), source
        peak = max(sampled, found.least)
        is_estimate = is_noticeable(found.most - peak, peak)
        return peak, is_estimate, self._peak_source(peak, sampled, source)

    def _peak_source(self, peak: int, sampled: int, source: str, less: str = " less file pages") -> str:
        parts = self._given("memory_parts", "memory_anon_bytes")
        return f"{_LARGEST_SAMPLE} {parts}" if peak == sampled else f"{source}{less}"

    def _held_bytes(self) -> int | None:
        """Returns the maximum memory of its processes, with mapped files; None: none was reaped."""
        if self.exit is None or not self.exit.max_rss_bytes:
            return None
        each = max(self.exit.max_rss_bytes, self._most("memory_largest_process_bytes") or 0)
        count = max(1, self.exit.reaped, self._most("processes") or 0)
        return each * count + (self._most("memory_kernel_bytes") or 0)

    def _io_bytes(self) -> int:
        """Returns bytes read from devices and written to files, as the job's processes counted them at their
        calls."""
        counted = self.exit if self.exit is not None else self.samples[-1]
        return (counted.io_read_bytes or 0) + (counted.io_write_bytes or 0)

    def _largest_process(self) -> int | None:
        sampled = self._most("memory_largest_process_bytes")
        waited = self.exit.max_rss_bytes if self.exit is not None and self._knows_largest_process() else None
        largest = max(sampled or 0, waited or 0) or None
        if largest is not None:
            source = RUSAGE if largest == waited else None
            self._put("memory_largest_process_bytes", largest, source)
            if waited is None:
                self._lower.append("memory_largest_process_bytes")  # it may have grown after the last sample
        elif self.exit is not None and self.exit.max_rss_bytes:
            self._unknown["memory_largest_process_bytes"] = _BELOW_LAUNCHER
        return largest

    def _add_file_peak(self) -> None:
        cached = [size for sample in self.samples if (size := page_cache(sample)) is not None]
        if cached:
            parts = self._given("memory_parts", "memory_file_bytes")
            self._put("memory_file_peak_bytes", max(cached), f"{_LARGEST_SAMPLE} {parts}")
        elif (mapped := self._most("memory_largest_process_file_bytes")) is not None:
            self._put("memory_file_peak_bytes", mapped, _RSS_FILE)

    def _drop_idle_bound(self) -> None:
        """Drops a meaningless lower bound: a small process sampled before its program was loaded.
        If the kernel's figure was lost (no exit), the samples are all there is, and stay."""
        number = "memory_largest_process_bytes"
        peak = self._numbers.get("memory_peak_bytes", 0)
        if number in self._lower and self.exit is not None and self._numbers[number] < peak:
            del self._numbers[number], self._sources["memory_largest_process"]
            self._lower.remove(number)
            self._unknown[number] = _BELOW_LAUNCHER

    def _knows_largest_process(self) -> bool:
        """Returns whether the kernel's figure is larger than the launcher, from whose size it starts."""
        return self.exit is not None and self.exit.max_rss_bytes > self.exit.rss_floor_bytes

    def _may_have_been_several(self) -> bool:
        processes = self._most("processes")
        if processes is None:
            return self.exit is None or self.exit.reaped != 1
        return processes > 1

    def _explain_no_peak(self) -> None:
        why = self._unknown.get("memory_largest_process_bytes")
        if why and self.exit is not None and self.exit.max_rss_bytes:
            self._unknown["memory_peak_bytes"] = why
        elif any(sample.processes and unreclaimable_bytes(sample) == 0 for sample in self.samples):
            self._unknown["memory_peak_bytes"] = _CHARGED_ELSEWHERE

    def add_peaks(self) -> None:
        processes = self._most("processes")
        summed = self._most("memory_rss_sum_bytes")
        if summed is not None:
            self._put("memory_rss_sum_peak_bytes", summed)
        for number in ("processes_peak", "threads_peak", "open_files_peak"):
            most = self._most(_ORIGINS[number][1])
            if most is not None and not most and not processes:
                self._unknown[number] = _NO_PROCESS_SEEN  # there was one, else it would not have ended
            elif most is not None:
                self._put(number, most)
                self._lower.append(number)  # there may have been more between two samples

    def add_counters(self) -> None:
        last = self.samples[-1] if self.samples else None
        for number, group, field in _COUNTED:
            sampled = getattr(last, field, None)
            if sampled is None:
                sampled, _ = self._last(field)
                if sampled is None:
                    continue
                self._lower.append(number)
            self._numbers[number] = sampled
            self._sources[group] = self._given(group, field)

    def add_energy(self) -> None:
        if not any(sample.host_energy_package_uj is not None for sample in self.samples):
            return
        # Few machines have it, and each start would pay for it.
        from joblens.analysis.numbers.attribution import TOO_SHORT, energy_shares, misses_energy

        shares = energy_shares(self.samples)
        for number, share in (("energy_package_uj", shares.package_uj), ("energy_dram_uj", shares.dram_uj)):
            field = _ORIGINS[number][1]
            if share is not None:
                self._put(number, share)
                if misses_energy(self.samples, field):
                    self._lower.append(number)
            elif any(getattr(sample, field) is not None for sample in self.samples):
                self._unknown[number] = self._given_unknown.get(field) or TOO_SHORT

    def add_gpus(self) -> None:
        if not any(sample.gpus is not None for sample in self.samples):
            return
        from joblens.analysis.numbers.gpu import gpu_totals  # as above: few machines have one

        totals = gpu_totals(self.samples)
        for number, value in (
            ("gpu_memory_peak_bytes", totals.memory_peak_bytes),
            ("gpu_busy_usec", totals.busy_usec),
            ("gpu_energy_uj", totals.energy_uj),
        ):
            if value is not None:
                self._put(number, value)
            else:
                self._unknown[number] = self._given_unknown.get("gpus") or _GPU_DOES_NOT_TELL

    def _put(self, number: str, value: int, source: str | None = None) -> None:
        group, field = _ORIGINS[number]
        self._numbers[number] = value
        self._sources[group] = source or self._given(group, field)

    def _given(self, group: str, field: str) -> str:
        return self._given_sources.get(group) or self._given_sources.get(field) or "samples"

    def _last(self, field: str) -> tuple[int | None, bool]:
        """Returns the last known value of a counter, and whether the final sample has it."""
        is_final = self.has_end
        for sample in reversed(self.samples):
            value: int | None = getattr(sample, field)
            if value is not None:
                return value, is_final
            is_final = False
        return None, False

    def _most(self, field: str) -> int | None:
        most: int | None = None
        for sample in self.samples:
            value = getattr(sample, field)
            if value is not None and (most is None or value > most):
                most = value
        return most


def mean_unreclaimable(samples: Sequence[Sample], running: Sequence[Sample] | None = None) -> int | None:
    """Returns the mean over the time the job ran. `running`: samples while it ran.
    Default: all but the first, before the program, and the last, after its end. None if there are none."""
    running = samples[1:-1] if running is None else running
    sizes = [(sample.elapsed_us, unreclaimable_bytes(sample)) for sample in running]
    known = [(at_us, size) for at_us, size in sizes if size is not None]
    if not known:
        return None
    held = [(samples[0].elapsed_us, known[0][1]), *known, (samples[-1].elapsed_us, known[-1][1])]
    area = sum(
        (earlier[1] + later[1]) / 2 * (later[0] - earlier[0]) for earlier, later in itertools.pairwise(held)
    )
    length = held[-1][0] - held[0][0]
    return round(area / length) if length > 0 else known[0][1]
