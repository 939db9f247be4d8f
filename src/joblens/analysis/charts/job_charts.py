"""Charts of one job: curves of all its metrics on one time axis, with limits and the reason of each metric
that was not measured. Few points, every peak preserved."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from operator import add, sub
from statistics import median

from msgspec import Struct

from joblens.analysis.numbers.downsampling import Values, bucket_bounds, rates
from joblens.model.jobs.details import Details, GpuFacts
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import GpuReading, SampleSeries

_SHORTEST_US = 40_000  # a rate over less than four ticks of the kernel would be a spike made of nothing
_USEC_TO_PERCENT = 1 / 10_000
_GIVEN_BY = {"cgroup-v2": "control groups", "cgroup-v1": "control groups", "process-tree": "the process tree"}


class Curve(Struct, frozen=True, kw_only=True):
    key: str
    title: str
    values: Sequence[float | None]


class Chart(Struct, frozen=True, kw_only=True):
    """`unknown`: why there is no curve; '' if there is one. CPU and GPU: 100 is one core, one device."""

    key: str
    title: str
    unit: str  # percent, bytes, bytes/s, count, watts
    curves: tuple[Curve, ...] = ()
    is_stacked: bool = False
    limit: float | None = None
    limit_title: str = ""
    unknown: str = ""


class Plotted(Struct, frozen=True, kw_only=True):
    """`at_us`: wall-clock time of the points, ascending; every curve has as many values."""

    at_us: list[int]
    charts: tuple[Chart, ...]
    samples: int  # before the reduction to points


class _CurveRule(Struct, frozen=True):
    key: str
    title: str
    column: str
    kind: str = "value"  # value, rate, or share: percent of the time


class _ChartRule(Struct, frozen=True):
    key: str
    title: str
    unit: str
    curves: tuple[_CurveRule, ...]
    reasons: tuple[str, ...]  # names in Usage.unknown that explain a missing chart
    is_stacked: bool = False


_RULES = (
    _ChartRule(
        "cpu",
        "CPU",
        "percent",
        (
            _CurveRule("cpu_total", "CPU", "cpu_total_usec", "share"),
            _CurveRule("cpu_user", "user", "cpu_user_usec", "share"),
            _CurveRule("cpu_system", "kernel", "cpu_system_usec", "share"),
            _CurveRule("cpu_throttled", "throttled", "cpu_throttled_usec", "share"),
        ),
        ("cpu_total_usec", "cpu"),
    ),
    _ChartRule(
        "memory",
        "Memory",
        "bytes",
        (
            _CurveRule("memory_anon", "anonymous", "memory_anon_bytes"),
            _CurveRule("memory_shmem", "shared", "memory_shmem_bytes"),
            _CurveRule("memory_kernel", "kernel", "memory_kernel_bytes"),
            _CurveRule("memory_file", "file cache", "memory_file_bytes"),
            _CurveRule("memory_swap", "swap", "memory_swap_bytes"),
        ),
        ("memory_peak_bytes", "memory"),
        True,
    ),
    _ChartRule(
        "io",
        "Disk I/O",
        "bytes/s",
        (
            _CurveRule("io_read", "read", "io_read_bytes", "rate"),
            _CurveRule("io_write", "written", "io_write_bytes", "rate"),
            _CurveRule("io_call_read", "read by calls", "io_call_read_bytes", "rate"),
            _CurveRule("io_call_write", "written by calls", "io_call_write_bytes", "rate"),
        ),
        ("io_read_bytes", "io"),
    ),
    _ChartRule(
        "network",
        "Network",
        "bytes/s",
        (
            _CurveRule("network_rx", "received", "network_rx_bytes", "rate"),
            _CurveRule("network_tx", "sent", "network_tx_bytes", "rate"),
        ),
        ("network_rx_bytes", "network"),
    ),
    _ChartRule(
        "pressure",
        "Pressure",
        "percent",
        (
            _CurveRule("pressure_cpu", "waiting for a CPU", "cpu_some_usec", "share"),
            _CurveRule("pressure_memory", "waiting for memory", "memory_some_usec", "share"),
            _CurveRule("pressure_io", "waiting for I/O", "io_some_usec", "share"),
        ),
        ("cpu_pressure_usec", "memory_pressure_usec", "io_pressure_usec", "pressure"),
    ),
    _ChartRule(
        "processes",
        "Processes",
        "count",
        (_CurveRule("processes", "processes", "processes"),),
        ("processes_peak", "processes"),
    ),
    _ChartRule(
        "threads",
        "Threads and open files",
        "count",
        (
            _CurveRule("threads", "threads", "threads"),
            _CurveRule("open_files", "open files", "open_files"),
        ),
        ("threads_peak", "threads"),
    ),
)
_GPU_READINGS: tuple[tuple[str, str, str, tuple[tuple[str, str, str, float], ...]], ...] = (
    (
        "utilization",
        "utilization",
        "percent",
        (("job", "job", "job_utilization", 0.01), ("device", "device", "utilization", 0.01)),
    ),
    (
        "memory",
        "memory",
        "bytes",
        (("job", "job", "job_memory_bytes", 1), ("device", "device", "memory_used_bytes", 1)),
    ),
    ("power", "power", "watts", (("device", "device", "power_mw", 0.001),)),
)
_MARKED = ("elapsed_us", "oom_kills", "pids_limit_events", "faults_major", "memory_slab_reclaimable_bytes")
_LIMITS = ("memory_limit_bytes", "pids_limit")
# Columns for the charts and markers of one job.
CHART_COLUMNS: tuple[str, ...] = tuple(
    dict.fromkeys([*_MARKED, *_LIMITS, *(curve.column for rule in _RULES for curve in rule.curves)])
)
# Curves that compare several jobs -> curves of one job.
SHARED_CURVES = {
    "cpu": "cpu_total",
    "memory": "memory_used",
    "io_read": "io_read",
    "io_write": "io_write",
    "network_rx": "network_rx",
    "network_tx": "network_tx",
    "processes": "processes",
}
SHARED_COLUMNS: tuple[str, ...] = (
    "elapsed_us",
    "cpu_total_usec",
    "memory_anon_bytes",
    "memory_shmem_bytes",
    "memory_kernel_bytes",
    "memory_slab_reclaimable_bytes",
    "io_read_bytes",
    "io_write_bytes",
    "network_rx_bytes",
    "network_tx_bytes",
    "processes",
)

GpuTime = tuple[int, Mapping[str, GpuReading]]  # elapsed_us, readings
GpuTimes = Sequence[GpuTime]  # ascending


def plot_job(
    record: Record,
    details: Details,
    series: SampleSeries,
    gpus: GpuTimes,
    points: int,
    from_us: int | None,
    until_us: int | None = None,
) -> Plotted:
    """Returns the charts of a job. `series`: CHART_COLUMNS. Samples before `from_us` serve only as the base
    of rates; the first sample from `until_us` is included, so that curves reach the edge."""
    picked = _Picked(series, record.began_at_us, points, from_us, until_us)
    charts = [_chart(rule, picked, record, details) for rule in _RULES]
    charts[4:4] = _gpu_charts(picked, record, details, gpus)
    return Plotted(at_us=picked.at_us, charts=tuple(charts), samples=picked.count)


def plot_shared(series: SampleSeries, points: int) -> tuple[list[int], dict[str, list[float | None]]]:
    """Returns microseconds since the job's start, and curves by name (SHARED_CURVES) that have a value."""
    picked = _Picked(series, 0, points)
    rules = {curve.key: curve for rule in _RULES for curve in rule.curves}
    curves = {
        name: picked.few(picked.used_memory() if key == "memory_used" else picked.curve(rules[key]))
        for name, key in SHARED_CURVES.items()
    }
    return picked.at_us, {name: curve for name, curve in curves.items() if _is_known(curve)}


