"""A container's numbers as the strings that people know from `docker stats`."""

from collections.abc import Sequence

from joblens.analysis.numbers.rates import unreclaimable_bytes
from joblens.model.jobs.job import Usage
from joblens.model.jobs.sample import Sample

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# From a start to a stop right after it the kernel's counters have not moved: 0 % would be said of a busy one.
_LEAST_SPAN_USEC = 50_000
_DECIMAL = ("B", "KB", "MB", "GB", "TB", "PB")


def container_stats(
    samples: Sequence[Sample],
    usage: Usage,
    memory_limit_bytes: int | None = None,
    counted_s: float | None = None,
) -> dict[str, str]:
    """Of the time it was measured: mean CPU (100 is one core), the most memory it held beside its limit (the
    machine's where it has none), what it received / sent and read / wrote. A number that is not known has
    no entry; {}: it was never seen. `counted_s`: the time in which its counters grew from
    nothing, where that is not the time from the first sample that has them to the last."""
    seen = [sample for sample in samples if sample.cpu_total_usec is not None]
    if not seen:
        return {}
    told: dict[str, str] = {}
    cpu = _cpu_percent(seen, counted_s)
    if cpu is not None:
        told["cpu_percent"] = f"{cpu:.2f}"
    peak = usage.memory_peak_bytes
    if peak is None:
        peak = max((size for one in seen if (size := unreclaimable_bytes(one)) is not None), default=None)
    limit = memory_limit_bytes or _machine(seen)
    if peak is not None:
        told["memory_usage"] = f"{size_text(peak)} / {size_text(limit)}" if limit else size_text(peak)
        if limit:
            told["memory_percent"] = f"{100 * peak / limit:.2f}"
    for name, first, second in (
        ("net_io", usage.network_rx_bytes, usage.network_tx_bytes),
        ("block_io", usage.io_read_bytes, usage.io_write_bytes),
    ):
        if first is not None and second is not None:
            told[name] = f"{traffic_text(first)} / {traffic_text(second)}"
    return told


def size_text(size: float) -> str:
    """2.5GiB"""
    return _scaled(size, 1024, _BINARY, 4)


def traffic_text(size: float) -> str:
    """1.2MB; units of a thousand, as engines have them for traffic."""
    return _scaled(size, 1000, _DECIMAL, 3)


def _scaled(size: float, factor: int, units: Sequence[str], digits: int) -> str:
    place = 0
    while place + 1 < len(units) and float(f"{size:.{digits}g}") >= factor:
        size, place = size / factor, place + 1
    return f"{size:.{digits}g}{units[place]}"


def _cpu_percent(seen: Sequence[Sample], counted_s: float | None) -> float | None:
    first, last = seen[0], seen[-1]
    if counted_s is not None:
        used, usec = last.cpu_total_usec or 0, counted_s * 1_000_000
    else:
        used = (last.cpu_total_usec or 0) - (first.cpu_total_usec or 0)
        usec = last.elapsed_us - first.elapsed_us
    if usec <= 0 or (counted_s is None and usec < _LEAST_SPAN_USEC):
        return None
    return max(0.0, 100 * used / usec)


def _machine(seen: Sequence[Sample]) -> int | None:
    return next((one.host_memory_total_bytes for one in seen if one.host_memory_total_bytes), None)
