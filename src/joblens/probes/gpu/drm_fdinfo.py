"""What the kernel's graphics drivers tell of each open device in /proc/PID/fdinfo: time on engines, memory.

One client (an open file of a device) shows up once for every descriptor that leads to it, in every process
that inherited one; its id says so, and it is counted once."""

import os
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
# Memory of the card before memory of the machine: what a discrete GPU has the least of.
_CARD_REGIONS = ("vram", "local", "stolen-local")
_ENGINE, _CYCLES, _TOTAL_CYCLES = "drm-engine-", "drm-cycles-", "drm-total-cycles-"
_CAPACITY = "drm-engine-capacity-"
# A newer kernel's name before an older one's.
_MEMORY = ("drm-resident-", "drm-memory-", "drm-total-")
_DEVICE = "/dev/dri/"
_ROCM = "/dev/kfd"
_LEAVES_OUT_ZERO = "amdgpu"  # an engine that the client has not used yet is not in its list


class DrmClient(Struct, frozen=True, kw_only=True):
    """One open device. Engines: nanoseconds, or where the driver counts those, cycles out of all cycles."""

    driver: str
    pci: str
    id: int
    busy_ns: dict[str, int] = {}
    cycles: dict[str, tuple[int, int]] = {}  # engine -> (busy, all)
    capacity: dict[str, int] = {}  # engine -> how many of it there are, where more than one
    memory_bytes: int | None = None
    tells_time: bool = True  # False: what it does on the engines is not in `busy_ns` and `cycles`


def parse_fdinfo(text: str) -> DrmClient | None:
    """None: not a graphics device, or one whose driver tells nothing."""
    values = dict(_pairs(text))
    if "drm-driver" not in values or not values.get("drm-client-id", "").isdecimal():
        return None
    busy = {
        name.removeprefix(_ENGINE): int(value.split()[0])
        for name, value in values.items()
        if name.startswith(_ENGINE) and not name.startswith(_CAPACITY)
    }
    cycles = {
        engine: (int(value), int(values[_TOTAL_CYCLES + engine]))
        for name, value in values.items()
        if name.startswith(_CYCLES) and _TOTAL_CYCLES + (engine := name.removeprefix(_CYCLES)) in values
    }
    return DrmClient(
        driver=values["drm-driver"],
        pci=values.get("drm-pdev", ""),
        id=int(values["drm-client-id"]),
        busy_ns=busy,
        cycles=cycles,
        capacity={
            name.removeprefix(_CAPACITY): int(value)
            for name, value in values.items()
            if name.startswith(_CAPACITY)
        },
        memory_bytes=_memory(values),
        tells_time=bool(busy or cycles) or values["drm-driver"] == _LEAVES_OUT_ZERO,
    )


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.startswith("drm-"):
            yield name.strip(), value.strip()


def _memory(values: dict[str, str]) -> int | None:
    """Of the card where it has its own, else of the machine; what is resident where that is told."""
    regions: dict[str, int] = {}
    for prefix in _MEMORY:
        for name, value in values.items():
            if name.startswith(prefix):
                regions.setdefault(name.removeprefix(prefix), _bytes(value))
    if not regions:
        return None
    card = [size for region, size in regions.items() if region.startswith(_CARD_REGIONS)]
    return sum(card) if card else sum(regions.values())


def _bytes(text: str) -> int:
    number, _, unit = text.partition(" ")
    return int(number) * _UNITS.get(unit.strip(), 1)


def read_clients(pid: int, proc: str = "/proc") -> dict[tuple[str, int], DrmClient]:
    """Clients of one process, by PCI address and id. Empty where it has none, has ended, or is not ours to
    look at."""
    clients: dict[tuple[str, int], DrmClient] = {}
    opened = device_descriptors(pid, proc)
    has_rocm = _ROCM in opened.values()
    for descriptor, device in opened.items():
        if device == _ROCM:
            continue
        try:
            with open(f"{proc}/{pid}/fdinfo/{descriptor}", "rb", buffering=0) as file:
                client = parse_fdinfo(file.read().decode("ascii", "replace"))
        except (OSError, ValueError, IndexError):
            continue  # closed just now, or not as the kernel's documentation says
        if client is not None:
            # Work that goes through ROCm's own queues is in none of the kernel's counters of engines.
            is_rocm = has_rocm and client.driver == _LEAVES_OUT_ZERO
            clients[client.pci, client.id] = replace(client, tells_time=False) if is_rocm else client
    return clients


def device_descriptors(pid: int, proc: str = "/proc") -> dict[str, str]:
    """Descriptors of the process that lead to a graphics device, or to ROCm -> the device's file."""
    try:
        names = os.listdir(f"{proc}/{pid}/fd")
    except OSError:
        return {}
    found = {}
    for name in names:
        try:
            target = os.readlink(f"{proc}/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith(_DEVICE) or target == _ROCM:
            found[name] = target
    return found


def never_back(
    before: dict[tuple[str, int], DrmClient], now: dict[tuple[str, int], DrmClient]
) -> dict[tuple[str, int], DrmClient]:
    """`now` with counters that do not go back: drivers may tell less for a moment, and catch up."""
    return {key: _not_below(before[key], client) if key in before else client for key, client in now.items()}


def _not_below(earlier: DrmClient, later: DrmClient) -> DrmClient:
    busy = {engine: max(value, earlier.busy_ns.get(engine, 0)) for engine, value in later.busy_ns.items()}
    cycles = {
        engine: (max(used, earlier.cycles.get(engine, (0, 0))[0]), total)
        for engine, (used, total) in later.cycles.items()
    }
    if busy == later.busy_ns and cycles == later.cycles:
        return later
    return replace(later, busy_ns=busy, cycles=cycles)


def busy_shares(
    before: dict[tuple[str, int], DrmClient],
    now: Iterable[tuple[tuple[str, int], DrmClient]],
    elapsed_ns: int,
) -> dict[str, float]:
    """Engine -> share of the time that these clients together kept it busy since `before`; 1.0: all of it.
    A client that was not there before began at nothing. Engines of which there are several count as one."""
    shares: dict[str, float] = {}
    for key, client in now:
        earlier = before.get(key)
        for engine, busy_ns in client.busy_ns.items():
            began_ns = earlier.busy_ns.get(engine, 0) if earlier is not None else 0
            whole_ns = elapsed_ns * client.capacity.get(engine, 1)
            shares[engine] = shares.get(engine, 0.0) + max(0, busy_ns - began_ns) / max(1, whole_ns)
        for engine, (busy, total) in client.cycles.items():
            if earlier is None or engine not in earlier.cycles:
                continue  # all cycles are since the machine began: there is nothing to take a share of yet
            busy_before, total_before = earlier.cycles[engine]
            whole = max(1, (total - total_before) * client.capacity.get(engine, 1))
            shares[engine] = shares.get(engine, 0.0) + max(0, busy - busy_before) / whole
    return shares
