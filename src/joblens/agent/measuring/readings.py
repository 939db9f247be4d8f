"""Live readings of running jobs, and the share of one job in the counters of its slot."""

import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from joblens.agent.cgroups.placement import is_slot_group
from joblens.agent.measuring.meter import COUNTERS, devices_since
from joblens.agent.runtime.ownership import has_valid_pid, is_local
from joblens.files.processes import is_running
from joblens.model.errors import ProbeError
from joblens.model.jobs.job import Attempt, Record
from joblens.model.jobs.sample import DeviceIo, Sample
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.host.machine_load import HostFacts
from joblens.probes.proc.process_tree import ProcessTreeProbe

if TYPE_CHECKING:
    from joblens.ports.probe import Probe

NO_SAMPLES = "no sample was taken between start and end"
NO_SINGLE_PROCESSES = "single processes of a slot's job are not scanned"
PEAK_STAYS = (
    "the peak of a slot's groups cannot be reset (Linux 6.12 and later can), and an earlier job's was higher"
)
_GAUGES = (  # the launcher's own share is subtracted from these
    "memory_current_bytes",
    "memory_anon_bytes",
    "memory_file_bytes",
    "memory_kernel_bytes",
    "memory_shmem_bytes",
    "memory_swap_bytes",
    "memory_kernel_stack_bytes",
    "memory_slab_bytes",
    "memory_slab_reclaimable_bytes",
    "memory_sock_bytes",
    "memory_file_mapped_bytes",
    "memory_file_dirty_bytes",
    "memory_file_writeback_bytes",
    "processes",
    "threads",
)
_PEAK = "memory_kernel_peak_bytes"
_CHARGED = "memory_current_bytes"
_FILES = "memory_file_bytes"
_LASTING_PARTS = ("memory_anon_bytes", "memory_kernel_bytes", "memory_sock_bytes")
_PARTS_CHARGED = (_FILES, *_LASTING_PARTS)
_LESS_BASE = frozenset((*COUNTERS, *_GAUGES))
_COUNTED_BY_SCANS = ("processes", "threads")


def live_numbers(reading: Mapping[str, Any], base: Mapping[str, int]) -> dict[str, Any]:
    """Returns numbers of the running job, without its launcher. The peak belongs to the whole slot and is
    omitted. `base`: of the attempt."""
    launcher = {"processes": 1, "threads": 1, **base}
    return SlotNumbers(launcher).since_start(
        {name: value for name, value in reading.items() if name != _PEAK and value is not None}
    )


class SlotNumbers:
    """Numbers of one job in a slot. `base`: a reading of the groups with only the launcher inside."""

    def __init__(self, base: dict[str, Any], *, can_reset_peak: bool = True) -> None:
        self._can_reset_peak = can_reset_peak
        self.rebase(base)

    def rebase(self, base: dict[str, Any]) -> None:
        self.base = base
        self._maxima = 0

    def base_of_attempt(self) -> dict[str, int]:
        """Returns counters for recovery after a crash, and the launcher's own memory for live readings."""
        counters = {name: self.base[name] for name in COUNTERS if name in self.base}
        return counters | {name: held for name in _GAUGES if (held := self.base.get(name))}

    def at_start(self) -> dict[str, Any]:
        """Returns the first sample of a job, which has used nothing yet."""
        self._maxima = 0
        fields: dict[str, Any] = {
            name: 0 if name in _LESS_BASE else value for name, value in self.base.items()
        }
        for name in _COUNTED_BY_SCANS:
            fields.pop(name, None)
        if _PEAK in fields:
            fields[_PEAK] = 0
            if not self._can_reset_peak:
                del fields[_PEAK]
        devices: dict[str, DeviceIo] | None = self.base.get("devices")
        if devices:
            fields["devices"] = dict.fromkeys(devices, DeviceIo())
        return fields

    def since_start(
        self, reading: Mapping[str, Any], own_usec: int = 0, *, was_sampled: bool = True
    ) -> dict[str, Any]:
        """Returns the numbers of the job. `own_usec`: CPU time of the launcher since the base. `was_sampled`:
        the job was sampled while it ran."""
        base, before = self.base, self.base.get
        fields: dict[str, Any] = {
            name: value
            if name not in _LESS_BASE
            else value - held
            if value > (held := before(name, 0))
            else 0
            for name, value in reading.items()
        }
        self._set_charged(fields, self._other_memory(reading))
        if not was_sampled:
            # The number of processes is unknown, and was not 0.
            for name in _COUNTED_BY_SCANS:
                fields.pop(name, None)
        if own_usec and "cpu_total_usec" in fields:
            _subtract_launcher(fields, own_usec)
        if fields.get("devices"):
            fields["devices"] = devices_since(fields["devices"], base.get("devices") or {})
        return fields

    def _other_memory(self, reading: Mapping[str, Any]) -> int:
        """Returns memory that is not the job's. The kernel frees some memory of an ended job late, mainly
        page tables: memory that is in the base and no longer charged was of that kind. Pages charged in
        advance belong to the next job once they are used."""
        before = self.base.get
        charged: int = before(_CHARGED, 0)
        if self.base.keys().isdisjoint(_PARTS_CHARGED):
            return charged
        held: int = before(_FILES, 0)
        for part in _LASTING_PARTS:
            earlier = before(part, 0)
            if earlier:
                held += min(earlier, reading.get(part, 0))
        return min(charged, held)

    def _set_charged(self, fields: dict[str, Any], held: int) -> None:
        """Keeps sums at or above their parts: the base may include memory that this job then uses, or that
        has been freed since."""
        seen = sum(fields.get(part, 0) for part in _PARTS_CHARGED)
        self._maxima = max(self._maxima, seen)
        if _CHARGED in fields:
            fields[_CHARGED] = max(seen, fields[_CHARGED])
        if _PEAK in fields:
            if not self._can_reset_peak and fields[_PEAK] <= self.base.get(_PEAK, 0):
                del fields[_PEAK]  # of an earlier job
            else:
                # The launcher resets it at the job's end, just before it reports the end.
                highest = max(self._maxima, fields[_PEAK] - held)
                self._maxima = fields[_PEAK] = highest

    def unknown(self) -> dict[str, str]:
        """Returns why numbers that groups usually provide are unknown."""
        reasons = dict.fromkeys(_COUNTED_BY_SCANS, NO_SAMPLES)
        reasons["open_files"] = NO_SINGLE_PROCESSES
        if not self._can_reset_peak:
            reasons[_PEAK] = PEAK_STAYS
        return reasons


