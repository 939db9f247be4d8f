"""Gantt chart data of a run: when each attempt waited and ran, the critical path, and machine use over
time.
"""

import bisect
import enum
import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, structs

from joblens.analysis.charts.series import JobSeries
from joblens.analysis.runs.status import state_of_attempt
from joblens.model.jobs.job import Requirements
from joblens.model.runs.run import JobResult, JobState, OutputsMissing, RunEvent, RunStarted
from joblens.model.values.units import MIB

MOST_ROWS = 60  # more attempts share rows
AT_ONCE_US = 100_000  # a job that started within this time did not wait


class Cause(enum.StrEnum):
    """The event that allowed an attempt to start."""

    RUN = "the run started"
    DEPENDENCY = "a job it depends on ended"
    RESOURCES = "a job ended and its resources became free"
    RETRY = "the attempt before it ended"


class Bar(Struct, frozen=True, kw_only=True):
    """One attempt. `ready_us`: when it could have started, given capacity; after the delay of a retry.
    `requirements`: of this attempt; a retry may have raised them."""

    index: int
    attempt: int
    number: int
    name: str
    state: JobState
    ready_us: int
    began_us: int
    ended_us: int
    row: int = 0
    requirements: Requirements = Requirements()
    cpu_usec: int | None = None
    memory_bytes: int | None = None

    @property
    def waited_us(self) -> int:
        return self.began_us - self.ready_us


class Link(Struct, frozen=True):
    """`earlier` and `later` are indexes in Gantt.bars; `earlier` is None for the start of the run."""

    later: int
    cause: Cause
    earlier: int | None = None


class Gantt(Struct, frozen=True, kw_only=True):
    """Bars by start. `critical` leads from the last bar back to the first."""

    bars: tuple[Bar, ...]
    critical: tuple[Link, ...]
    begin_us: int
    end_us: int
    rows: int
    row_names: tuple[str, ...] = ()  # empty: jobs share rows
    not_started: int = 0  # jobs without a bar

    @property
    def critical_bars(self) -> frozenset[int]:
        return frozenset(link.later for link in self.critical)


class PlotJob(Struct, frozen=True):
    """Fields of a planned job that a chart needs."""

    name: str
    depends_on: tuple[int, ...] = ()
    requirements: Requirements = Requirements()


class AttemptFacts(Struct, frozen=True, kw_only=True):
    """Facts about attempts that the plan does not have."""

    asked: Mapping[str, Requirements] = {}  # by the UUID of the attempt's record
    not_before_us: Mapping[tuple[int, int], int] = {}  # by (index, attempt): end of the delay of a retry


def gantt_of(
    jobs: Sequence[PlotJob],
    results: Sequence[JobResult],
    events: Sequence[RunEvent],
    now_us: int,
    facts: AttemptFacts = AttemptFacts(),  # noqa: B008 - frozen
) -> Gantt | None:
    """Returns None if nothing has run yet. `now_us`: end of the bars of running jobs."""
    known = [result for result in results if result.began_at_us and not result.is_deleted]
    begun = [result for result in known if 0 <= result.index < len(jobs)]
    if not begun:
        return None
    starts = sorted(event.at_us for event in events if isinstance(event.fact, RunStarted))
    begin_us = min([*starts[:1], *(result.began_at_us for result in begun)])
    bars = _bars(jobs, begun, events, [begin_us, *starts], now_us, facts)
    rows, names = _rows_of_jobs(bars) if len(bars) <= MOST_ROWS else (_shared_rows(bars), ())
    placed = tuple(structs.replace(bar, row=row) for bar, row in zip(bars, rows, strict=True))
    return Gantt(
        bars=placed,
        critical=_critical_path(placed, jobs),
        begin_us=begin_us,
        end_us=max(bar.ended_us for bar in placed),
        rows=max(rows) + 1,
        row_names=names,
        not_started=len(jobs) - len({bar.index for bar in placed}),
    )


