"""Dry run: the course of a run if every job succeeds and takes its expected time."""

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from itertools import count

from msgspec import Struct

from joblens.engine.schedule.events import (
    AttemptBegan,
    AttemptEnded,
    Command,
    CommandEnded,
    Event,
    FinalizationEnded,
    FinalizeDataset,
    RunActionCommand,
    StartAttempt,
)
from joblens.engine.schedule.schedule import Schedule
from joblens.model.clusters.placement import ClusterPreview
from joblens.model.jobs.job import Status
from joblens.model.runs.plan import Plan
from joblens.plan.workflows.graph import Stage


class RehearsedStart(Struct, frozen=True):
    index: int
    at_s: float
    expected_s: float | None
    gpus: tuple[str, ...] = ()


class Rehearsal(Struct, frozen=True):
    """Starts in their order. `makespan_s` None: the duration of some job is unknown."""

    starts: tuple[RehearsedStart, ...]
    makespan_s: float | None


class DryRun(Struct, frozen=True, kw_only=True):
    """A run that passed its checks and was not created."""

    plan: Plan
    rehearsal: Rehearsal
    stages: tuple[Stage, ...]
    cluster: ClusterPreview
    reasons: Mapping[int, str]  # why jobs run again, by index
    not_started: tuple[int, ...] = ()  # jobs for which the time of the run (--time) is too short


def rehearse(schedule: Schedule, known_s: Mapping[int, float]) -> Rehearsal:
    """Simulates the run. `schedule` may be restored and has not begun. Jobs of unknown duration count as
    long as the others on average."""
    usual_s = sum(known_s.values()) / len(known_s) if known_s else 1.0
    starts: list[RehearsedStart] = []
    ends: list[tuple[float, int, Event]] = []
    order = count()  # simultaneous events keep their order
    now_s = 0.0
    commands = schedule.begin(now_s)
    while True:
        for command in commands:
            _carry_out(command, schedule, ends, order, starts, known_s, usual_s, now_s)
        if not ends:
            break
        now_s, _, event = heappop(ends)
        commands = schedule.handle(event, now_s)
    is_known = all(start.expected_s is not None for start in starts)
    return Rehearsal(tuple(starts), now_s if is_known and starts else None)


def _carry_out(
    command: Command,
    schedule: Schedule,
    ends: list[tuple[float, int, Event]],
    order: Iterator[int],
    starts: list[RehearsedStart],
    known_s: Mapping[int, float],
    usual_s: float,
    now_s: float,
) -> None:
    if isinstance(command, StartAttempt):
        index = command.index
        known = known_s.get(index)
        takes_s = usual_s if known is None else known
        starts.append(RehearsedStart(index, now_s, known, command.gpus))
        schedule.handle(AttemptBegan(index), now_s)
        ended = AttemptEnded(index, command.attempt, Status.SUCCESS, 0, "exited", takes_s)
        heappush(ends, (now_s + takes_s, next(order), ended))
    elif isinstance(command, RunActionCommand):
        ended_command = CommandEnded(Status.SUCCESS, command.action, command.command)
        heappush(ends, (now_s, next(order), ended_command))
    elif isinstance(command, FinalizeDataset):
        heappush(ends, (now_s, next(order), FinalizationEnded(command.index)))
