"""Timeline of a run for web pages: bars of attempts, or one lane per group if there are too many; the
critical path in parts; machine use on one time axis."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from joblens.analysis.charts.gantt import (
    AT_ONCE_US,
    Bar,
    Gantt,
    MachineUse,
    Step,
    StepCurve,
    added_up,
    highest,
)
from joblens.model.runs.run import JobState

MOST_BARS = 500
_LANE_STEPS = 200
_MOST_MARKS = 100  # failures in a lane
_MOST_PARTS = 60  # of the critical path, before jobs of a group are joined
_FAILED = (JobState.FAILED, JobState.TERMINATED, JobState.PENDING_FAILED)
US = 1_000_000


class TimelineBar(Struct, frozen=True, kw_only=True):
    """One attempt; it waited from `ready_us` to `began_us`."""

    index: int
    attempt: int
    number: int
    group: int
    name: str
    state: int  # as JobState
    ready_us: int
    began_us: int
    ended_us: int
    is_critical: bool


class TimelineLane(Struct, frozen=True, kw_only=True):
    """Attempts of a group: number of running ones over time, and times of failures."""

    group: int
    name: str
    attempts: int
    failed: int
    began_us: int
    ended_us: int
    at_us: tuple[int, ...]
    running: tuple[float, ...]  # from that instant on
    failed_at_us: tuple[int, ...]


class CriticalPart(Struct, frozen=True, kw_only=True):
    """One job of the critical path, or consecutive jobs of a group. `waited_s`: since the end of the previous
    part, or since the run's start."""

    group: int
    index: int | None  # None: several jobs
    number: int | None
    name: str
    jobs: int
    cause: str  # event that allowed the first of them to start
    began_us: int
    ended_us: int
    ran_s: float
    waited_s: float


class UseCurves(Struct, frozen=True, kw_only=True):
    """Resource use on one time axis. Empty curves: unknown."""

    at_us: tuple[int, ...]
    values: dict[str, tuple[float | None, ...]]


class Timeline(Struct, frozen=True, kw_only=True):
    begin_us: int
    end_us: int
    attempts: int
    not_started: int
    bars: tuple[TimelineBar, ...]
    lanes: tuple[TimelineLane, ...]  # empty if every attempt has a bar
    critical: tuple[CriticalPart, ...]  # oldest first
    critical_ran_s: float
    critical_waited_s: float
    ran_s: float  # of all attempts together
    waited_s: float  # for resources, of all attempts together
    use: UseCurves


def timeline_of(
    gantt: Gantt,
    use: MachineUse,
    group_of: Sequence[int],
    group_names: Sequence[str],
    opened: int | None = None,
) -> Timeline:
    """Returns the timeline. `opened`: the group whose attempts get bars if there are too many in total."""
    critical = gantt.critical_bars
    is_grouped = len(gantt.bars) > MOST_BARS
    shown = (
        range(len(gantt.bars))
        if not is_grouped
        else _most_important(gantt.bars, critical, group_of, opened)
        if opened is not None
        else ()
    )
    parts = _critical_parts(gantt, group_of, group_names)
    return Timeline(
        begin_us=gantt.begin_us,
        end_us=gantt.end_us,
        attempts=len(gantt.bars),
        not_started=gantt.not_started,
        bars=tuple(
            _bar(gantt.bars[index], group_of, is_critical=index in critical) for index in sorted(shown)
        ),
        lanes=_lanes(gantt.bars, group_of, group_names) if is_grouped else (),
        critical=parts,
        critical_ran_s=sum(part.ran_s for part in parts),
        critical_waited_s=sum(part.waited_s for part in parts),
        ran_s=sum(bar.ended_us - bar.began_us for bar in gantt.bars) / US,
        waited_s=sum(map(_waited_us, gantt.bars)) / US,
        use=on_one_axis(
            {
                "cpus_offered": use.cpus_offered,
                "cpus_reserved": use.cpus_reserved,
                "cpus_used": use.cpus_used,
                "memory_offered": use.memory_offered,
                "memory_reserved": use.memory_reserved,
                "memory_used": use.memory_used,
                "jobs_running": use.jobs_running,
                "jobs_waiting": use.jobs_waiting,
            },
            gantt.begin_us,
            gantt.end_us,
        ),
    )