def _bars(
    jobs: Sequence[PlotJob],
    results: Sequence[JobResult],
    events: Sequence[RunEvent],
    starts: Sequence[int],
    now_us: int,
    facts: AttemptFacts,
) -> list[Bar]:
    unmade = {
        (event.fact.index, event.fact.attempt) for event in events if isinstance(event.fact, OutputsMissing)
    }
    ends: dict[int, list[int]] = {}  # by job, attempts in order
    for result in sorted(results, key=lambda result: (result.index, result.attempt)):
        ends.setdefault(result.index, []).append(_ended_us(result, now_us))
    bars = []
    for result in sorted(results, key=lambda result: (result.began_at_us, result.index, result.attempt)):
        job = jobs[result.index]
        bars.append(
            Bar(
                index=result.index,
                attempt=result.attempt,
                number=result.number,
                name=job.name,
                state=_state_of(result, unmade),
                ready_us=_ready_us(result, job, ends, starts, facts),
                began_us=result.began_at_us,
                ended_us=_ended_us(result, now_us),
                requirements=facts.asked.get(result.job_uuid, job.requirements),
                cpu_usec=result.cpu_usec,
                memory_bytes=result.memory_bytes,
            )
        )
    return bars


def _ended_us(result: JobResult, now_us: int) -> int:
    if result.duration_s is None:
        return max(now_us, result.began_at_us)
    return result.began_at_us + round(result.duration_s * 1_000_000)


def _ready_us(
    result: JobResult,
    job: PlotJob,
    ends: Mapping[int, Sequence[int]],
    starts: Sequence[int],
    facts: AttemptFacts,
) -> int:
    """Returns the latest of: the run's last start, the end of dependencies, of the previous attempt, and of
    the delay after it."""
    before = [at for at in starts if at <= result.began_at_us]
    needed = [ends[index][-1] for index in job.depends_on if index in ends]
    earlier = [at for at in ends[result.index] if at <= result.began_at_us]
    paused = facts.not_before_us.get((result.index, result.attempt), 0)
    latest = max([*before, *needed, *earlier, paused])
    return min(latest or result.began_at_us, result.began_at_us)


def _state_of(result: JobResult, unmade: set[tuple[int, int]]) -> JobState:
    if (result.index, result.attempt) in unmade:
        return JobState.FAILED
    return state_of_attempt(result.status)


def _rows_of_jobs(bars: Sequence[Bar]) -> tuple[list[int], tuple[str, ...]]:
    """Returns a row per job, in the order of their first starts."""
    row_of: dict[int, int] = {}
    for bar in bars:
        row_of.setdefault(bar.index, len(row_of))
    names = {bar.index: bar.name for bar in bars}
    return [row_of[bar.index] for bar in bars], tuple(names[index] for index in row_of)


def _shared_rows(bars: Sequence[Bar]) -> list[int]:
    """Puts each bar in the lowest free row, so that there are as few rows as jobs ran at once."""
    free: list[int] = []
    busy: list[tuple[int, int]] = []  # (end, row)
    rows = []
    for bar in bars:
        while busy and busy[0][0] <= bar.began_us:
            heapq.heappush(free, heapq.heappop(busy)[1])
        row = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (max(bar.ended_us, bar.began_us + 1), row))
        rows.append(row)
    return rows


# ---- critical path -----------------------------------------------------------------------------------------


def _critical_path(bars: Sequence[Bar], jobs: Sequence[PlotJob]) -> tuple[Link, ...]:
    """Follows the bar that ended last back to the run's start, at each step to the event that allowed it to
    start. A bar that started at once waited for its dependency; a bar that waited longer, for the job that
    ended last before it started."""
    by_end = sorted(range(len(bars)), key=lambda position: bars[position].ended_us)
    ends = [bars[position].ended_us for position in by_end]
    last_of = {bars[position].index: position for position in by_end}
    attempts = {(bar.index, bar.attempt): position for position, bar in enumerate(bars)}
    links: list[Link] = []
    visited: set[int | None] = {None}  # attempts without duration could cause each other
    position: int | None = by_end[-1]
    while position not in visited:
        assert position is not None
        visited.add(position)
        link = _cause_of(position, bars, jobs, last_of, attempts)
        if link.cause is not Cause.RETRY and bars[position].waited_us > AT_ONCE_US:
            released = by_end[max(0, bisect.bisect_right(ends, bars[position].began_us) - 1)]
            if bars[position].ready_us < bars[released].ended_us <= bars[position].began_us:
                link = Link(position, Cause.RESOURCES, released)
        links.append(link)
        position = link.earlier
    return tuple(links)


