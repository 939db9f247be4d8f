"""Machine: its processor, memory, GPUs and system, and its load while a job ran."""

import math
import os
import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from joblens.model.jobs.details import Hardware
from joblens.probes.cgroup.layout import CgroupLayout, read_layout
from joblens.probes.proc.kernel_files import (
    DRM_DRIVERS,
    USEC_PER_TICK,
    parse_host_network,
    pread_whole,
    read_text,
)

_READ_SIZE = 4096
# A machine of many containers has hundreds of interfaces. If reading them costs more than this, some readings
# skip them.
_CHEAP_NS = 200_000
_NETWORK_BUDGET = 1 / 500


class HostFacts(Struct, frozen=True, kw_only=True):
    """Constant facts. None: could not be read."""

    hostname: str
    kernel: str
    boot_id: str
    cpu_count: int | None  # that this process may use: by affinity and by the CPU quota of its groups
    memory_total_bytes: int | None


class HostProbe:
    """Host-wide counters. A file this machine lacks leaves its fields out."""

    name = "host"

    def __init__(self, proc: str = "/proc") -> None:
        self.sources: dict[str, str] = {}
        self.unknown: Mapping[str, str] = {}
        self._descriptors: list[int] = []
        self._readings = []
        self._network = -1
        self._network_due_ns = 0
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
        if self._network >= 0:
            fields.update(self._read_network())
        return fields

    def _read_network(self) -> dict[str, int]:
        now_ns = time.monotonic_ns()
        if now_ns < self._network_due_ns:
            return {}
        cpu_before_ns = time.thread_time_ns()
        fields = parse_host_network(pread_whole(self._network))
        cost_ns = time.thread_time_ns() - cpu_before_ns
        if cost_ns > _CHEAP_NS:
            self._network_due_ns = now_ns + int(cost_ns / _NETWORK_BUDGET)
        return fields

    def close(self) -> None:
        descriptors, self._descriptors, self._readings = self._descriptors, [], []
        self._network = -1
        for descriptor in descriptors:
            os.close(descriptor)


def parse_host_cpu(data: bytes) -> dict[str, int]:
    """First line of /proc/stat: user nice system idle iowait irq softirq steal, and guest times that are
    in user and nice already. Waiting for I/O is idle."""
    ticks = [int(word) for word in data[: data.index(b"\n")].split()[1:9]]
    idle = sum(ticks[3:5])
    total = sum(ticks)
    return {
        "host_cpu_busy_usec": (total - idle) * USEC_PER_TICK,
        "host_cpu_total_usec": total * USEC_PER_TICK,
    }


def parse_meminfo(data: bytes) -> dict[str, int]:
    """Parses memory. Used is total minus available: page cache that can be dropped is free memory."""
    values = {}
    for line in data[:256].splitlines()[:3]:  # MemTotal, MemFree, MemAvailable
        name, _, rest = line.partition(b":")
        values[name] = int(rest.split()[0]) * 1024
    fields = {"host_memory_total_bytes": values[b"MemTotal"]}
    if b"MemAvailable" in values:
        fields["host_memory_used_bytes"] = values[b"MemTotal"] - values[b"MemAvailable"]
    return fields


def parse_loadavg(data: bytes) -> dict[str, int]:
    one, five, fifteen = (int(word.replace(b".", b"")) for word in data.split()[:3])
    return {"host_load1": one, "host_load5": five, "host_load15": fifteen}


def read_host(proc: str = "/proc") -> HostFacts:
    names = os.uname()
    meminfo = read_text(f"{proc}/meminfo")
    return HostFacts(
        hostname=names.nodename,
        kernel=names.release,
        boot_id=(read_text(f"{proc}/sys/kernel/random/boot_id") or "").strip(),
        cpu_count=_usable_cpus(read_layout(proc)),
        memory_total_bytes=parse_meminfo(meminfo.encode()).get("host_memory_total_bytes")
        if meminfo
        else None,
    )


def _usable_cpus(layout: CgroupLayout) -> int | None:
    """The affinity mask, in which cpuset groups show too, unless a quota allows less."""
    try:
        cpus = len(os.sched_getaffinity(0))
    except OSError:
        return os.cpu_count()
    quota = cpu_quota(layout)
    return cpus if quota is None else max(1, min(cpus, math.ceil(quota)))


def cpu_quota(layout: CgroupLayout) -> float | None:
    """CPUs that the process's group and every group above it allow; None: as many as there are."""
    quotas = []
    for key, read in (("unified", _quota_v2), ("cpu", _quota_v1)):
        hierarchy = layout.hierarchies.get(key)
        directory = hierarchy.directory if hierarchy else None
        while hierarchy and directory and directory.startswith(hierarchy.mount_point):
            quota = read(directory)
            if quota is not None:
                quotas.append(quota)
            directory = os.path.dirname(directory)
    return min(quotas, default=None)


def _quota_v2(directory: str) -> float | None:
    words = (read_text(f"{directory}/cpu.max") or "max").split()
    return None if words[0] == "max" else int(words[0]) / int(words[1])


def _quota_v1(directory: str) -> float | None:
    quota = int(read_text(f"{directory}/cpu.cfs_quota_us") or -1)
    period = int(read_text(f"{directory}/cpu.cfs_period_us") or 0)
    return quota / period if quota > 0 and period else None


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
    """Returns ''  if the kernel of this architecture does not say."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), " ".join(value.split()))
    return next((found[name] for name in _CPU_NAMES if found.get(name)), "")


def system_name(path: str = "/etc/os-release") -> str:
    """Debian GNU/Linux 12 (bookworm)"""
    text = read_text(path) or read_text("/usr/lib/os-release") or ""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip().strip("\"'")
    return os.uname().sysname


def _beginning(path: str) -> str:
    """Returns the start of the file, which repeats for each CPU."""
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
    for name in _sorted(folder):
        for line in (read_text(f"{folder}/{name}/information") or "").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "Model":
                models.append(value.strip())
    return models


def _drm_models(folder: str) -> list[str]:
    models = []
    for card in _sorted(folder):
        device = f"{folder}/{card}/device"
        driver = os.path.basename(os.path.realpath(f"{device}/driver"))
        if card.startswith("card") and "-" not in card and driver in DRM_DRIVERS:
            numbers = (read_text(f"{device}/{part}") or "" for part in ("vendor", "device"))
            name = (read_text(f"{device}/product_name") or "").strip()
            models.append(name or f"{driver} {':'.join(number.strip() for number in numbers)}")
    return models


def _sorted(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
