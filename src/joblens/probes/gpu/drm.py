"""GPUs of AMD and Intel through the kernel's DRM files, for all jobs of this process at once.

The drivers list no processes, so the job's own are scanned: which of them have a graphics device open, and
the kernel's counters of each such open file. Other users of the device are unknown.

One client (an open file of a device) appears once per descriptor, in every process that inherited one; it is
identified by its id and counted once.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.jobs.details import GpuFacts
from joblens.model.jobs.sample import GpuReading
from joblens.probes.gpu.attribution import Followers, GpuProcess, GpuState, JobGpus
from joblens.probes.gpu.drm_sysfs import Card, find_cards, read_card

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
# Memory of the card before memory of the machine: the scarcer one of a discrete GPU.
_CARD_REGIONS = ("vram", "local", "stolen-local")
_ENGINE, _CYCLES, _TOTAL_CYCLES = "drm-engine-", "drm-cycles-", "drm-total-cycles-"
_CAPACITY = "drm-engine-capacity-"
# A newer kernel's name before an older one's.
_MEMORY = ("drm-resident-", "drm-memory-", "drm-total-")
_DEVICE = "/dev/dri/"
_ROCM = "/dev/kfd"
_LEAVES_OUT_ZERO = "amdgpu"  # an engine that the client has not used yet is not in its list


class DrmClient(Struct, frozen=True, kw_only=True):
    """One open device. Engines: nanoseconds, or cycles out of all cycles if the driver counts those."""

    driver: str
    pci: str
    id: int
    busy_ns: dict[str, int] = {}
    cycles: dict[str, tuple[int, int]] = {}  # engine -> (busy, all)
    capacity: dict[str, int] = {}  # engine -> how many of it there are, where more than one
    memory_bytes: int | None = None
    tells_time: bool = True  # False: its engine use is not in `busy_ns` and `cycles`


def parse_fdinfo(text: str) -> DrmClient | None:
    """Returns None if it is not a graphics device, or its driver reports nothing."""
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
    """Returns memory of the card, else of the machine; resident memory if reported."""
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
    """Returns the clients of one process, by PCI address and id.

    Empty if it has none, has ended, or is not readable.
    """
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
            continue  # closed just now, or in an unexpected format
        if client is not None:
            # Work through ROCm's own queues is in none of the kernel's engine counters.
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
    """Returns `now` with monotonic counters: drivers may briefly report less, and catch up."""
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
    """Returns engine -> share of time that these clients kept it busy since `before`; 1.0: all of it.

    A new client starts at zero. Several engines of a kind count as one.
    """
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


_INTERVAL_S = 2.0
_BUDGET = 0.004  # of a core
_SILENT = "its driver reports no single processes in /proc/PID/fdinfo (Linux 5.19 and later do)"
_NOT_LISTED = "its driver lists no processes; only the job's own are measured"
_DRM_ROCM = "work that a process gives to the GPU through ROCm (/dev/kfd) is in none of the kernel's counters"
_NO_TIME = "this version of its driver does not count the time of single processes"
_TIMES = ("job_utilization", "job_busy_usec")
_ENCODERS, _DECODERS = ("enc", "enc_1"), ("dec", "jpeg")

Clients = dict[tuple[str, int], DrmClient]


class DeviceWatch(Protocol):
    """Reads more numbers of a card than the kernel's files have (intel_gpu_top)."""

    def read(self, card: Card) -> tuple[dict[str, int], str]:
        """Fields of GpuReading, and why there are none."""
        ...

    def close(self) -> None: ...


