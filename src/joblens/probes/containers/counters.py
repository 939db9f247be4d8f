"""A container's counters as its engine tells them, for where its control group cannot be seen from here: in
another container beside it, or on a system whose containers live in a virtual machine."""

from collections.abc import Mapping
from typing import Any

SOURCE = "the container engine's stats"
_GROUPS = ("cpu", "throttling", "memory_parts", "memory_current", "io", "io_ops", "network", "processes")


def counters_of(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Sample fields from the engine's answer to `stats`; what it does not tell is left out."""
    return {
        **_cpu(_part(stats, "cpu_stats")),
        **_memory(_part(stats, "memory_stats")),
        **_block_io(_part(stats, "blkio_stats")),
        **_network(stats.get("networks")),
        **_present(processes=_part(stats, "pids_stats").get("current")),
    }


class EngineCounters:
    """A Probe that hands out what was read last."""

    name = "container"
    unknown: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.sources = dict.fromkeys(_GROUPS, SOURCE)
        self.latest: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        return dict(self.latest)

    def close(self) -> None:
        self.latest = {}


def _cpu(told: Mapping[str, Any]) -> dict[str, int]:
    used, held_back = _part(told, "cpu_usage"), _part(told, "throttling_data")
    nanoseconds = {
        "cpu_total_usec": used.get("total_usage"),
        "cpu_user_usec": used.get("usage_in_usermode"),
        "cpu_system_usec": used.get("usage_in_kernelmode"),
        "cpu_throttled_usec": held_back.get("throttled_time"),
    }
    return {name: value // 1000 for name, value in _present(**nanoseconds).items()} | _present(
        cpu_periods=held_back.get("periods"), cpu_throttled_periods=held_back.get("throttled_periods")
    )


def _memory(told: Mapping[str, Any]) -> dict[str, int]:
    parts = _part(told, "stats")
    # Version 1 of control groups says rss for what version 2 calls anon.
    fields = _present(
        memory_current_bytes=told.get("usage"),
        memory_kernel_peak_bytes=told.get("max_usage"),
        memory_anon_bytes=parts.get("anon", parts.get("total_rss", parts.get("rss"))),
        memory_file_bytes=parts.get("file", parts.get("total_cache", parts.get("cache"))),
        memory_shmem_bytes=parts.get("shmem"),
        memory_kernel_bytes=parts.get("kernel"),
        memory_limit_bytes=told.get("limit"),
        faults_minor=parts.get("pgfault"),
        faults_major=parts.get("pgmajfault"),
    )
    if "memory_anon_bytes" not in fields and "memory_current_bytes" in fields:
        # What engines themselves show as use: without the page cache that can be taken back first.
        cache = parts.get("inactive_file", parts.get("total_inactive_file", 0))
        fields["memory_anon_bytes"] = max(0, fields["memory_current_bytes"] - int(cache or 0))
    return fields


def _block_io(told: Mapping[str, Any]) -> dict[str, int]:
    fields: dict[str, int] = {}
    for rows, unit in (("io_service_bytes_recursive", "bytes"), ("io_serviced_recursive", "ops")):
        for row in told.get(rows) or ():
            way = str(row.get("op", "")).lower()
            if way in ("read", "write") and _is_number(row.get("value")):
                name = f"io_{way}_{unit}"
                fields[name] = fields.get(name, 0) + int(row["value"])
    return fields


def _network(interfaces: Any) -> dict[str, int]:
    if not isinstance(interfaces, dict):
        return {}
    names = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets")
    told = [one for one in interfaces.values() if isinstance(one, dict)]
    return {f"network_{name}": sum(int(one.get(name) or 0) for one in told) for name in names}


def _part(stats: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = stats.get(name)
    return part if isinstance(part, dict) else {}


def _present(**values: Any) -> dict[str, int]:
    return {name: int(value) for name, value in values.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
