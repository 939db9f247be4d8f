"""What one job of a slot used: what the slot's groups say, less what they said before the job began."""

from collections.abc import Callable, Mapping
from typing import Any

from joblens.agent.measuring.meter import COUNTERS, devices_since
from joblens.model.jobs.sample import DeviceIo

NOBODY_LOOKED = "no sample fell between start and end"
NO_SINGLE_PROCESSES = "the processes of a slot's job are not looked at one by one"
PEAK_STAYS = (
    "the peak of a slot's groups cannot be reset (Linux 6.12 and later can), and an earlier job's was higher"
)
_GAUGES = (  # what the launcher itself holds is taken off these
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
_COUNTED_BY_LOOKING = ("processes", "threads")


def live_numbers(reading: Mapping[str, Any], base: Mapping[str, int]) -> dict[str, Any]:
    """Of the job that runs now, without its launcher. The peak is the whole slot's, and is left out.
    `base`: of the attempt."""
    launcher = {"processes": 1, "threads": 1, **base}
    return SlotNumbers(launcher).since_start(
        {name: value for name, value in reading.items() if name != _PEAK and value is not None}
    )


class SlotNumbers:
    """`base` is a reading of the groups with nothing but the launcher inside."""

    def __init__(self, base: dict[str, Any], *, can_reset_peak: bool = True) -> None:
        self._can_reset_peak = can_reset_peak
        self.rebase(base)

    def rebase(self, base: dict[str, Any]) -> None:
        self.base = base
        self._most_seen = 0

    def base_of_attempt(self) -> dict[str, int]:
        """Counters for recovery after a crash, and the launcher's own memory for live readings."""
        counters = {name: self.base[name] for name in COUNTERS if name in self.base}
        return counters | {name: held for name in _GAUGES if (held := self.base.get(name))}

    def at_start(self) -> dict[str, Any]:
        """What the first sample of a job says, which begins now: it has used nothing yet."""
        self._most_seen = 0
        fields: dict[str, Any] = {
            name: 0 if name in _LESS_BASE else value for name, value in self.base.items()
        }
        for name in _COUNTED_BY_LOOKING:
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
        self, reading: Mapping[str, Any], own_usec: int = 0, *, was_looked_at: bool = True
    ) -> dict[str, Any]:
        """`own_usec`: CPU time of the launcher since the base. `was_looked_at`: while the job ran."""
        base, before = self.base, self.base.get
        fields: dict[str, Any] = {
            name: value
            if name not in _LESS_BASE
            else value - held
            if value > (held := before(name, 0))
            else 0
            for name, value in reading.items()
        }
        self._set_charged(fields, self._held_since(reading))
        if not was_looked_at:
            # How many processes there were is not known, and was not 0.
            for name in _COUNTED_BY_LOOKING:
                fields.pop(name, None)
        if own_usec and "cpu_total_usec" in fields:
            _take_off(fields, own_usec)
        if fields.get("devices"):
            fields["devices"] = devices_since(fields["devices"], base.get("devices") or {})
        return fields

    def _held_since(self, reading: Mapping[str, Any]) -> int:
        """Memory that is not the job's. The kernel frees some of an ended job late, page tables above all:
        what the base has more than there is now was that. Pages it charges in advance are the next
        job's as soon as they are used."""
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
        """No sum below its parts: the base may hold what this job then uses, or what is gone by then."""
        seen = sum(fields.get(part, 0) for part in _PARTS_CHARGED)
        self._most_seen = max(self._most_seen, seen)
        if _CHARGED in fields:
            fields[_CHARGED] = max(seen, fields[_CHARGED])
        if _PEAK in fields:
            if not self._can_reset_peak and fields[_PEAK] <= self.base.get(_PEAK, 0):
                del fields[_PEAK]  # of an earlier job
            else:
                # The launcher resets it at the job's end, a moment before it tells of that.
                highest = max(self._most_seen, fields[_PEAK] - held)
                self._most_seen = fields[_PEAK] = highest

    def unknown(self) -> dict[str, str]:
        """Why numbers that the groups give are unknown all the same, where they are."""
        reasons = dict.fromkeys(_COUNTED_BY_LOOKING, NOBODY_LOOKED)
        reasons["open_files"] = NO_SINGLE_PROCESSES
        if not self._can_reset_peak:
            reasons[_PEAK] = PEAK_STAYS
        return reasons


def _take_off(fields: dict[str, Any], own_usec: int) -> None:
    """The launcher's part, in the proportion of user and system that the whole has."""
    whole = fields["cpu_total_usec"]
    total = fields["cpu_total_usec"] = max(0, whole - own_usec)
    user = fields.get("cpu_user_usec")
    if user is not None:
        user = fields["cpu_user_usec"] = min(total, user * total // whole) if whole else 0
        fields["cpu_system_usec"] = total - user


def never_back(fields: dict[str, Any], before: Callable[[str], int | None]) -> None:
    """A process that ends between two looks is for a moment in neither; a counter must not go back."""
    for name in COUNTERS & fields.keys():
        seen = before(name)
        if seen is not None and seen > fields[name]:
            fields[name] = seen
