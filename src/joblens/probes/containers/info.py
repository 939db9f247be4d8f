"""Container as its engine describes it: identity, state and counters."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from joblens.probes.cgroup.layout import groups_of_process

JOB_LABEL = "joblens.job"  # its value is the job's UUID
_NO_MEMORY_LIMIT = 1 << 60  # shown by engines if there is none


class ContainerInfo(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    image: str
    image_id: str
    status: str  # created, running, paused, exited, …
    pid: int | None  # of its first process, on this machine; None: it does not run
    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""
    started_at_us: int | None = None
    layout: str = ""  # cgroup-v2, cgroup-hybrid, cgroup-v1
    groups: dict[str, str] = {}  # hierarchy -> directory of its control group
    network_mode: str = ""
    cpus: float | None = None  # limits; None: none
    cpu_list: str = ""
    memory_bytes: int | None = None
    memory_swap_bytes: int | None = None
    pids: int | None = None
    volumes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    raw: dict[str, Any] = {}

    @property
    def is_running(self) -> bool:
        return self.pid is not None


def description(one: Any) -> dict[str, Any]:
    """Returns the common fields of a ContainerInfo, or of a value made from one."""
    return {name: getattr(one, name) for name in _DESCRIBED}


_DESCRIBED = (
    "name",
    "image_id",
    "network_mode",
    "started_at_us",
    "cpus",
    "cpu_list",
    "memory_bytes",
    "memory_swap_bytes",
    "pids",
    "volumes",
    "devices",
)


def info_of(raw: Mapping[str, Any]) -> ContainerInfo:
    """From the engine's answer to `inspect`; parts that are missing stay empty."""
    state, config, host = (_part(raw, name) for name in ("State", "Config", "HostConfig"))
    pid = int(state.get("Pid") or 0) or None
    layout, groups = groups_of_process(pid) if pid is not None else ("", {})
    status = str(state.get("Status") or "")
    return ContainerInfo(
        id=str(raw.get("Id", "")),
        name=str(raw.get("Name", "")).lstrip("/"),
        image=str(config.get("Image") or raw.get("Image", "")),
        image_id=str(raw.get("Image", "")),
        status=status,
        pid=pid,
        exit_code=int(state.get("ExitCode") or 0) if status in ("exited", "dead", "stopped") else None,
        oom_killed=bool(state.get("OOMKilled")),
        error=str(state.get("Error") or ""),
        started_at_us=_microseconds(state.get("StartedAt")),
        layout=layout,
        groups=groups,
        network_mode=str(host.get("NetworkMode") or ""),
        cpus=_cpus(host),
        cpu_list=str(host.get("CpusetCpus") or ""),
        memory_bytes=_bytes(host.get("Memory")),
        memory_swap_bytes=_bytes(host.get("MemorySwap")),
        pids=_count(host.get("PidsLimit")),
        volumes=tuple(str(bind) for bind in host.get("Binds") or ()),
        devices=tuple(str(one.get("PathOnHost", "")) for one in host.get("Devices") or ()),
        labels={str(key): str(value) for key, value in (config.get("Labels") or {}).items()},
        raw=dict(raw),
    )