def _cause_of(
    position: int,
    bars: Sequence[Bar],
    jobs: Sequence[PlotJob],
    last_of: Mapping[int, int],
    attempts: Mapping[tuple[int, int], int],
) -> Link:
    bar = bars[position]
    retried = attempts.get((bar.index, bar.attempt - 1))
    if retried is not None:
        return Link(position, Cause.RETRY, retried)
    needed = [last_of[index] for index in jobs[bar.index].depends_on if index in last_of]
    needed = [earlier for earlier in needed if bars[earlier].ended_us <= bar.began_us + AT_ONCE_US]
    if not needed:
        return Link(position, Cause.RUN)
    return Link(position, Cause.DEPENDENCY, max(needed, key=lambda earlier: bars[earlier].ended_us))


MOST_STEPS = 800


class Step(Struct, frozen=True):
    """A constant value between two instants."""

    from_us: int
    until_us: int
    value: float


class StepCurve(Struct, frozen=True):
    """`values[i]` holds from `at_us[i]` to the next instant; the last one indefinitely."""

    at_us: Sequence[int] = ()
    values: Sequence[float] = ()


class MachineUse(Struct, frozen=True, kw_only=True):
    """Use of the machine over time. Empty curves: unknown."""

    cpus_offered: StepCurve = StepCurve()
    cpus_reserved: StepCurve = StepCurve()
    cpus_used: StepCurve = StepCurve()
    memory_offered: StepCurve = StepCurve()
    memory_reserved: StepCurve = StepCurve()
    memory_used: StepCurve = StepCurve()
    jobs_running: StepCurve = StepCurve()
    jobs_waiting: StepCurve = StepCurve()


class JobUse(Struct, frozen=True):
    """Resource use of a job over time, in few steps: all samples of a long run would not fit in memory."""

    cpus: StepCurve
    memory: StepCurve


def use_of_job(series: JobSeries) -> JobUse | None:
    """Returns None if there are too few samples."""
    if len(series.at_us) < 2:
        return None
    cores = [None if value is None else value / 100 for value in series.cpu_percent]
    return JobUse(
        averaged(added_up(rates(series.at_us, cores))),
        highest(added_up(levels(series.at_us, series.memory_bytes, series.end_us))),
    )


def use_of_run(gantt: Gantt, uses: Mapping[int, JobUse], events: Sequence[RunEvent]) -> MachineUse:
    """Sums uses, by record number of the attempt. An attempt without samples counts with its mean CPU and its
    peak memory; an attempt without requirements reserves 1 CPU and 1 MiB, as in the schedule."""
    cpu: list[Step] = []
    memory: list[Step] = []
    for bar in gantt.bars:
        _add_used(bar, uses.get(bar.number), cpu, memory)
    starts = [(event.at_us, event.fact) for event in events if isinstance(event.fact, RunStarted)]
    return MachineUse(
        cpus_offered=_offered([(at, fact.cpus) for at, fact in starts]),
        cpus_reserved=_held(gantt, lambda asked: asked.cpus, 1.0),
        cpus_used=averaged(added_up(cpu)),
        memory_offered=_offered([(at, float(fact.memory_bytes)) for at, fact in starts]),
        memory_reserved=_held(gantt, lambda asked: asked.memory_bytes, float(MIB)),
        memory_used=highest(added_up(memory)),
        jobs_running=_held(gantt, lambda _: 1.0, 1.0),
        jobs_waiting=_waiting(gantt),
    )


def _add_used(bar: Bar, use: JobUse | None, cpu: list[Step], memory: list[Step]) -> None:
    if use is not None:
        cpu += _steps_of(use.cpus)
        memory += _steps_of(use.memory)
        return
    duration_us = bar.ended_us - bar.began_us
    if bar.cpu_usec is not None and duration_us > 0:
        cpu.append(Step(bar.began_us, bar.ended_us, bar.cpu_usec / duration_us))
    if bar.memory_bytes is not None:
        memory.append(Step(bar.began_us, bar.ended_us, float(bar.memory_bytes)))


def _steps_of(curve: StepCurve) -> list[Step]:
    return [
        Step(begin_us, until_us, value)
        for (begin_us, until_us), value in zip(itertools.pairwise(curve.at_us), curve.values, strict=False)
    ]


def _held(gantt: Gantt, asked: Callable[[Requirements], float | None], unasked: float) -> StepCurve:
    steps = []
    for bar in gantt.bars:
        amount = asked(bar.requirements)
        steps.append(Step(bar.began_us, bar.ended_us, unasked if amount is None else float(amount)))
    return highest(without_moments(added_up(steps), _moment_us(gantt)))


