"""Attribution to a job: resource use of a process tree, and the job's share of the machine's energy and CO2.

A `Snapshot` holds counters of this process, of the children it has waited for, and of living descendants.
`between` takes the difference of two; `claim` selects the part of one thread, for overlapping measurements in
several threads.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from operator import add, sub

from msgspec import Struct
from msgspec.structs import astuple, replace

from joblens.analysis.numbers.rates import NO_GRID_FACTOR
from joblens.model.jobs.job import Usage
from joblens.model.jobs.sample import Sample

Identity = tuple[int, int]  # pid and start time in ticks: a pid alone may be used again


class Counters(Struct, frozen=True):
    cpu_usec: int = 0
    cpu_user_usec: int = 0
    faults_minor: int = 0
    faults_major: int = 0
    io_call_read_bytes: int = 0
    io_call_write_bytes: int = 0
    io_call_reads: int = 0
    io_call_writes: int = 0
    io_read_bytes: int = 0
    io_write_bytes: int = 0

    def __add__(self, other: "Counters") -> "Counters":
        return Counters(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: "Counters") -> "Counters":
        return Counters(*map(sub, astuple(self), astuple(other)))

    def not_negative(self) -> "Counters":
        return Counters(*(max(0, value) for value in astuple(self)))

    def portion(self, share: float) -> "Counters":
        return Counters(*(round(value * share) for value in astuple(self)))

    def without_io(self) -> "Counters":
        return Counters(
            cpu_usec=self.cpu_usec,
            cpu_user_usec=self.cpu_user_usec,
            faults_minor=self.faults_minor,
            faults_major=self.faults_major,
        )


NOTHING = Counters()


class LiveProcess(Struct, frozen=True, kw_only=True):
    """`own`: CPU and faults of the process itself; `absorbed`: those of reaped children, and all I/O.

    The kernel adds a reaped child's I/O to its parent's, in one number.
    """

    branch: Identity  # the child of ours that it descends from
    thread: int | None  # our thread that started that child; None: unknown
    own: Counters
    absorbed: Counters
    is_adrift: bool = False  # no ancestor will inherit its counters when it ends


class Snapshot(Struct, frozen=True, kw_only=True):
    own: Counters  # this process, all threads; CPU and faults
    absorbed: Counters  # children waited for; and I/O of this process with theirs
    threads: Mapping[int, Counters]  # the measured threads that are alive
    live: Mapping[Identity, LiveProcess]
    overhead_usec: int = 0  # CPU of the measuring itself, inside `own`


class Segment(Struct, frozen=True, kw_only=True):
    """Differences between two snapshots."""

    own: Counters
    threads: Mapping[int, Counters]
    branches: Mapping[int | None, Counters]  # living children's growth, by the thread that started them
    reaped: Counters  # counters of reaped children that were not sampled before
    departed: Mapping[int | None, int]  # children waited for, by the thread that started them
    debts: Mapping[Identity | None, Counters]  # for the next segment, by branch; None: this process

    def total(self) -> Counters:
        return sum(self.branches.values(), self.own + self.reaped)


def between(
    earlier: Snapshot, later: Snapshot, debts: Mapping[Identity | None, Counters] | None = None
) -> Segment:
    """Returns the difference. `debts`: those of the previous segment."""
    departed = _departed(earlier, later)
    balance = _taken_over(earlier, later)
    for identity in departed:
        process = earlier.live[identity]
        heir = process.branch if process.branch in later.live else None
        balance[heir] = balance.get(heir, NOTHING) - (process.own + process.absorbed)
    owed: dict[Identity | None, Counters] = {}
    for branch, debt in (debts or {}).items():
        heir = branch if branch in later.live else None
        owed[heir] = owed.get(heir, NOTHING) + debt
    fresh = dict(balance)
    for heir, debt in owed.items():
        balance[heir] = balance.get(heir, NOTHING) + debt
    branches = _growth_of_living(earlier, later)
    for branch, taken in balance.items():
        if branch is not None:
            thread = later.live[branch].thread
            branches[thread] = branches.get(thread, NOTHING) + taken.not_negative()
    overhead = Counters(cpu_usec=later.overhead_usec - earlier.overhead_usec)
    return Segment(
        own=(later.own - earlier.own - overhead).not_negative(),
        threads={
            thread: (used - earlier.threads[thread]).not_negative()
            for thread, used in later.threads.items()
            if thread in earlier.threads
        },
        branches=branches,
        reaped=balance[None].not_negative(),
        departed=_count_branches(earlier, departed),
        debts=_new_debts(fresh),
    )


def _departed(earlier: Snapshot, later: Snapshot) -> list[Identity]:
    """Returns processes that ended and were reaped by an ancestor. Orphans keep their last counters."""
    return [
        identity
        for identity, process in earlier.live.items()
        if identity not in later.live and not process.is_adrift
    ]


def _taken_over(earlier: Snapshot, later: Snapshot) -> dict[Identity | None, Counters]:
    """Returns the counters that each branch, and this process, inherited from reaped children."""
    taken: dict[Identity | None, Counters] = {None: later.absorbed - earlier.absorbed}
    for identity, process in later.live.items():
        before = earlier.live.get(identity)
        grown = process.absorbed if before is None else process.absorbed - before.absorbed
        # If the first process of a branch has ended, this process inherits from it.
        heir = process.branch if process.branch in later.live else None
        taken[heir] = taken.get(heir, NOTHING) + grown
    return taken


def _growth_of_living(earlier: Snapshot, later: Snapshot) -> dict[int | None, Counters]:
    grown: dict[int | None, Counters] = {}
    for identity, process in later.live.items():
        before = earlier.live.get(identity)
        own = process.own if before is None else (process.own - before.own).not_negative()
        grown[process.thread] = grown.get(process.thread, NOTHING) + own
    return grown


def _new_debts(balance: Mapping[Identity | None, Counters]) -> dict[Identity | None, Counters]:
    """Returns negative balances: a process has ended, and no process has inherited its counters. Either it
    was being reaped during the snapshot, and the next one has them; or it never is, and the last sample
    counts."""
    debts = {branch: NOTHING - (NOTHING - taken).not_negative() for branch, taken in balance.items()}
    return {branch: debt for branch, debt in debts.items() if debt != NOTHING}


def _count_branches(earlier: Snapshot, departed: list[Identity]) -> dict[int | None, int]:
    counts: dict[int | None, int] = {}
    for identity in departed:
        process = earlier.live[identity]
        if identity == process.branch:
            counts[process.thread] = counts.get(process.thread, 0) + 1
    return counts


class Claim(Struct, frozen=True, kw_only=True):
    """One thread's part of a segment."""

    used: Counters
    estimated_usec: int = 0  # CPU in `used` that may be another thread's
    unclaimed_usec: int = 0  # CPU of threads without a measurement


