"""What one process and its descendants used between two looks at them, and whose it was.

A look (`Snapshot`) holds counters of this process, of the children it has waited for, and of the
descendants alive. `between` takes the difference of two; `claim` picks the part of one thread, for
when measurements in several threads overlap."""

from collections.abc import Collection, Mapping
from operator import add, sub

from msgspec import Struct
from msgspec.structs import astuple

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
    """`own` is CPU and faults of the process itself; `absorbed` those of the children it waited for,
    and all I/O: the kernel adds a waited-for child's I/O to its parent's, in one number."""

    branch: Identity  # the child of ours that it descends from
    thread: int | None  # the thread of ours that started that child; None: not seen
    own: Counters
    absorbed: Counters
    is_adrift: bool = False  # nobody above it will take over its counters when it ends


class Snapshot(Struct, frozen=True, kw_only=True):
    own: Counters  # this process, all threads; CPU and faults
    absorbed: Counters  # children waited for; and I/O of this process with theirs
    threads: Mapping[int, Counters]  # the measured threads that are alive
    live: Mapping[Identity, LiveProcess]
    overhead_usec: int = 0  # CPU of the measuring itself, inside `own`


class Segment(Struct, frozen=True, kw_only=True):
    """What happened between two looks."""

    own: Counters
    threads: Mapping[int, Counters]
    branches: Mapping[int | None, Counters]  # living children's growth, by the thread that started them
    settled: Counters  # what came with children waited for and had not been seen on them before
    departed: Mapping[int | None, int]  # children waited for, by the thread that started them
    debts: Mapping[Identity | None, Counters]  # for the next segment, by branch; None: this process

    def total(self) -> Counters:
        return sum(self.branches.values(), self.own + self.settled)


def between(
    earlier: Snapshot, later: Snapshot, debts: Mapping[Identity | None, Counters] | None = None
) -> Segment:
    """`debts` are those of the segment before this one."""
    departed = _departed(earlier, later)
    balance = _taken_over(earlier, later)
    for identity in departed:
        process = earlier.live[identity]
        keeper = process.branch if process.branch in later.live else None
        balance[keeper] = balance.get(keeper, NOTHING) - (process.own + process.absorbed)
    owed: dict[Identity | None, Counters] = {}
    for branch, debt in (debts or {}).items():
        keeper = branch if branch in later.live else None
        owed[keeper] = owed.get(keeper, NOTHING) + debt
    fresh = dict(balance)
    for keeper, debt in owed.items():
        balance[keeper] = balance.get(keeper, NOTHING) + debt
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
        settled=balance[None].not_negative(),
        departed=_count_branches(earlier, departed),
        debts=_new_debts(fresh),
    )


def _departed(earlier: Snapshot, later: Snapshot) -> list[Identity]:
    """Ended, and waited for by somebody above them. The counters of one adrift stay as last seen."""
    return [
        identity
        for identity, process in earlier.live.items()
        if identity not in later.live and not process.is_adrift
    ]


def _taken_over(earlier: Snapshot, later: Snapshot) -> dict[Identity | None, Counters]:
    """How much the living of each branch, and this process, took over from those they waited for."""
    taken: dict[Identity | None, Counters] = {None: later.absorbed - earlier.absorbed}
    for identity, process in later.live.items():
        before = earlier.live.get(identity)
        grown = process.absorbed if before is None else process.absorbed - before.absorbed
        # A branch whose first process is gone has nobody but this process to answer for it.
        keeper = process.branch if process.branch in later.live else None
        taken[keeper] = taken.get(keeper, NOTHING) + grown
    return taken


def _growth_of_living(earlier: Snapshot, later: Snapshot) -> dict[int | None, Counters]:
    grown: dict[int | None, Counters] = {}
    for identity, process in later.live.items():
        before = earlier.live.get(identity)
        own = process.own if before is None else (process.own - before.own).not_negative()
        grown[process.thread] = grown.get(process.thread, NOTHING) + own
    return grown


def _new_debts(balance: Mapping[Identity | None, Counters]) -> dict[Identity | None, Counters]:
    """Below zero: a process is gone and nobody has taken its counters over. Either it was being waited
    for while we looked, then the next look shows them; or never, then what was last seen on it stands."""
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
    unclaimed_usec: int = 0  # CPU of threads that nobody measures, in nobody's part


def claim(segment: Segment, thread: int, measured: Collection[int], parents: Collection[int]) -> Claim:
    """`measured` are the threads with a measurement; `parents` those ever seen to start a child."""
    used = segment.threads.get(thread, NOTHING) + segment.branches.get(thread, NOTHING)
    share, is_certain = _share_of_settled(segment, thread, measured, parents)
    # I/O of waited-for children cannot be told from that of other threads: it stays out.
    settled = segment.settled.without_io().portion(share)
    others = sum(segment.threads.get(other, NOTHING).cpu_usec for other in set(measured))
    return Claim(
        used=used + settled,
        estimated_usec=0 if is_certain else settled.cpu_usec,
        unclaimed_usec=max(0, segment.own.cpu_usec - others),
    )


def _share_of_settled(
    segment: Segment, thread: int, measured: Collection[int], parents: Collection[int]
) -> tuple[float, bool]:
    """Children waited for in this segment belong to the threads whose children vanished in it; of
    children too short to be seen alive it is only known who else has children."""
    if segment.departed:
        total = sum(segment.departed.values())
        return segment.departed.get(thread, 0) / total, len(segment.departed) == 1
    candidates = [other for other in set(measured) if other in parents] or list(set(measured))
    return (1 / len(candidates) if thread in candidates else 0.0), len(candidates) == 1