def _subtract_launcher(fields: dict[str, Any], own_usec: int) -> None:
    """Subtracts the launcher's CPU time, split in the proportion of user and system time."""
    whole = fields["cpu_total_usec"]
    total = fields["cpu_total_usec"] = max(0, whole - own_usec)
    user = fields.get("cpu_user_usec")
    if user is not None:
        user = fields["cpu_user_usec"] = min(total, user * total // whole) if whole else 0
        fields["cpu_system_usec"] = total - user


def keep_monotonic(fields: dict[str, Any], before: Callable[[str], int | None]) -> None:
    """Keeps counters from decreasing. A process that ends between two readings is briefly in neither."""
    for name in COUNTERS & fields.keys():
        seen = before(name)
        if seen is not None and seen > fields[name]:
            fields[name] = seen


class LiveReadings:
    """Readings of jobs on this machine whose counters this user may read."""

    def __init__(self, host: HostFacts) -> None:
        self._host = host
        self._probes: dict[str, Probe | None] = {}  # None: it cannot be read

    def read(self, record: Record) -> Sample | None:
        """Returns the counters since the job's start, or None if it does not run here or has just ended."""
        uuid, attempt = record.job.uuid, record.attempt
        if attempt is None or record.status.is_final:
            return None
        if uuid not in self._probes:
            self._probes[uuid] = self._open(attempt)
        probe = self._probes[uuid]
        if probe is None:
            return None
        at_us = time.time_ns() // 1000
        try:
            fields = probe.read()
        except (ProbeError, OSError):
            self._probes[uuid] = None
            probe.close()
            return None
        return Sample(
            at_us=at_us, elapsed_us=max(0, at_us - attempt.started_at_us), **_since_start(fields, attempt)
        )

    def forget_others(self, uuids: Collection[str]) -> None:
        for uuid in [uuid for uuid in self._probes if uuid not in uuids]:
            probe = self._probes.pop(uuid)
            if probe is not None:
                probe.close()

    def close(self) -> None:
        self.forget_others(())

    def _open(self, attempt: Attempt) -> "Probe | None":
        if not is_local(attempt.owner, self._host) or not has_valid_pid(attempt.owner, self._host):
            return None
        groups = {key: path for key, path in attempt.groups.items() if os.path.isdir(path)}
        with suppress(ProbeError, OSError):
            if groups:
                return CgroupProbe(groups, attempt.accounting)
            if not attempt.groups and is_running(attempt.launcher_pid, attempt.launcher_start_ticks):
                return ProcessTreeProbe(attempt.launcher_pid or 0, include_root=False)
        return None


def _since_start(fields: dict[str, Any], attempt: Attempt) -> dict[str, Any]:
    fields.pop("devices", None)  # the record does not contain its value at the start
    base = attempt.base
    if any(is_slot_group(path) for path in attempt.groups.values()):
        return live_numbers(fields, base)
    return {
        name: max(0, value - base.get(name, 0)) if name in COUNTERS and value is not None else value
        for name, value in fields.items()
    }
