"""What a run held and used of its machine over time: steps of single jobs added up."""

import bisect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from joblens.analysis.charts.gantt import AT_ONCE_US, Bar, Gantt
from joblens.analysis.charts.plot_series import JobSeries
from joblens.model.jobs.job import Requirements
from joblens.model.runs.run import RunEvent, RunStarted
from joblens.model.values.units import MIB

MOST_STEPS = 800


class Step(Struct, frozen=True):
    """A number that holds from one instant to another."""

    from_us: int
    until_us: int
    value: float


class StepCurve(Struct, frozen=True):
    """`values[i]` holds from `at_us[i]` to the next instant; the last one for ever."""

    at_us: Sequence[int] = ()
    values: Sequence[float] = ()


class MachineUse(Struct, frozen=True, kw_only=True):
    """Empty curves: not known."""

    cpus_offered: StepCurve = StepCurve()
    cpus_reserved: StepCurve = StepCurve()
    cpus_used: StepCurve = StepCurve()
    memory_offered: StepCurve = StepCurve()
    memory_reserved: StepCurve = StepCurve()
    memory_used: StepCurve = StepCurve()
    jobs_running: StepCurve = StepCurve()
    jobs_waiting: StepCurve = StepCurve()


class JobUse(Struct, frozen=True):
    """What one job used over time, in few steps: all samples of a long run would not fit in memory."""

    cpus: StepCurve
    memory: StepCurve


def use_of_job(series: JobSeries) -> JobUse | None:
    """None when it has too few samples to tell."""
    if len(series.at_us) < 2:
        return None
    cores = [None if value is None else value / 100 for value in series.cpu_percent]
    return JobUse(
        averaged(added_up(rates(series.at_us, cores))),
        highest(added_up(levels(series.at_us, series.memory_bytes, series.end_us))),
    )


def use_of_run(gantt: Gantt, uses: Mapping[int, JobUse], events: Sequence[RunEvent]) -> MachineUse:
    """`uses` by the number of the attempt's record. An attempt without samples counts with its mean CPU
    and its peak memory; one without requirements reserved what it is packed as: 1 CPU and 1 MiB."""
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
    kept = [bar for bar in gantt.bars if bar.waited_us > AT_ONCE_US]
    steps = added_up(Step(bar.ready_us, bar.began_us, 1.0) for bar in kept)
    return highest(without_moments(steps, _moment_us(gantt)))


def _moment_us(gantt: Gantt) -> int:
    """What cannot be seen, and is no more than what passes between two jobs."""
    return min(AT_ONCE_US, max(AT_ONCE_US // 4, (gantt.end_us - gantt.begin_us) // MOST_STEPS))


def _offered(starts: Sequence[tuple[int, float]]) -> StepCurve:
    """A run that was resumed may have been offered something else."""
    known = [(at_us, amount) for at_us, amount in starts if amount > 0]
    return StepCurve([at_us for at_us, _ in known], [amount for _, amount in known])


def added_up(steps: Iterable[Step]) -> StepCurve:
    """The sum of all steps at every instant where it changes."""
    changes: dict[int, float] = {}
    for step in steps:
        if step.until_us > step.from_us:
            changes[step.from_us] = changes.get(step.from_us, 0.0) + step.value
            changes[step.until_us] = changes.get(step.until_us, 0.0) - step.value
    at_us = sorted(changes)
    # sums of floats leave dust behind where nothing should be left
    return StepCurve(
        at_us, [max(0.0, round(value, 6)) for value in itertools.accumulate(map(changes.__getitem__, at_us))]
    )


def levels(at_us: Sequence[int], values: Sequence[float | None], end_us: int) -> list[Step]:
    """A reading holds until the next one."""
    until = [*at_us[1:], max(end_us, at_us[-1])] if at_us else []
    return [
        Step(at_us[place], until[place], float(value))
        for place, value in enumerate(values)
        if value is not None
    ]


def rates(at_us: Sequence[int], values: Sequence[float | None]) -> list[Step]:
    """A rate holds for the time since the one before."""
    steps = []
    since_us = at_us[0] if at_us else 0
    for at, value in zip(at_us, values, strict=True):
        if value is not None:
            steps.append(Step(since_us, at, float(value)))
            since_us = at
    return steps


def without_moments(curve: StepCurve, shortest_us: int) -> StepCurve:
    """Between the end of one job and the start of the next a moment passes. A step that short, above or below
    both its neighbours, is no use to draw: it becomes as the nearer of them."""
    values = list(curve.values)
    for place in range(1, len(values) - 1):
        if curve.at_us[place + 1] - curve.at_us[place] <= shortest_us:
            values[place] = sorted((values[place - 1], values[place], values[place + 1]))[1]
    return StepCurve(curve.at_us, values)


def averaged(curve: StepCurve, most: int = MOST_STEPS) -> StepCurve:
    """The mean over equal parts of the time when there are more steps than can be told apart."""
    if len(curve.at_us) <= most:
        return curve
    edges = _edges(curve, most)
    totals = [0.0] * (len(edges) - 1)
    for place, value in enumerate(curve.values[:-1]):
        begin_us, until_us = curve.at_us[place], curve.at_us[place + 1]
        part = bisect.bisect_right(edges, begin_us) - 1
        while begin_us < until_us and part < len(totals):
            cut_us = min(until_us, edges[part + 1])
            totals[part] += value * (cut_us - begin_us)
            begin_us, part = cut_us, part + 1
    means = [total / (edges[place + 1] - edges[place]) for place, total in enumerate(totals)]
    return StepCurve(edges, [*means, curve.values[-1]])


def highest(curve: StepCurve, most: int = MOST_STEPS) -> StepCurve:
    """The largest value in each of equal parts of the time: for what must never look smaller than it was."""
    if len(curve.at_us) <= most:
        return curve
    edges = _edges(curve, most)
    tops = [0.0] * (len(edges) - 1)
    for place, value in enumerate(curve.values[:-1]):
        first = bisect.bisect_right(edges, curve.at_us[place]) - 1
        last = bisect.bisect_left(edges, curve.at_us[place + 1]) - 1
        for part in range(first, min(last, len(tops) - 1) + 1):
            tops[part] = max(tops[part], value)
    return StepCurve(edges, [*tops, curve.values[-1]])


def _edges(curve: StepCurve, most: int) -> list[int]:
    first_us, last_us = curve.at_us[0], curve.at_us[-1]
    return sorted({first_us + (last_us - first_us) * part // most for part in range(most + 1)})
