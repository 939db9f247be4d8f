"""Energy counters of processors and their memory (RAPL, through the kernel's powercap tree). They count for
the whole machine; `analysis` computes a job's share."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from joblens.probes.proc.kernel_files import NO_ZONES, POWERCAP, names_in, read_text

PACKAGE_FIELD, DRAM_FIELD = "host_energy_package_uj", "host_energy_dram_uj"
_FRESH_NS = 5_000_000  # jobs that are sampled together share one reading
# No processor draws more for long. A counter may have wrapped around more than once if it was not read for
# longer than it takes to wrap around at this power.
_MOST_WATTS = 1000
_TOO_SELDOM = "the counters were read too seldom to know how often they wrapped around"
_NO_RANGE = "a counter wrapped around, and its range is unknown (max_energy_range_uj)"
_NO_DRAM = "this processor has no energy counter for its memory"


class Zone(Struct, frozen=True):
    """One counter: it goes up to `range_uj` (None: unknown) and then restarts at zero."""

    label: str
    directory: str
    range_uj: int | None
    is_dram: bool


def find_zones(root: str) -> list[Zone]:
    """Returns each package and each memory counter once. Zones within a package (core, uncore) are part of
    it, and the platform's (psys) includes all; some machines list packages a second time, through MMIO."""
    found: dict[str, Zone] = {}
    for name in sorted(names_in(root), key=lambda name: ("mmio" in name, name)):
        directory = f"{root}/{name}"
        title = (read_text(f"{directory}/name") or "").strip()
        is_dram = title == "dram"
        if not is_dram and not title.startswith("package"):
            continue
        parent = (read_text(f"{root}/{name.rpartition(':')[0]}/name") or "").strip() if is_dram else ""
        label = f"{title} of {parent}" if parent else title
        limit = (read_text(f"{directory}/max_energy_range_uj") or "").strip()
        found.setdefault(
            label, Zone(label, directory, int(limit) if limit.isdigit() and int(limit) else None, is_dram)
        )
    return list(found.values())


class EnergyCounters:
    """Energy counters, one set per process that owns jobs. Sums start at the counters' values when it was
    made and only grow. `epoch` changes when it is unknown by how much they grew; `why` has the reason."""

    def __init__(self, root: str = POWERCAP, mono_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._mono_ns = mono_ns
        self.unknown: dict[str, str] = {}
        self.labels: list[str] = []
        self.epoch = 0
        self.why = ""
        self._lock = threading.Lock()
        self._read_at_ns = 0
        self._fields: dict[str, int] = {}
        self._meters: dict[str, list[_ZoneMeter]] = {PACKAGE_FIELD: [], DRAM_FIELD: []}
        zones = find_zones(root)
        for field, is_dram, why in ((PACKAGE_FIELD, False, NO_ZONES), (DRAM_FIELD, True, _NO_DRAM)):
            chosen = [zone for zone in zones if zone.is_dram is is_dram]
            self._open(field, chosen, why if zones else NO_ZONES)

    def read(self) -> Mapping[str, int]:
        with self._lock:
            now_ns = self._mono_ns()
            if not self._read_at_ns or now_ns - self._read_at_ns >= _FRESH_NS:
                self._read(now_ns)
            return self._fields

    def close(self) -> None:
        for meters in self._meters.values():
            for meter in meters:
                meter.close()
        self._meters = {}
        self._fields = {}

    def _open(self, field: str, zones: list[Zone], why_none: str) -> None:
        if not zones:
            self.unknown[field] = why_none
            return
        opened: list[_ZoneMeter] = []
        try:
            for zone in zones:
                opened.append(_ZoneMeter(zone))  # noqa: PERF401 - those opened before one fails are closed
        except PermissionError as error:
            self.unknown[field] = (
                f"{error.filename} may be read by root only; chmod a+r allows all users to read it"
            )
        except (OSError, ValueError) as error:
            self.unknown[field] = f"an energy counter could not be read: {error}"
        if field in self.unknown:  # a sum without one part would be wrong
            for meter in opened:
                meter.close()
            return
        self._meters[field] = opened
        self.labels += [zone.label for zone in zones]

    def _read(self, now_ns: int) -> None:
        meters = [meter for several in self._meters.values() for meter in several]
        silent_s = (now_ns - self._read_at_ns) / 1e9 if self._read_at_ns else 0.0
        ranges_uj = [meter.zone.range_uj for meter in meters if meter.zone.range_uj is not None]
        if ranges_uj and silent_s > min(ranges_uj) / 1e6 / _MOST_WATTS:
            self.epoch, self.why = self.epoch + 1, _TOO_SELDOM
        for meter in meters:
            if not meter.advance():
                self.epoch, self.why = self.epoch + 1, _NO_RANGE
        self._read_at_ns = now_ns
        self._fields = {
            field: sum(meter.total_uj for meter in several)
            for field, several in self._meters.items()
            if several
        }


class _ZoneMeter:
    """Sum of one counter, which may wrap around."""

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self._descriptor = os.open(f"{zone.directory}/energy_uj", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._last_uj = self.total_uj = self._raw()
        except (OSError, ValueError):
            os.close(self._descriptor)
            raise

    def advance(self) -> bool:
        """Returns False where the counter restarted and the difference is unknown."""
        now_uj, before_uj = self._raw(), self._last_uj
        self._last_uj = now_uj
        if now_uj < before_uj and self.zone.range_uj is None:
            return False
        self.total_uj += grown(before_uj, now_uj, self.zone.range_uj or 0)
        return True

    def close(self) -> None:
        os.close(self._descriptor)

    def _raw(self) -> int:
        return int(os.pread(self._descriptor, 32, 0))


def grown(before_uj: int, now_uj: int, range_uj: int) -> int:
    """Returns the increase of a counter that restarts at zero behind its range."""
    return now_uj - before_uj if now_uj >= before_uj else max(0, now_uj + range_uj - before_uj)


class EnergyProbe:
    """Energy that the machine used while one job ran."""

    name = "energy"

    def __init__(self, counters: EnergyCounters) -> None:
        self.unknown: dict[str, str] = dict(counters.unknown)
        self.sources: Mapping[str, str] = (
            {"energy": f"powercap ({', '.join(counters.labels)}), by its share of the CPU time"}
            if counters.labels
            else {}
        )
        self._counters = counters
        counters.read()
        self._epoch = counters.epoch

    def read(self) -> dict[str, Any]:
        fields = dict(self._counters.read())
        if self._counters.epoch == self._epoch:
            return fields
        self.unknown.update(dict.fromkeys(fields, self._counters.why))
        return {}

    def close(self) -> None:
        """Does nothing: all jobs share the counters."""
