"""Machine: its processor, memory, GPUs and system, what this process may use of them, and its load."""

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from joblens.model.jobs.details import Hardware
from joblens.probes.cgroup.layout import UNIFIED, CgroupLayout, read_layout
from joblens.probes.proc.kernel_files import (
    USEC_PER_TICK,
    drm_cards,
    kib_lines,
    names_in,
    nvidia_indexes,
    parse_host_network,
    parse_pairs,
    pread_whole,
    read_bytes,
    read_text,
)

_READ_SIZE = 4096


class CostLimit:
    """Spaces expensive readings out, so that they take at most `share` of a core. Readings of up to
    `cheap_ns` are not limited."""

    def __init__(
        self,
        share: float,
        cheap_ns: int,
        *,
        mono_ns: Callable[[], int] = time.monotonic_ns,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._share = share
        self._cheap_ns = cheap_ns
        self._mono_ns = mono_ns
        self._cpu_ns = cpu_ns
        self._due_ns = 0

    def is_due(self) -> bool:
        return self._mono_ns() >= self._due_ns

    def __enter__(self) -> None:
        self._started_ns, self._cpu_before_ns = self._mono_ns(), self._cpu_ns()

    def __exit__(self, *_: object) -> None:
        cost_ns = self._cpu_ns() - self._cpu_before_ns
        self._due_ns = self._started_ns + int(cost_ns / self._share) if cost_ns > self._cheap_ns else 0


class HostFacts(Struct, frozen=True, kw_only=True):
    """Constant facts about the machine. None: could not be read."""

    hostname: str
    kernel: str
    boot_id: str
    cpu_count: int | None  # that this process may use: by affinity and by the CPU quota of its groups
    memory_total_bytes: int | None


class HostProbe:
    """Host-wide counters. Omits the fields of files that the machine lacks."""

    name = "host"

    def __init__(self, proc: str = "/proc", network_limit: CostLimit | None = None) -> None:
        self.sources: dict[str, str] = {}
        self.unknown: Mapping[str, str] = {}
        self._descriptors: list[int] = []
        self._readings = []
        self._network = -1
        # A machine of many containers has hundreds of interfaces.
        self._network_limit = network_limit or CostLimit(1 / 500, cheap_ns=200_000)
        unknown = {}
        for file, group, fields, parse in (
            ("stat", "host_cpu", ("host_cpu_busy_usec", "host_cpu_total_usec"), parse_host_cpu),
            ("meminfo", "host_memory", ("host_memory_used_bytes", "host_memory_total_bytes"), parse_meminfo),
            ("loadavg", "host_load", ("host_load1", "host_load5", "host_load15"), parse_loadavg),
            ("net/dev", "host_network", ("host_network_rx_bytes", "host_network_tx_bytes"), None),
        ):
            try:
                descriptor = os.open(f"{proc}/{file}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                unknown.update(dict.fromkeys(fields, f"cannot read {proc}/{file}: {error.strerror}"))
                continue
            self._descriptors.append(descriptor)
            if parse is None:
                self._network = descriptor
            else:
                self._readings.append((descriptor, parse))
            self.sources[group] = f"/proc/{file}"
        self.unknown = unknown

    def read(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for descriptor, parse in self._readings:
            fields.update(parse(os.pread(descriptor, _READ_SIZE, 0)))
        if self._network >= 0 and self._network_limit.is_due():
            with self._network_limit:
                fields.update(parse_host_network(pread_whole(self._network)))
        return fields

    def close(self) -> None:
        descriptors, self._descriptors, self._readings = self._descriptors, [], []
        self._network = -1
        for descriptor in descriptors:
            os.close(descriptor)


def parse_host_cpu(data: bytes) -> dict[str, int]:
    """Parses the first line of /proc/stat: user nice system idle iowait irq softirq steal, and guest times,
    which are part of user and nice. Waiting for I/O is idle."""
    ticks = [int(word) for word in data[: data.index(b"\n")].split()[1:9]]
    idle = sum(ticks[3:5])
    total = sum(ticks)
    return {
        "host_cpu_busy_usec": (total - idle) * USEC_PER_TICK,
        "host_cpu_total_usec": total * USEC_PER_TICK,
    }


def parse_meminfo(data: bytes) -> dict[str, int]:
    """Parses memory. Used is total minus available: page cache that can be dropped is free memory."""
    values = kib_lines(data[:256])  # the first three lines are MemTotal, MemFree, MemAvailable
    fields = {"host_memory_total_bytes": values[b"MemTotal"]}
    if b"MemAvailable" in values:
        fields["host_memory_used_bytes"] = values[b"MemTotal"] - values[b"MemAvailable"]
    return fields


def parse_loadavg(data: bytes) -> dict[str, int]:
    one, five, fifteen = (int(word.replace(b".", b"")) for word in data.split()[:3])
    return {"host_load1": one, "host_load5": five, "host_load15": fifteen}


def read_host(proc: str = "/proc") -> HostFacts:
    names = os.uname()
    return HostFacts(
        hostname=names.nodename,
        kernel=names.release,
        boot_id=(read_text(f"{proc}/sys/kernel/random/boot_id") or "").strip(),
        cpu_count=max(1, math.ceil(usable_cpus(read_layout(proc)))),
        memory_total_bytes=_read_meminfo(proc).get("host_memory_total_bytes"),
    )


def _read_meminfo(proc: str) -> dict[str, int]:
    try:
        return parse_meminfo(read_bytes(f"{proc}/meminfo"))
    except OSError:
        return {}


def usable_cpus(layout: CgroupLayout | None = None) -> float:
    """Returns the CPUs of the affinity mask, which includes cpusets, or a smaller quota of a group, which may
    be a fraction."""
    cpus = float(len(os.sched_getaffinity(0)))
    quota = cpu_quota(layout or read_layout())
    return cpus if quota is None else min(cpus, quota)


def cpu_quota(layout: CgroupLayout) -> float | None:
    """Returns the smallest quota of the process's group and the groups above it, in CPUs; None: unlimited."""
    quotas = [_quota_v2(directory) for directory in layout.directories_upwards(UNIFIED)]
    quotas += [_quota_v1(directory) for directory in layout.directories_upwards("cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota_v2(directory: str) -> float | None:
    words = (read_text(f"{directory}/cpu.max") or "max").split()
    return None if words[0] == "max" else int(words[0]) / int(words[1])


def _quota_v1(directory: str) -> float | None:
    quota = int(read_text(f"{directory}/cpu.cfs_quota_us") or -1)
    period = int(read_text(f"{directory}/cpu.cfs_period_us") or 0)
    return quota / period if quota > 0 and period else None


# Hierarchy, limit, use, and parts of the use that are page cache, which the kernel can reclaim. In v1, names
# with `total_` include the groups below.
_MEMORY_FILES = (
    (UNIFIED, "memory.max", "memory.current", (b"active_file", b"inactive_file")),
    (
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        (b"total_active_file", b"total_inactive_file"),
    ),
)


def usable_memory_bytes(layout: CgroupLayout | None = None, proc: str = "/proc") -> int | None:
    """Returns the machine's memory, or a smaller limit of a group that this process is in."""
    groups = layout or read_layout()
    sizes = [
        _number(f"{directory}/{limit}")
        for key, limit, _, _ in _MEMORY_FILES
        for directory in groups.directories_upwards(key)
    ]
    sizes.append(_read_meminfo(proc).get("host_memory_total_bytes"))
    return min((size for size in sizes if size is not None), default=None)


def free_memory_bytes(layout: CgroupLayout | None = None, proc: str = "/proc") -> int | None:
    """Returns the memory that the machine and this process's groups still have; None: unknown."""
    groups, machine = layout or read_layout(), _read_meminfo(proc)
    free = [
        _free_in_group(directory, limit, usage, cache)
        for key, limit, usage, cache in _MEMORY_FILES
        for directory in groups.directories_upwards(key)
    ]
    if "host_memory_used_bytes" in machine:
        free.append(machine["host_memory_total_bytes"] - machine["host_memory_used_bytes"])
    return min((size for size in free if size is not None), default=None)


def _free_in_group(directory: str, limit: str, usage: str, cache: tuple[bytes, ...]) -> int | None:
    limit_bytes, usage_bytes = _number(f"{directory}/{limit}"), _number(f"{directory}/{usage}")
    if limit_bytes is None or usage_bytes is None:
        return None
    stat = parse_pairs((read_text(f"{directory}/memory.stat") or "").encode())
    reclaimable_bytes = sum(int(stat.get(name, 0)) for name in cache)
    return max(0, limit_bytes - max(0, usage_bytes - reclaimable_bytes))


def _number(path: str) -> int | None:
    """Returns None for files that are missing or contain a word such as max."""
    text = (read_text(path) or "").strip()
    return int(text) if text.isdecimal() else None


_NO_DEVICES = ("", "-1", "none", "void", "NoDevFiles")


def usable_gpus(environ: Mapping[str, str] = os.environ, dev: str = "/dev") -> tuple[str, ...]:
    """Returns the NVIDIA devices by their names in CUDA, in order; if set, those of CUDA_VISIBLE_DEVICES."""
    indexes = nvidia_indexes(dev)
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not indexes:
        return tuple(map(str, indexes))
    words = [word.strip() for word in visible.split(",")]
    return tuple(word for word in words if word not in _NO_DEVICES)


_CPU_NAMES = ("model name", "Model", "cpu model", "cpu", "Processor", "uarch")  # by architecture


def read_hardware(memory_bytes: int | None, proc: str = "/proc", sys: str = "/sys") -> Hardware:
    return Hardware(
        cpu_model=parse_cpu_model(_beginning(f"{proc}/cpuinfo")),
        architecture=os.uname().machine,
        cpus=os.cpu_count(),
        memory_bytes=memory_bytes,
        gpus=(*_nvidia_models(f"{proc}/driver/nvidia/gpus"), *_drm_models(f"{sys}/class/drm")),
    )


def parse_cpu_model(text: str) -> str:
    """Returns '' if the kernel of this architecture has no line for it."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), " ".join(value.split()))
    return next((found[name] for name in _CPU_NAMES if found.get(name)), "")


def system_name(path: str = "/etc/os-release") -> str:
    """Returns the name of the system, such as Debian GNU/Linux 12 (bookworm)."""
    text = read_text(path) or read_text("/usr/lib/os-release") or ""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip().strip("\"'")
    return os.uname().sysname


def _beginning(path: str) -> str:
    """Returns the start of a file that has the same lines for each CPU."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 4096).decode("ascii", "replace")
    finally:
        os.close(descriptor)


def _nvidia_models(folder: str) -> list[str]:
    models = []
    for name in names_in(folder):
        for line in (read_text(f"{folder}/{name}/information") or "").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "Model":
                models.append(value.strip())
    return models


def _drm_models(folder: str) -> list[str]:
    models = []
    for card, driver in drm_cards(folder).items():
        device = f"{folder}/{card}/device"
        numbers = (read_text(f"{device}/{part}") or "" for part in ("vendor", "device"))
        name = (read_text(f"{device}/product_name") or "").strip()
        models.append(name or f"{driver} {':'.join(number.strip() for number in numbers)}")
    return models
