"""Metrics of a job: one sample as text in groups, or samples as a growing table."""

from collections.abc import Callable, Iterator, Sequence

from joblens.analysis.numbers.gpu import busy_together, gpu_memory_bytes
from joblens.analysis.numbers.rates import (
    cpu_percent,
    elapsed_usec,
    growth,
    host_cpu_percent,
    per_second,
    throttle_percent,
    unreclaimable_bytes,
)
from joblens.model.jobs.details import GpuFacts
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import format_bytes, format_instant
from joblens.views.jobs.devices import energy_pairs, gpu_lines, network_pairs
from joblens.views.text.charts import memory_in_use
from joblens.views.text.numbers import UNKNOWN, compact_bytes, percent, rate
from joblens.views.text.style import Palette, pad_left

Pairs = list[tuple[str, str]]


def render_sample(
    sample: Sample,
    previous: Sample | None,
    record: Record,
    paint: Palette,
    gpus: Sequence[GpuFacts] = (),
    gpu_before: Sample | None = None,
) -> list[str]:
    """Formats one sample. Omits unknown numbers, and groups without numbers.

    `gpus`: facts about the devices; `gpu_before`: the last sample that included them.
    """
    clock = format_instant(sample.at_us)[11:19]
    lines = [
        paint.paint(f"═══ Metrics Sample at {clock} ═══", "bold"),
        f"Job ID: {record.job.uuid}",
        f"Sample Interval: {_interval(sample, previous, record)}",
    ]
    for title, group in (
        ("CPU", _pair_lines(_cpu(sample, previous, record))),
        ("Memory", _pair_lines(_memory(sample))),
        ("I/O", _pair_lines(_io(sample, previous))),
        ("Processes", _pair_lines(_processes(sample))),
        ("GPU", gpu_lines(sample, gpu_before or previous, gpus)),
        ("Network", _pair_lines(network_pairs(sample, previous))),
        ("PSI (time spent waiting, average of the last 10s)", _pair_lines(_pressure(sample))),
        ("Energy", _pair_lines(energy_pairs(sample, previous))),
        ("Host", _pair_lines(_host(sample, previous))),
    ):
        if group:
            lines += ["", paint.paint(f"{title}:", "bold"), *group]
    return lines


def _pair_lines(pairs: Pairs) -> list[str]:
    return [f"  {name}: {value}" for name, value in pairs if value != UNKNOWN]


def _interval(sample: Sample, previous: Sample | None, record: Record) -> str:
    seconds = record.job.interval_s
    if previous is not None:
        seconds = (sample.elapsed_us - previous.elapsed_us) / 1e6
    return f"{seconds:.3g}s"


def _cpu(sample: Sample, previous: Sample | None, record: Record) -> Pairs:
    throttled = throttle_percent(previous, sample) if previous else None
    if previous and throttled is None and _has_no_cpu_limit(record):
        throttled = 0.0  # the kernel counts it only under a limit
    return [
        ("Usage", _two_decimals(cpu_percent(previous, sample) if previous else None)),
        ("Throttled", _two_decimals(throttled)),
        ("User Time", _micros(sample.cpu_user_usec)),
        ("System Time", _micros(sample.cpu_system_usec)),
        ("Total Time", _micros(sample.cpu_total_usec)),
        ("Throttled Time", _micros(sample.cpu_throttled_usec)),
        ("Instructions", _instructions(sample, previous)),
        ("Migrations", _number(sample.cpu_migrations)),
        ("Context Switches", _number(sample.context_switches)),
    ]


def _has_no_cpu_limit(record: Record) -> bool:
    """Returns False for jobs that joblens did not start: they may have an unknown limit."""
    job = record.job
    is_ours = bool(job.argv) and not job.attached and record.attempt is not None
    return is_ours and (job.requirements.cpus is None or not job.enforce)


def _instructions(sample: Sample, previous: Sample | None) -> str:
    """Returns instructions with their number per cycle since the previous sample."""
    if sample.instructions is None:
        return UNKNOWN
    done = growth(previous, sample, "instructions") if previous else sample.instructions
    cycles = growth(previous, sample, "cycles") if previous else sample.cycles
    per_cycle = f" ({done / cycles:.2f} per cycle)" if done is not None and cycles else ""
    return f"{sample.instructions:,}{per_cycle}"