def claim(segment: Segment, thread: int, measured: Collection[int], parents: Collection[int]) -> Claim:
    """Selects a thread's part. `measured`: threads with a measurement; `parents`: threads that started a
    child."""
    used = segment.threads.get(thread, NOTHING) + segment.branches.get(thread, NOTHING)
    share, is_certain = _share_of_reaped(segment, thread, measured, parents)
    # I/O of reaped children is indistinguishable from that of other threads, and excluded.
    reaped = segment.reaped.without_io().portion(share)
    others = sum(segment.threads.get(other, NOTHING).cpu_usec for other in set(measured))
    return Claim(
        used=used + reaped,
        estimated_usec=0 if is_certain else reaped.cpu_usec,
        unclaimed_usec=max(0, segment.own.cpu_usec - others),
    )


def _share_of_reaped(
    segment: Segment, thread: int, measured: Collection[int], parents: Collection[int]
) -> tuple[float, bool]:
    """Attributes reaped children to the threads whose children ended in this segment, or to all parents if
    the children were too short to be sampled."""
    if segment.departed:
        total = sum(segment.departed.values())
        return segment.departed.get(thread, 0) / total, len(segment.departed) == 1
    candidates = [other for other in set(measured) if other in parents] or list(set(measured))
    return (1 / len(candidates) if thread in candidates else 0.0), len(candidates) == 1