def _waiting(gantt: Gantt) -> StepCurve:
    waiting_bars = [bar for bar in gantt.bars if bar.waited_us > AT_ONCE_US]
    steps = added_up(Step(bar.ready_us, bar.began_us, 1.0) for bar in waiting_bars)
    return highest(without_moments(steps, _moment_us(gantt)))


def _moment_us(gantt: Gantt) -> int:
    """Returns a duration that is invisible in the chart, and usual between two jobs."""
    return min(AT_ONCE_US, max(AT_ONCE_US // 4, (gantt.end_us - gantt.begin_us) // MOST_STEPS))


def _offered(starts: Sequence[tuple[int, float]]) -> StepCurve:
    """Returns the capacity over time; a resumed run may have another one."""
    known = [(at_us, amount) for at_us, amount in starts if amount > 0]
    return StepCurve([at_us for at_us, _ in known], [amount for _, amount in known])


def added_up(steps: Iterable[Step]) -> StepCurve:
    """Returns the sum of all steps at every instant where it changes."""
    changes: dict[int, float] = {}
    for step in steps:
        if step.until_us > step.from_us:
            changes[step.from_us] = changes.get(step.from_us, 0.0) + step.value
            changes[step.until_us] = changes.get(step.until_us, 0.0) - step.value
    at_us = sorted(changes)
    # Sums of floats have rounding errors where zero is expected.
    return StepCurve(
        at_us, [max(0.0, round(value, 6)) for value in itertools.accumulate(map(changes.__getitem__, at_us))]
    )


def levels(at_us: Sequence[int], values: Sequence[float | None], end_us: int) -> list[Step]:
    """Returns steps from readings, each of which holds until the next one."""
    until = [*at_us[1:], max(end_us, at_us[-1])] if at_us else []
    return [
        Step(at_us[position], until[position], float(value))
        for position, value in enumerate(values)
        if value is not None
    ]


def rates(at_us: Sequence[int], values: Sequence[float | None]) -> list[Step]:
    """Returns steps from rates, each of which covers the time since the previous one."""
    steps = []
    since_us = at_us[0] if at_us else 0
    for at, value in zip(at_us, values, strict=True):
        if value is not None:
            steps.append(Step(since_us, at, float(value)))
            since_us = at
    return steps


def without_moments(curve: StepCurve, shortest_us: int) -> StepCurve:
    """Removes spikes of up to `shortest_us`, such as those between the end of a job and the start of the
    next: a short step above or below both neighbours gets the value of the nearer one."""
    values = list(curve.values)
    for position in range(1, len(values) - 1):
        if curve.at_us[position + 1] - curve.at_us[position] <= shortest_us:
            low, high = values[position - 1], values[position + 1]
            if low > high:
                low, high = high, low
            values[position] = min(max(values[position], low), high)
    return StepCurve(curve.at_us, values)


def averaged(curve: StepCurve, most: int = MOST_STEPS) -> StepCurve:
    """Averages equal parts of the time if there are more steps than are visible."""
    if len(curve.at_us) <= most:
        return curve
    edges = _edges(curve, most)
    totals = [0.0] * (len(edges) - 1)
    for position, value in enumerate(curve.values[:-1]):
        begin_us, until_us = curve.at_us[position], curve.at_us[position + 1]
        part = bisect.bisect_right(edges, begin_us) - 1
        while begin_us < until_us and part < len(totals):
            cut_us = min(until_us, edges[part + 1])
            totals[part] += value * (cut_us - begin_us)
            begin_us, part = cut_us, part + 1
    means = [total / (edges[position + 1] - edges[position]) for position, total in enumerate(totals)]
    return StepCurve(edges, [*means, curve.values[-1]])


def highest(curve: StepCurve, most: int = MOST_STEPS) -> StepCurve:
    """Returns the maximum of equal parts of the time, for values that must not appear smaller."""
    if len(curve.at_us) <= most:
        return curve
    edges = _edges(curve, most)
    tops = [0.0] * (len(edges) - 1)
    part = 0
    for value, until_us in zip(curve.values, curve.at_us[1:], strict=False):
        tops[part] = max(tops[part], value)
        while edges[part + 1] < until_us:  # it continues in the next part
            part += 1
            tops[part] = value
        if edges[part + 1] == until_us and part + 1 < len(tops):
            part += 1
    return StepCurve(edges, [*tops, curve.values[-1]])


def _edges(curve: StepCurve, most: int) -> list[int]:
    first_us, last_us = curve.at_us[0], curve.at_us[-1]
    return sorted({first_us + (last_us - first_us) * part // most for part in range(most + 1)})
