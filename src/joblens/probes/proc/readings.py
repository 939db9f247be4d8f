"""Readings of a probe: sample fields by source, and one reading shared by several jobs."""

import time
from collections.abc import Mapping
from typing import Any

from joblens.ports.probe import Probe

_PRESSURE = tuple(
    f"{share}_{part}" for share in ("some", "full") for part in ("avg10", "avg60", "avg300", "usec")
)

FIELD_GROUPS: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu_total_usec", "cpu_user_usec", "cpu_system_usec"),
    "throttling": ("cpu_periods", "cpu_throttled_periods", "cpu_throttled_usec"),
    "cpu_pressure": tuple(f"cpu_{part}" for part in _PRESSURE),
    "memory_pressure": tuple(f"memory_{part}" for part in _PRESSURE),
    "io_pressure": tuple(f"io_{part}" for part in _PRESSURE),
    "memory": ("memory_current_bytes",),
    "memory_kernel_peak": ("memory_kernel_peak_bytes",),
    "memory_parts": (
        "memory_anon_bytes",
        "memory_file_bytes",
        "memory_shmem_bytes",
        "memory_file_mapped_bytes",
        "memory_file_dirty_bytes",
        "memory_file_writeback_bytes",
        "memory_huge_bytes",
    ),
    "memory_kernel": ("memory_kernel_bytes",),
    "memory_kernel_parts": (
        "memory_kernel_stack_bytes",
        "memory_slab_bytes",
        "memory_slab_reclaimable_bytes",
        "memory_sock_bytes",
    ),
    "memory_swap": ("memory_swap_bytes",),
    "memory_limit": ("memory_limit_bytes",),
    "memory_largest_process": ("memory_largest_process_bytes", "memory_largest_process_file_bytes"),
    "memory_virtual": ("memory_virtual_bytes",),
    "faults": ("faults_minor", "faults_major"),
    "oom_events": ("oom_events",),
    "oom_kills": ("oom_kills",),
    "memory_limit_events": ("memory_limit_events",),
    "io": ("io_read_bytes", "io_write_bytes"),
    "io_ops": ("io_read_ops", "io_write_ops"),
    "io_devices": ("devices",),
    "io_calls": ("io_call_read_bytes", "io_call_write_bytes", "io_call_reads", "io_call_writes"),
    "processes": ("processes",),
    "threads": ("threads",),
    "open_files": ("open_files",),
    "open_files_limit": ("open_files_limit",),
    "pids_limit": ("pids_limit",),
    "pids_limit_events": ("pids_limit_events",),
    "host_cpu": ("host_cpu_busy_usec", "host_cpu_total_usec"),
    "host_memory": ("host_memory_used_bytes", "host_memory_total_bytes"),
    "host_load": ("host_load1", "host_load5", "host_load15"),
    "host_network": ("host_network_rx_bytes", "host_network_tx_bytes"),
}


def unknown_fields(reasons: dict[str, str]) -> dict[str, str]:
    """Group -> reason becomes field -> reason."""
    return {field: reason for group, reason in reasons.items() for field in FIELD_GROUPS[group]}


_MOMENT_NS = 20_000_000


class RecentReading:
    """Jobs that are looked at one after the other need not each read what is the same for all of them."""

    def __init__(self, probe: Probe) -> None:
        self.name = probe.name
        self._probe = probe
        self._reading: dict[str, Any] = {}
        self._read_at_ns = -_MOMENT_NS

    @property
    def sources(self) -> Mapping[str, str]:
        return self._probe.sources

    @property
    def unknown(self) -> Mapping[str, str]:
        return self._probe.unknown

    def read(self) -> dict[str, Any]:
        now_ns = time.monotonic_ns()
        if now_ns - self._read_at_ns >= _MOMENT_NS:
            self._reading = self._probe.read()
            self._read_at_ns = now_ns
        return dict(self._reading)

    def close(self) -> None:
        self._probe.close()