def _bar(bar: Bar, group_of: Sequence[int], *, is_critical: bool) -> TimelineBar:
    return TimelineBar(
        index=bar.index,
        attempt=bar.attempt,
        number=bar.number,
        group=group_of[bar.index],
        name=bar.name,
        state=int(bar.state),
        ready_us=bar.ready_us,
        began_us=bar.began_us,
        ended_us=bar.ended_us,
        is_critical=is_critical,
    )


def _waited_us(bar: Bar) -> int:
    return bar.waited_us if bar.waited_us > AT_ONCE_US else 0


def _most_important(
    bars: Sequence[Bar], critical: frozenset[int], group_of: Sequence[int], group: int
) -> list[int]:
    """Returns critical and failed attempts first, then the longest."""
    indexes = [index for index, bar in enumerate(bars) if group_of[bar.index] == group]
    indexes.sort(
        key=lambda index: (
            index not in critical,
            bars[index].state not in _FAILED,
            bars[index].began_us - bars[index].ended_us,
        )
    )
    return indexes[:MOST_BARS]


def _lanes(
    bars: Sequence[Bar], group_of: Sequence[int], group_names: Sequence[str]
) -> tuple[TimelineLane, ...]:
    by_group: dict[int, list[Bar]] = {}
    for bar in bars:
        by_group.setdefault(group_of[bar.index], []).append(bar)
    return tuple(_lane(group, group_names[group], by_group[group]) for group in sorted(by_group))


def _lane(group: int, name: str, bars: Sequence[Bar]) -> TimelineLane:
    curve = highest(added_up(Step(bar.began_us, bar.ended_us, 1.0) for bar in bars), _LANE_STEPS)
    failed = [bar.ended_us for bar in bars if bar.state in _FAILED]
    every = -(-len(failed) // _MOST_MARKS)
    return TimelineLane(
        group=group,
        name=name,
        attempts=len(bars),
        failed=len(failed),
        began_us=min(bar.began_us for bar in bars),
        ended_us=max(bar.ended_us for bar in bars),
        at_us=tuple(curve.at_us),
        running=tuple(curve.values),
        failed_at_us=tuple(sorted(failed)[:: max(1, every)]),
    )


def _critical_parts(
    gantt: Gantt, group_of: Sequence[int], group_names: Sequence[str]
) -> tuple[CriticalPart, ...]:
    single = [
        CriticalPart(
            group=group_of[bar.index],
            index=bar.index,
            number=bar.number,
            name=bar.name,
            jobs=1,
            cause=link.cause.value,
            began_us=bar.began_us,
            ended_us=bar.ended_us,
            ran_s=(bar.ended_us - bar.began_us) / US,
            waited_s=max(0, bar.began_us - free_us) / US,
        )
        for link in reversed(gantt.critical)
        for bar in (gantt.bars[link.later],)
        for free_us in (gantt.begin_us if link.earlier is None else gantt.bars[link.earlier].ended_us,)
    ]
    return tuple(single if len(single) <= _MOST_PARTS else _joined(single, group_names))


def _joined(parts: Iterable[CriticalPart], group_names: Sequence[str]) -> list[CriticalPart]:
    """Joins neighbours of one group."""
    found: list[CriticalPart] = []
    for part in parts:
        last = found[-1] if found else None
        if last is None or last.group != part.group:
            found.append(part)
            continue
        found[-1] = CriticalPart(
            group=part.group,
            index=None,
            number=None,
            name=group_names[part.group],
            jobs=last.jobs + 1,
            cause=last.cause,
            began_us=last.began_us,
            ended_us=max(last.ended_us, part.ended_us),
            ran_s=last.ran_s + part.ran_s,
            waited_s=last.waited_s + part.waited_s,
        )
    return found


def on_one_axis(curves: Mapping[str, StepCurve], begin_us: int, end_us: int) -> UseCurves:
    """Returns step curves at the instants of all curves, with two points per step, so that straight lines
    between points draw the steps. Curves are unknown before their first instant."""
    instants = sorted(
        {begin_us, end_us}
        | {at for curve in curves.values() for at in curve.at_us if begin_us <= at <= end_us}
    )
    axis = [moment for at in instants for moment in ((at - 1, at) if at > begin_us else (at,))]
    return UseCurves(
        at_us=tuple(axis),
        values={name: tuple(_values_at(curve, axis)) for name, curve in curves.items() if curve.at_us},
    )


def _values_at(curve: StepCurve, axis: Sequence[int]) -> Iterable[float | None]:
    index = -1
    for at in axis:
        while index + 1 < len(curve.at_us) and curve.at_us[index + 1] <= at:
            index += 1
        yield None if index < 0 else round(curve.values[index], 3)