def _memory(sample: Sample) -> Pairs:
    current = format_bytes(sample.memory_current_bytes)
    if sample.memory_current_bytes is not None and sample.memory_limit_bytes:
        share = 100 * sample.memory_current_bytes / sample.memory_limit_bytes
        current += f" ({share:.2f}%)"
    return [
        ("Current", current),
        ("Limit", format_bytes(sample.memory_limit_bytes) if sample.memory_limit_bytes else UNKNOWN),
        ("Peak", format_bytes(sample.memory_kernel_peak_bytes)),
        ("Unreclaimable", format_bytes(unreclaimable_bytes(sample))),
        ("Anonymous", format_bytes(sample.memory_anon_bytes)),
        ("File Cache", format_bytes(sample.memory_file_bytes)),
        ("Shared", format_bytes(sample.memory_shmem_bytes)),
        ("Kernel", format_bytes(sample.memory_kernel_bytes)),
        ("Swap", format_bytes(sample.memory_swap_bytes)),
        ("Proportional (PSS)", format_bytes(sample.memory_pss_bytes)),
        *_summed_rss(sample),
        ("Huge Pages", format_bytes(sample.memory_huge_bytes)),
        ("Largest Process", format_bytes(sample.memory_largest_process_bytes)),
        ("Page Faults", _pair(sample.faults_minor, "minor", sample.faults_major, "major")),
        ("OOM Events", _pair(sample.oom_events, "events", sample.oom_kills, "kills")),
    ]


def _summed_rss(sample: Sample) -> Pairs:
    """Returns the summed RSS, which only imported samples have."""
    summed = sample.memory_rss_sum_bytes
    return [] if summed is None else [("Summed RSS", format_bytes(summed))]


def _io(sample: Sample, previous: Sample | None) -> Pairs:
    pairs: Pairs = []
    for title, direction in (("Read", "read"), ("Write", "write")):
        if previous is None:
            continue
        speed = rate(per_second(previous, sample, f"io_{direction}_bytes"))
        operations = per_second(previous, sample, f"io_{direction}_ops")
        pairs.append((title, speed if operations is None else f"{speed} ({operations:.0f} ops/s)"))
    return [
        *pairs,
        ("Total Read", format_bytes(sample.io_read_bytes)),
        ("Total Write", format_bytes(sample.io_write_bytes)),
        ("Read Calls", _calls(sample.io_call_read_bytes, sample.io_call_reads)),
        ("Write Calls", _calls(sample.io_call_write_bytes, sample.io_call_writes)),
        *(
            (f"Device {name}", f"{format_bytes(io.read_bytes)} read, {format_bytes(io.write_bytes)} written")
            for name, io in sorted((sample.devices or {}).items())
        ),
    ]


def _processes(sample: Sample) -> Pairs:
    count = _number(sample.processes)
    if sample.processes is not None and sample.pids_limit is not None:
        count += f" (max: {sample.pids_limit})"
    descriptors = _number(sample.open_files)
    if sample.open_files is not None and sample.open_files_limit is not None:
        descriptors += f"/{sample.open_files_limit}"
    return [
        ("Count", count),
        ("Threads", _number(sample.threads)),
        ("Open FDs", descriptors),
        ("Limit Events", _number(sample.pids_limit_events)),
    ]


def _pressure(sample: Sample) -> Pairs:
    return [
        (title, _some_and_full(sample, kind))
        for title, kind in (("CPU", "cpu"), ("Memory", "memory"), ("I/O", "io"))
    ]


def _some_and_full(sample: Sample, kind: str) -> str:
    """Returns the kernel's 10 s mean of the time in which some, or all, tasks waited."""
    parts = []
    for share in ("some", "full"):
        hundredths: int | None = getattr(sample, f"{kind}_{share}_avg10")
        if hundredths is not None:
            parts.append(f"{share} {hundredths / 100:.2f}%")
    return ", ".join(parts) or UNKNOWN


def _host(sample: Sample, previous: Sample | None) -> Pairs:
    memory = format_bytes(sample.host_memory_used_bytes)
    if sample.host_memory_total_bytes is not None:
        memory += f" / {format_bytes(sample.host_memory_total_bytes)}"
    load: Sequence[int | None] = (sample.host_load1, sample.host_load5, sample.host_load15)
    known = [f"{hundredths / 100:.2f}" for hundredths in load if hundredths is not None]
    return [
        ("CPU", _two_decimals(host_cpu_percent(previous, sample) if previous else None)),
        ("Memory", memory),
        ("Load", " ".join(known) or UNKNOWN),
        ("Network", _host_network(sample, previous)),
    ]


