"""Portable probe by psutil, for systems other than Linux: this process, its descendants and the machine.

Omits numbers that psutil does not have there.
"""

import os
import platform
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from joblens.probes.host.machine_load import HostFacts

try:
    import psutil
except ImportError:  # everything but wall-clock time and the own CPU time is then unknown
    psutil = None

Identity = tuple[int, float]  # pid, time of its start
_KEEPS_WAITED = os.name != "nt"  # os.times has the CPU time of children that were waited for
_IO = ("io_read_bytes", "io_write_bytes")
_CALLS = ("io_call_read_bytes", "io_call_write_bytes", "io_call_reads", "io_call_writes")
COUNTERS = ("cpu_total_usec", "cpu_user_usec", *_IO, *_CALLS)


class _Child(Struct, frozen=True):
    counters: dict[str, int]


class PortableTree:
    """One for a process; not safe for two threads at once."""

    def __init__(self) -> None:
        self._children: dict[Identity, _Child] = {}
        self._ended: dict[str, int] = {}
        self._high: dict[str, int] = {}
        self._pids: list[int] = []
        self.scanned_mono_s = 0.0  # when the CPU time was read

    @property
    def pids(self) -> list[int]:
        return [os.getpid(), *self._pids]

    def read(self) -> dict[str, Any]:
        """Sample fields; counters since the process began, never going back."""
        times, own_s, self.scanned_mono_s = os.times(), time.process_time(), time.monotonic()
        fields: dict[str, Any] = {
            # The clock is finer than the parts, which come in ticks on some systems.
            "cpu_total_usec": int((own_s + times.children_user + times.children_system) * 1e6),
            "cpu_user_usec": int((times.user + times.children_user) * 1e6),
        }
        if psutil is None:
            return self._finished(fields)
        own = psutil.Process()
        living = [own, *_asked(lambda: own.children(recursive=True), [])]
        fields.update(_io_of(own))
        self._add_children(fields, living[1:])
        sizes = [size for process in living if (size := _memory_of(process)) is not None]
        if sizes:
            fields["memory_anon_bytes"] = sum(size[0] for size in sizes)
            fields["memory_largest_process_bytes"] = max(size[1] for size in sizes)
            fields["memory_virtual_bytes"] = sum(size[2] for size in sizes)
        fields["processes"] = len(sizes) or 1
        fields["threads"] = sum(_asked(process.num_threads, 1) for process in living)
        files = [_files_of(process) for process in living]
        known = [count for count in files if count is not None]
        if len(known) == len(files):
            fields["open_files"] = sum(known)
        return self._finished(fields)

    def _add_children(self, fields: dict[str, Any], children: "list[psutil.Process]") -> None:
        before, self._children = self._children, {}
        for child in children:
            identity = (child.pid, _asked(child.create_time, 0.0))
            known = before.get(identity)
            counters = _counters_of(child) or (known.counters if known else {})
            self._children[identity] = _Child(counters)
        self._pids = [pid for pid, _ in self._children]
        for identity, gone in before.items():
            if identity not in self._children:
                self._add_ended(gone)
        for counters in (*(child.counters for child in self._children.values()), self._ended):
            for name, value in counters.items():
                if name in fields:
                    fields[name] += value

    def _add_ended(self, gone: _Child) -> None:
        """Keeps the last counters that no ancestor inherits."""
        for name, value in gone.counters.items():
            if not (_KEEPS_WAITED and name.startswith("cpu_")):
                self._ended[name] = self._ended.get(name, 0) + value

    def _finished(self, fields: dict[str, Any]) -> dict[str, Any]:
        # A process that ends between two samples is briefly in neither.
        for name in COUNTERS:
            if name in fields:
                fields[name] = self._high[name] = max(fields[name], self._high.get(name, 0))
        fields["cpu_user_usec"] = min(fields["cpu_user_usec"], fields["cpu_total_usec"])
        fields["cpu_system_usec"] = fields["cpu_total_usec"] - fields["cpu_user_usec"]
        return fields


def read_portable_host() -> dict[str, Any]:
    """The host_… fields of a sample."""
    if psutil is None:
        return {}
    fields: dict[str, Any] = {}
    times = _asked(psutil.cpu_times, None)
    if times is not None:
        idle = times.idle + getattr(times, "iowait", 0.0)
        # Guest times are in user and nice already; dpc and interrupt are in system on Windows.
        names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
        total = sum(getattr(times, name, 0.0) for name in names)
        fields["host_cpu_busy_usec"] = int((total - idle) * 1e6)
        fields["host_cpu_total_usec"] = int(total * 1e6)
    memory = _asked(psutil.virtual_memory, None)
    if memory is not None:
        fields["host_memory_used_bytes"] = memory.total - memory.available
        fields["host_memory_total_bytes"] = memory.total
    network = _asked(psutil.net_io_counters, None)
    if network is not None:
        fields["host_network_rx_bytes"] = network.bytes_recv
        fields["host_network_tx_bytes"] = network.bytes_sent
    return fields


def has_psutil() -> bool:
    return psutil is not None


def _asked(question: Callable[[], Any], otherwise: Any) -> Any:
    """Returns a default for processes that end meanwhile or are not readable."""
    try:
        return question()
    except (psutil.Error, OSError, NotImplementedError, AttributeError, RuntimeError):
        return otherwise


def _counters_of(process: "psutil.Process") -> dict[str, int]:
    times = _asked(process.cpu_times, None)
    if times is None:
        return {}
    return {
        "cpu_total_usec": int((times.user + times.system) * 1e6),
        "cpu_user_usec": int(times.user * 1e6),
        **_io_of(process),
    }


def _io_of(process: "psutil.Process") -> dict[str, int]:
    """Windows counts all calls; macOS none."""
    counters = _asked(lambda: process.io_counters(), None)  # noqa: PLW0108  (macOS has no such method)
    if counters is None:
        return {}
    found = {"io_call_reads": counters.read_count, "io_call_writes": counters.write_count}
    if hasattr(counters, "read_chars"):
        found["io_call_read_bytes"], found["io_call_write_bytes"] = counters.read_chars, counters.write_chars
        found["io_read_bytes"], found["io_write_bytes"] = counters.read_bytes, counters.write_bytes
    else:
        found["io_call_read_bytes"], found["io_call_write_bytes"] = counters.read_bytes, counters.write_bytes
    return found


def _memory_of(process: "psutil.Process") -> tuple[int, int, int] | None:
    """Returns (private, resident, virtual). Only private memory can be summed over processes."""
    counters = _asked(process.memory_info, None)
    if counters is None:
        return None
    whole = _asked(process.memory_full_info, None)
    return getattr(whole, "uss", counters.rss), counters.rss, counters.vms


def _files_of(process: "psutil.Process") -> int | None:
    count: int | None = _asked(lambda: process.num_handles() if os.name == "nt" else process.num_fds(), None)
    return count


def read_portable_facts() -> HostFacts:
    return HostFacts(
        hostname=platform.node(),
        kernel=f"{platform.system()} {platform.release()}",
        boot_id="",
        cpu_count=os.cpu_count(),
        memory_total_bytes=read_portable_host().get("host_memory_total_bytes"),
    )