class _Picked:
    """Columns of samples, reduced to points: all, or the minimum and maximum of each bucket of time."""

    def __init__(
        self,
        series: SampleSeries,
        began_us: int,
        points: int,
        from_us: int | None = None,
        until_us: int | None = None,
    ) -> None:
        elapsed: list[int] = series.columns["elapsed_us"]  # type: ignore[assignment]  # every sample has it
        self._columns = series.columns
        self._elapsed = elapsed
        # By elapsed time, because the wall clock may have been set meanwhile.
        first = 0 if from_us is None else bisect_left(elapsed, from_us - began_us)
        stop = len(elapsed) if until_us is None else bisect_left(elapsed, until_us - began_us, first) + 1
        stop = min(stop, len(elapsed))
        self.count = stop - first
        if self.count <= points:
            self._bounds = [(index, index + 1) for index in range(first, stop)]
        else:
            self._bounds = bucket_bounds(elapsed, elapsed[first], elapsed[stop - 1] + 1, max(1, points // 2))
        self._is_whole = self.count <= points
        self.at_us = [
            began_us + elapsed[index]
            for begin, end in self._bounds
            for index in ((begin,) if end - begin == 1 else (begin, end - 1))
        ]
        spans = list(map(sub, elapsed[1:], elapsed))
        shortest = max(_SHORTEST_US, median(spans) / 4) if spans else _SHORTEST_US
        self._too_short = [index for index, span in enumerate(spans, 1) if span < shortest]

    def column(self, name: str) -> list[int | None]:
        return self._columns[name]

    @property
    def elapsed(self) -> list[int]:
        return self._elapsed

    def curve(self, rule: _CurveRule) -> Values:
        values = self._columns[rule.column]
        if rule.kind == "value" or not _is_known(values):
            return values
        found = rates(self._elapsed, values)
        for index in self._too_short:
            found[index] = None
        if rule.kind == "rate":
            return found
        if None in found[1:]:
            return [None if each is None else each * _USEC_TO_PERCENT for each in found]
        return [None, *[each * _USEC_TO_PERCENT for each in found[1:]]]  # type: ignore[operator]

    def used_memory(self) -> Values:
        """Returns the same as `unreclaimable_bytes`, by columns."""
        parts = [self._columns[f"memory_{name}_bytes"] for name in ("anon", "shmem", "kernel")]
        known = [part for part in parts if _is_known(part)]
        if not known:
            return parts[0]
        total: list[int | None] = _added(known)
        cached = self._columns["memory_slab_reclaimable_bytes"]
        if parts[2] in known and _is_known(cached):
            total = [
                None if size is None else size - min(spare or 0, kernel or 0)
                for size, spare, kernel in zip(total, cached, parts[2], strict=True)
            ]
        return total

    def few(self, values: Values) -> list[float | None]:
        if self._is_whole:
            return [values[begin] for begin, _ in self._bounds]
        found: list[float | None] = []
        for begin, end in self._bounds:
            if end - begin == 1:
                found.append(values[begin])
                continue
            part = values[begin:end]
            known = [each for each in part if each is not None] if None in part else part
            if not known:
                found += (None, None)
                continue
            low, high = min(known), max(known)  # type: ignore[type-var]  # without None
            found += (low, high) if part.index(low) <= part.index(high) else (high, low)
        return found


def _added(parts: Sequence[list[int | None]]) -> list[int | None]:
    if not any(None in part for part in parts):
        total: list[int] = parts[0]  # type: ignore[assignment]  # no gap anywhere
        for part in parts[1:]:
            total = list(map(add, total, part))
        return list(total)
    rows = zip(*parts, strict=True)
    return [sum(each or 0 for each in row) if any(each is not None for each in row) else None for row in rows]


def _is_known(values: Sequence[float | None]) -> bool:
    return bool(values) and (values[-1] is not None or values.count(None) < len(values))


def _chart(rule: _ChartRule, picked: _Picked, record: Record, details: Details) -> Chart:
    curves = [
        Curve(key=each.key, title=each.title, values=picked.few(values))
        for each in rule.curves
        if _is_known(values := picked.curve(each)) and (each.key not in _ONLY_IF_USED or any(values))
    ]
    chart = Chart(key=rule.key, title=rule.title, unit=rule.unit)
    if not curves:
        return _with(chart, unknown=_why_unknown(rule, picked, record, details))
    if rule.key == "memory":
        curves = _memory_curves(curves, picked)
    limit, limit_title = _LIMIT_OF[rule.key](record, picked) if rule.key in _LIMIT_OF else (None, "")
    return _with(
        chart, curves=tuple(curves), is_stacked=rule.is_stacked, limit=limit, limit_title=limit_title
    )


_ONLY_IF_USED = ("cpu_throttled", "memory_swap")


def _with(chart: Chart, **fields: object) -> Chart:
    from msgspec.structs import replace

    return replace(chart, **fields)


def _memory_curves(curves: list[Curve], picked: _Picked) -> list[Curve]:
    """Separates the parts of memory for stacking: the kernel counts shared memory also as files, and
    reclaimable caches also as kernel memory."""
    shared = picked.column("memory_shmem_bytes")
    files = picked.column("memory_file_bytes")
    if _is_known(files) and _is_known(shared):
        cache = [
            None if size is None else max(0, size - (part or 0))
            for size, part in zip(files, shared, strict=True)
        ]
        few = picked.few(cache)
        curves = [_curve(each, few) if each.key == "memory_file" else each for each in curves]
    used = Curve(key="memory_used", title="in use", values=picked.few(picked.used_memory()))
    return [used, *curves] if _is_known(used.values) else curves


def _curve(curve: Curve, values: list[float | None]) -> Curve:
    return Curve(key=curve.key, title=curve.title, values=values)


def _cpu_limit(record: Record, _picked: _Picked) -> tuple[float | None, str]:
    if record.job.requirements.cpus is not None:
        return 100 * record.job.requirements.cpus, "requested"
    return None, ""


def _memory_limit(record: Record, picked: _Picked) -> tuple[float | None, str]:
    asked = record.job.requirements.memory_bytes
    if asked is not None:
        return asked, "limit"
    found = _last(picked.column("memory_limit_bytes"))
    return found, "" if found is None else "limit"


def _pids_limit(record: Record, _picked: _Picked) -> tuple[float | None, str]:
    asked = record.job.requirements.pids
    return (asked, "limit") if asked is not None else (None, "")


_LIMIT_OF: dict[str, Callable[[Record, _Picked], tuple[float | None, str]]] = {
    "cpu": _cpu_limit,
    "memory": _memory_limit,
    "processes": _pids_limit,
}


def _last(values: Sequence[int | None]) -> int | None:
    return next((each for each in reversed(values) if each is not None), None)


def _why_unknown(rule: _ChartRule, picked: _Picked, record: Record, details: Details) -> str:
    if picked.count and any(_is_known(picked.column(each.column)) for each in rule.curves):
        return "no second sample yet" if record.outcome is None else "too short for a curve"
    usage = {} if record.outcome is None else record.outcome.usage.unknown
    for name in rule.reasons:
        if name in usage or name in details.unknown:
            return usage.get(name) or details.unknown[name]
    if not picked.count:
        return _why_no_samples(record)
    attempt = record.attempt
    if attempt is not None and attempt.accounting_reason:
        return attempt.accounting_reason
    by = _GIVEN_BY.get("" if attempt is None else attempt.accounting, "")
    return f"{by} on this machine do not provide it" if by else "this machine does not provide it"


def _why_no_samples(record: Record) -> str:
    if record.attempt is None:
        return "the job has not started"
    if not record.job.monitor:
        return "measuring was off"
    if record.outcome is None:
        return "no sample yet"
    if record.outcome.samples:
        return "samples were deleted to save space; the totals above remain"
    return "ended before the first sample"


def _gpu_charts(picked: _Picked, record: Record, details: Details, gpus: GpuTimes) -> list[Chart]:
    facts = {each.id: each for each in details.gpus or ()}
    seen = dict.fromkeys(name for _, readings in gpus for name in readings)
    found = sorted(seen, key=lambda name: facts[name].index if name in facts else len(seen))
    if not found:
        why = details.unknown.get("gpus") or (
            record.outcome.usage.unknown.get("gpu_memory_peak_bytes", "") if record.outcome else ""
        )
        if details.gpus == () or (not why and details.gpus is None and picked.count):
            why = why or "the job used no GPU"
        return [Chart(key="gpu", title="GPU", unit="percent", unknown=why or _why_no_samples(record))]
    charts: list[Chart] = []
    for name in found:
        charts += _charts_of_gpu(name, facts.get(name), picked, gpus)
    return charts


def _charts_of_gpu(name: str, facts: GpuFacts | None, picked: _Picked, gpus: GpuTimes) -> list[Chart]:
    title = f"GPU {facts.index} {facts.name}".rstrip() if facts is not None else f"GPU {name}"
    readings = _readings_at(picked.elapsed, gpus, name)
    charts = []
    for part, part_title, unit, numbers in _GPU_READINGS:
        curves = []
        for key, curve_title, field, scale in numbers:
            values = [_scaled(reading, field, scale) for reading in readings]
            if _is_known(values):
                curves.append(Curve(key=key, title=curve_title, values=picked.few(values)))
        limit = facts.memory_total_bytes if facts is not None and part == "memory" else None
        unknown = "" if curves else (facts.unknown.get(numbers[0][2], "") if facts is not None else "")
        charts.append(
            Chart(
                key=f"gpu:{name}:{part}",
                title=f"{title}: {part_title}",
                unit=unit,
                curves=tuple(curves),
                limit=limit,
                limit_title="" if limit is None else "device memory",
                unknown="" if curves else unknown or "the driver does not provide it",
            )
        )
    return charts


def _readings_at(elapsed: Sequence[int], gpus: GpuTimes, name: str) -> list[GpuReading | None]:
    """Returns the reading at each sample. GPUs are sampled less often: a reading holds until the next one."""
    times = [at_us for at_us, _ in gpus]
    found: list[GpuReading | None] = []
    last = elapsed[-1] if elapsed else 0
    for at_us in elapsed:
        index = bisect_left(times, at_us + 1) - 1
        is_over = index == len(times) - 1 and at_us > times[index] and at_us != last
        found.append(None if index < 0 or is_over else gpus[index][1].get(name))
    return found


def _scaled(reading: GpuReading | None, field: str, scale: float) -> float | None:
    value = None if reading is None else getattr(reading, field)
    return None if value is None else value * scale