def _host_network(sample: Sample, previous: Sample | None) -> str:
    if sample.host_network_rx_bytes is None or previous is None:
        return UNKNOWN
    received, sent = (per_second(previous, sample, f"host_network_{way}_bytes") for way in ("rx", "tx"))
    return UNKNOWN if received is None else f"{rate(received)} received, {rate(sent)} sent"


def _two_decimals(percent: float | None) -> str:
    return UNKNOWN if percent is None else f"{percent:.2f}%"


def _micros(usec: int | None) -> str:
    return UNKNOWN if usec is None else f"{usec} μs"


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _pair(first: int | None, first_word: str, second: int | None, second_word: str) -> str:
    parts = [
        f"{value} {word}" for value, word in ((first, first_word), (second, second_word)) if value is not None
    ]
    return ", ".join(parts) or UNKNOWN


def _calls(count: int | None, calls: int | None) -> str:
    if count is None:
        return UNKNOWN
    return format_bytes(count) if calls is None else f"{format_bytes(count)} ({calls} calls)"


_SHORTEST_USEC = 40_000  # four kernel ticks: rates over less time are meaningless
_TITLES = ("CPU", "MEMORY", "READ/S", "WRITE/S", "NET IN/S", "NET OUT/S")
_GPU_TITLES = ("GPU", "GPU MEM")
_NARROWEST = 6
_GAP = "  "
_CLOCK, _TENTHS = 8, 10  # columns of 10:30:01 and of 10:30:01.5


class SampleTable:
    """Table that grows by one line per sample. Rates are over the time since the number was last read. Column
    titles are printed first, and again if a GPU appears later."""

    def __init__(self, paint: Palette, *, interval_s: float, has_gpu: bool) -> None:
        self._paint = paint
        self._digits = _CLOCK if interval_s >= 1 else _TENTHS
        self._has_gpu = has_gpu
        self._is_titled = False
        self._before: dict[str, Sample] = {}

    def skip(self, sample: Sample) -> None:
        """Uses a sample only as the base of the next rates."""
        self._cells(sample)

    def lines(self, sample: Sample) -> Iterator[str]:
        cells = self._cells(sample)
        if sample.gpus and not self._has_gpu:
            self._has_gpu, self._is_titled = True, False
        titles = [*_TITLES, *(_GPU_TITLES if self._has_gpu else ())]
        if not self._is_titled:
            self._is_titled = True
            yield self._paint.paint(self._line("TIME".ljust(self._digits), titles, titles), "bold")
        yield self._line(format_instant(sample.at_us)[11 : 11 + self._digits], cells, titles)

    def _line(self, time: str, cells: list[str], titles: list[str]) -> str:
        # strict=False: without a GPU, its cells have no titles
        shown = [
            pad_left(cell, max(_NARROWEST, len(title))) for cell, title in zip(cells, titles, strict=False)
        ]
        return _GAP.join([time, *shown])

    def _cells(self, sample: Sample) -> list[str]:
        return [
            percent(self._rate(sample, "cpu_total_usec", cpu_percent)),
            compact_bytes(memory_in_use(sample)),
            *(compact_bytes(self._io_rate(sample, way)) for way in ("read", "write")),
            *(compact_bytes(self._growth(sample, f"network_{way}_bytes")) for way in ("rx", "tx")),
            percent(self._rate(sample, "gpus", busy_together)),
            compact_bytes(gpu_memory_bytes(sample)),
        ]

    def _io_rate(self, sample: Sample, way: str) -> float | None:
        """Returns device I/O, or I/O by system calls where that is unknown."""
        devices, calls = (self._growth(sample, f"{kind}_{way}_bytes") for kind in ("io", "io_call"))
        return calls if devices is None else devices

    def _growth(self, sample: Sample, counter: str) -> float | None:
        return self._rate(sample, counter, lambda earlier, later: per_second(earlier, later, counter))

    def _rate(
        self, sample: Sample, counter: str, rate: Callable[[Sample, Sample], float | None]
    ) -> float | None:
        if getattr(sample, counter) is None:
            return None
        before = self._before.get(counter)
        if before is not None and (elapsed_usec(before, sample) or 0) < _SHORTEST_USEC:
            return None
        self._before[counter] = sample
        return None if before is None else rate(before, sample)