# The host's CPU time has a resolution of 10 ms: a shorter interval is merged with its neighbour.
_LEAST_BUSY_USEC = 100_000
_UJ_PER_KWH = 3_600_000_000_000
_ENERGIES = ("energy_package_uj", "energy_dram_uj", "gpu_energy_uj")
TOO_SHORT = "too short: the machine's CPU time has a resolution of 10ms"
_Counters = tuple[int, int, int]  # energy, CPU time of the job, of the machine
_NO_ENERGY = "its energy is unknown"


class EnergyShares(Struct, frozen=True):
    """The job's share. None: unknown on this machine, or too short."""

    package_uj: int | None = None
    dram_uj: int | None = None


def energy_shares(samples: Sequence[Sample]) -> EnergyShares:
    """Attributes the machine's energy by the job's share of CPU time per interval, idle power included."""
    return EnergyShares(
        package_uj=_share(samples, "host_energy_package_uj"),
        dram_uj=_share(samples, "host_energy_dram_uj"),
    )


def _share(samples: Sequence[Sample], field: str) -> int | None:
    known = [
        (energy_uj, sample.cpu_total_usec, sample.host_cpu_busy_usec)
        for sample in samples
        if (energy_uj := getattr(sample, field)) is not None
        and sample.cpu_total_usec is not None
        and sample.host_cpu_busy_usec is not None
    ]
    if len(known) < 2:
        return None
    total_uj, has_drawn = 0.0, False
    for start, end in _steps(known):
        energy_uj, job_usec, busy_usec = (later - earlier for later, earlier in zip(end, start, strict=True))
        # A counter that went backwards was reset (joblens was restarted): skip that step.
        if energy_uj > 0:
            has_drawn = True
            total_uj += energy_uj * min(1.0, max(0, job_usec) / busy_usec)
    return round(total_uj) if has_drawn else None


def _steps(known: Sequence[_Counters]) -> list[tuple[_Counters, _Counters]]:
    """Returns (start, end) of intervals in which the machine used enough CPU time."""
    steps: list[tuple[_Counters, _Counters]] = []
    start = known[0]
    for now in known[1:]:
        if now[2] - start[2] >= _LEAST_BUSY_USEC:
            steps.append((start, now))
            start = now
    if steps and start is not known[-1]:
        steps[-1] = (steps[-1][0], known[-1])
    return steps


def misses_energy(samples: Sequence[Sample], field: str) -> bool:
    """Returns whether a part of the time is missing: no counter at the start or end, or a reset counter."""
    drawn = [getattr(sample, field) for sample in samples]
    known = [uj for uj in drawn if uj is not None]
    return drawn[0] is None or drawn[-1] is None or any(later < earlier for earlier, later in pairwise(known))


def co2_mg(uj: int, g_per_kwh: float) -> int:
    """Returns milligrams of CO2 for this energy."""
    return round(uj / _UJ_PER_KWH * g_per_kwh * 1000)


def with_co2(usage: Usage, g_per_kwh: float | None) -> Usage:
    """Adds CO2 for all known energy; a lower bound if a part is unknown."""
    if g_per_kwh is None:
        return _without_co2(usage, NO_GRID_FACTOR)
    known = [uj for name in _ENERGIES if (uj := getattr(usage, name)) is not None]
    if not known:
        return _without_co2(usage, _NO_ENERGY)
    unknown = {name: why for name, why in usage.unknown.items() if name != "co2_mg"}
    lower = usage.lower_bounds
    if any(name in lower for name in _ENERGIES):
        lower = (*lower, "co2_mg")
    sources = {**usage.sources, "co2": f"energy x {g_per_kwh:g} g/kWh"}
    return replace(
        usage, co2_mg=co2_mg(sum(known), g_per_kwh), unknown=unknown, sources=sources, lower_bounds=lower
    )


def _without_co2(usage: Usage, why: str) -> Usage:
    return replace(usage, unknown={**usage.unknown, "co2_mg": why})
