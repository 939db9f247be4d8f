"""What an engine tells about one container, as a value."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from joblens.probes.cgroup.process_groups import groups_of_process

JOB_LABEL = "joblens.job"  # its value is the job's UUID
_NO_MEMORY_LIMIT = 1 << 60  # what engines show where there is none


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
    """What everybody who speaks of a container keeps under the same names: of a ContainerInfo, or of what was
    made from one."""
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
    """RFC 3339 with nanoseconds; the year 1 stands for never."""
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