def _part(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = raw.get(name)
    return part if isinstance(part, dict) else {}


def _cpus(host: Mapping[str, Any]) -> float | None:
    if host.get("NanoCpus"):
        return float(host["NanoCpus"]) / 1e9
    quota, period = host.get("CpuQuota") or 0, host.get("CpuPeriod") or 100_000
    return float(quota) / float(period) if quota > 0 else None


def _bytes(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and 0 < value < _NO_MEMORY_LIMIT else None


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and value > 0 else None


def _microseconds(text: Any) -> int | None:
    """Parses RFC 3339 with nanoseconds; the year 1 means never."""
    if not isinstance(text, str) or not text or text.startswith("0001-"):
        return None
    whole, _, fraction = text.replace("Z", "+00:00").partition(".")
    digits = fraction[:9].rstrip("+-:").split("+")[0].split("-")[0]
    zone = fraction[len(digits) :] or "+00:00"
    try:
        moment = dt.datetime.fromisoformat(f"{whole}{zone if fraction else ''}")
    except ValueError:
        return None
    microseconds = int(digits.ljust(6, "0")[:6]) if digits.isdigit() else 0
    return int(moment.timestamp()) * 1_000_000 + microseconds


SOURCE = "the container engine's stats"
_GROUPS = ("cpu", "throttling", "memory_parts", "memory_current", "io", "io_ops", "network", "processes")


def counters_of(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Returns sample fields from the engine's `stats`; omits missing ones."""
    return {
        **_cpu(_part(stats, "cpu_stats")),
        **_memory(_part(stats, "memory_stats")),
        **_block_io(_part(stats, "blkio_stats")),
        **_network(stats.get("networks")),
        **_present(processes=_part(stats, "pids_stats").get("current")),
    }


class EngineCounters:
    """A Probe that returns the last reading."""

    name = "container"
    unknown: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.sources = dict.fromkeys(_GROUPS, SOURCE)
        self.latest: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        return dict(self.latest)

    def close(self) -> None:
        self.latest = {}


def _cpu(stats: Mapping[str, Any]) -> dict[str, int]:
    used, held_back = _part(stats, "cpu_usage"), _part(stats, "throttling_data")
    nanoseconds = {
        "cpu_total_usec": used.get("total_usage"),
        "cpu_user_usec": used.get("usage_in_usermode"),
        "cpu_system_usec": used.get("usage_in_kernelmode"),
        "cpu_throttled_usec": held_back.get("throttled_time"),
    }
    return {name: value // 1000 for name, value in _present(**nanoseconds).items()} | _present(
        cpu_periods=held_back.get("periods"), cpu_throttled_periods=held_back.get("throttled_periods")
    )


def _memory(stats: Mapping[str, Any]) -> dict[str, int]:
    parts = _part(stats, "stats")
    # cgroup v1 calls rss what v2 calls anon.
    fields = _present(
        memory_current_bytes=stats.get("usage"),
        memory_kernel_peak_bytes=stats.get("max_usage"),
        memory_anon_bytes=parts.get("anon", parts.get("total_rss", parts.get("rss"))),
        memory_file_bytes=parts.get("file", parts.get("total_cache", parts.get("cache"))),
        memory_shmem_bytes=parts.get("shmem"),
        memory_kernel_bytes=parts.get("kernel"),
        memory_limit_bytes=stats.get("limit"),
        faults_minor=parts.get("pgfault"),
        faults_major=parts.get("pgmajfault"),
    )
    if "memory_anon_bytes" not in fields and "memory_current_bytes" in fields:
        # The use as engines display it: without page cache that can be reclaimed first.
        cache = parts.get("inactive_file", parts.get("total_inactive_file", 0))
        fields["memory_anon_bytes"] = max(0, fields["memory_current_bytes"] - int(cache or 0))
    return fields


def _block_io(stats: Mapping[str, Any]) -> dict[str, int]:
    fields: dict[str, int] = {}
    for rows, unit in (("io_service_bytes_recursive", "bytes"), ("io_serviced_recursive", "ops")):
        for row in stats.get(rows) or ():
            way = str(row.get("op", "")).lower()
            if way in ("read", "write") and _is_number(row.get("value")):
                name = f"io_{way}_{unit}"
                fields[name] = fields.get(name, 0) + int(row["value"])
    return fields


def _network(interfaces: Any) -> dict[str, int]:
    if not isinstance(interfaces, dict):
        return {}
    names = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets")
    stats = [one for one in interfaces.values() if isinstance(one, dict)]
    return {f"network_{name}": sum(int(one.get(name) or 0) for one in stats) for name in names}


def _present(**values: Any) -> dict[str, int]:
    return {name: int(value) for name, value in values.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
