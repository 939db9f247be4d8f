"""Container statistics as strings in the format of `docker stats`."""

from collections.abc import Sequence

from joblens.analysis.numbers.rates import unreclaimable_bytes
from joblens.model.jobs.job import Usage
from joblens.model.jobs.sample import Sample

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# Over a very short time, counters do not change: a busy container would show 0%.
_LEAST_SPAN_USEC = 50_000
_DECIMAL = ("B", "KB", "MB", "GB", "TB", "PB")


def container_stats(
    samples: Sequence[Sample],
    usage: Usage,
    memory_limit_bytes: int | None = None,
    counted_s: float | None = None,
) -> dict[str, str]:
    """Returns mean CPU (100: one core), peak memory with its limit or the machine's memory, network and block
    I/O, as text. Unknown numbers are omitted; {}: no samples. `counted_s`: time over which counters grew, if
    it is not the time between the first and last sample."""
    measured = [sample for sample in samples if sample.cpu_total_usec is not None]
    if not measured:
        return {}
    stats: dict[str, str] = {}
    cpu = _cpu_percent(measured, counted_s)
    if cpu is not None:
        stats["cpu_percent"] = f"{cpu:.2f}"
    peak = usage.memory_peak_bytes
    if peak is None:
        peak = max((size for one in measured if (size := unreclaimable_bytes(one)) is not None), default=None)
    limit = memory_limit_bytes or _machine(measured)
    if peak is not None:
        stats["memory_usage"] = f"{size_text(peak)} / {size_text(limit)}" if limit else size_text(peak)
        if limit:
            stats["memory_percent"] = f"{100 * peak / limit:.2f}"
    for name, first, second in (
        ("net_io", usage.network_rx_bytes, usage.network_tx_bytes),
        ("block_io", usage.io_read_bytes, usage.io_write_bytes),
    ):
        if first is not None and second is not None:
            stats[name] = f"{traffic_text(first)} / {traffic_text(second)}"
    return stats


def size_text(size: float) -> str:
    """Returns '2.5GiB'."""
    return _scaled(size, 1024, _BINARY, 4)


def traffic_text(size: float) -> str:
    """Returns '1.2MB', with decimal units as engines use them for traffic."""
    return _scaled(size, 1000, _DECIMAL, 3)


def _scaled(size: float, factor: int, units: Sequence[str], digits: int) -> str:
    power = 0
    while power + 1 < len(units) and float(f"{size:.{digits}g}") >= factor:
        size, power = size / factor, power + 1
    return f"{size:.{digits}g}{units[power]}"


def _cpu_percent(measured: Sequence[Sample], counted_s: float | None) -> float | None:
    first, last = measured[0], measured[-1]
    if counted_s is not None:
        used, usec = last.cpu_total_usec or 0, counted_s * 1_000_000
    else:
        used = (last.cpu_total_usec or 0) - (first.cpu_total_usec or 0)
        usec = last.elapsed_us - first.elapsed_us
    if usec <= 0 or (counted_s is None and usec < _LEAST_SPAN_USEC):
        return None
    return max(0.0, 100 * used / usec)


def _machine(measured: Sequence[Sample]) -> int | None:
    return next((one.host_memory_total_bytes for one in measured if one.host_memory_total_bytes), None)