class DrmDriver:
    """`read` returns readings per job in `followers`; None: skipped, to stay within the budget."""

    name = "the graphics driver"
    interval_s = _INTERVAL_S

    def __init__(
        self,
        proc: str = "/proc",
        sys: str = "/sys",
        watch: DeviceWatch | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.followers = Followers()
        self._proc, self._sys = proc, sys
        self._found: list[Card] | None = None
        self._watch = watch
        self._jobs: dict[str, _JobClients] = {}
        self._clock_ns = clock_ns
        self._due_ns = 0

    def read(self) -> dict[str, JobGpus] | None:
        now_ns = self._clock_ns()
        if now_ns < self._due_ns:
            return None
        began_ns = time.thread_time_ns()
        by_job = self._readings_by_job()
        cost_ns = time.thread_time_ns() - began_ns
        # A reading that is due shortly before the thread's next turn is taken on that turn.
        self._due_ns = now_ns + int(cost_ns / _BUDGET - _INTERVAL_S * 5e8)
        return by_job

    @property
    def _cards(self) -> list[Card]:
        if self._found is None:  # on the driver's own thread: a card may take its time to answer
            self._found = find_cards(self._sys)
        return self._found

    def facts(self) -> list[GpuFacts]:
        return [card.facts for card in self._cards]

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def _readings_by_job(self) -> dict[str, JobGpus]:
        followers = self.followers.now()
        self._jobs = {
            job: self._jobs.get(job) or _JobClients(self._proc, self._clock_ns, follower.began_ns)
            for job, follower in followers.items()
        }
        by_job, readings = {}, dict[str, _CardReading]()
        for job, follower in followers.items():
            processes = self._jobs[job].scan(follower.scan(), self._cards)
            states = {}
            for card in self._cards:
                if card.facts.id not in follower.find_devices(processes, [card.facts]):
                    continue
                if card.facts.id not in readings:
                    readings[card.facts.id] = self._read_card(card)
                states[card.facts.id] = _state(
                    card, readings[card.facts.id], processes.get(card.facts.id, {})
                )
            by_job[job] = follower.tell(states)
        return by_job

    def _read_card(self, card: Card) -> "_CardReading":
        fields = read_card(card.directory)
        unknown = {name: why for name, why in card.facts.unknown.items() if name not in fields}
        if self._watch is not None and card.facts.vendor == "intel":
            more, why = self._watch.read(card)
            fields = {**more, **fields}
            unknown = {name: why or known for name, known in unknown.items() if name not in more}
        return fields, {**unknown, "processes": _NOT_LISTED}


_CardReading = tuple[dict[str, int], dict[str, str]]


def _state(card: Card, reading: _CardReading, processes: Mapping[int, GpuProcess]) -> GpuState:
    fields, unknown = reading
    if any(process.memory_bytes is None for process in processes.values()):
        unknown = {**unknown, **dict.fromkeys(("job_memory_bytes", *_TIMES), _SILENT)}
    elif any(process.busy_usec is None for process in processes.values()):
        unknown = {**unknown, **dict.fromkeys(_TIMES, _DRM_ROCM if card.facts.vendor == "amd" else _NO_TIME)}
    facts = card.facts if card.facts.unknown == unknown else replace(card.facts, unknown=unknown)
    return GpuState(facts=facts, reading=GpuReading(**fields), processes=processes)


class _JobClients:
    """Open devices of one job's processes, and changes since the last sample."""

    def __init__(self, proc: str, clock_ns: Callable[[], int], began_ns: int | None) -> None:
        self._proc = proc
        self._clock_ns = clock_ns
        self._before: Clients = {}
        self._read_ns = began_ns  # the last sample, or the start
        self._busy_usec: dict[tuple[str, int], int] = {}  # (device, pid) -> counter

    def scan(self, pids: frozenset[int], cards: list[Card]) -> dict[str, dict[int, GpuProcess]]:
        """Device -> its processes of this job."""
        owners: dict[int, Clients] = {}
        silent: dict[str, set[int]] = {}
        clients_known: Clients = {}
        for pid in sorted(pids):
            clients = read_clients(pid, self._proc)
            # One that a parent and its child share is counted with the one that comes first.
            owners[pid] = {key: client for key, client in clients.items() if key not in clients_known}
            clients_known.update(owners[pid])
            if not clients:
                for device in self._open_devices(pid, cards):
                    silent.setdefault(device, set()).add(pid)
        now_ns = self._clock_ns()
        elapsed_ns = now_ns - self._read_ns if self._read_ns is not None else 0
        found = {
            card.facts.id: self._of_card(card, owners, elapsed_ns)
            | {pid: GpuProcess() for pid in silent.get(card.facts.id, ())}
            for card in cards
        }
        self._before, self._read_ns = never_back(self._before, clients_known), now_ns
        return {device: processes for device, processes in found.items() if processes}

    def _of_card(self, card: Card, owners: Mapping[int, Clients], elapsed_ns: int) -> dict[int, GpuProcess]:
        mine = {
            pid: own
            for pid, clients in owners.items()
            if (own := {key: client for key, client in clients.items() if key[0] == card.facts.pci})
        }
        shares = {pid: busy_shares(self._before, own.items(), elapsed_ns) for pid, own in mine.items()}
        if not elapsed_ns:  # the first sample has the state of the counters, not their start
            shares = {pid: {} for pid in mine}
        scale = _scale(list(shares.values()))
        return {
            pid: self._process(card.facts.id, pid, own, shares[pid], elapsed_ns, scale)
            for pid, own in mine.items()
        }

    def _process(
        self,
        device: str,
        pid: int,
        clients: Clients,
        shares: Mapping[str, float],
        elapsed_ns: int,
        scale: float,
    ) -> GpuProcess:
        share = max(shares.values(), default=0.0) * scale
        busy_usec = self._busy_usec.get((device, pid), 0) + round(share * elapsed_ns / 1000)
        self._busy_usec[device, pid] = busy_usec
        memory = [client.memory_bytes for client in clients.values()]
        tells_time = all(client.tells_time for client in clients.values())
        return GpuProcess(
            memory_bytes=sum(size or 0 for size in memory)
            if any(size is not None for size in memory)
            else None,
            utilization=round(share * 10_000) if tells_time else None,
            busy_usec=busy_usec if tells_time else None,
            encoder_utilization=_of_engines(shares, _ENCODERS),
            decoder_utilization=_of_engines(shares, _DECODERS),
        )

    def _open_devices(self, pid: int, cards: list[Card]) -> list[str]:
        """Returns devices that it has open although nothing is reported for it."""
        nodes = {os.path.basename(device) for device in device_descriptors(pid, self._proc).values()}
        return [card.facts.id for card in cards if not nodes.isdisjoint(card.nodes)]


def _scale(shares: list[dict[str, float]]) -> float:
    """A device is as busy as its busiest engine. Processes on different engines at the same time would add up
    to more than that, so each one's part is made smaller by as much."""
    engines: dict[str, float] = {}
    for each in shares:
        for engine, share in each.items():
            engines[engine] = engines.get(engine, 0.0) + share
    added = sum(max(each.values(), default=0.0) for each in shares)
    return min(1.0, max(engines.values())) / added if added else 1.0


def _of_engines(shares: Mapping[str, float], names: tuple[str, ...]) -> int | None:
    """None where the device has no engine of the kind for itself."""
    known = [shares[name] for name in names if name in shares]
    return round(max(known) * 10_000) if known else None
