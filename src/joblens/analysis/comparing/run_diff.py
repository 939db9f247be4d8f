"""Comparison of two runs: jobs matched by name, and the environment differences they share."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from joblens.analysis.comparing.job_differences import (
    Difference,
    JobView,
    change_percent,
    differences,
    has_changed,
)
from joblens.model.jobs.job import Requirements

_GROUPS = frozenset(
    {"inputs", "code", "programs", "versions", "environment", "container", "machine", "placement"}
)


class SharedDifference(Struct, frozen=True):
    difference: Difference
    jobs: int  # number of jobs it applies to


def shared_differences(pairs: Iterable[tuple[JobView, JobView, int]]) -> tuple[SharedDifference, ...]:
    """Returns common differences, most common first. `pairs`: a job before and after, and the number of such
    pairs."""
    counts: dict[Difference, int] = {}
    for before, after, jobs in pairs:
        for one in differences(before, after).differences:
            if one.group in _GROUPS:
                counts[one] = counts.get(one, 0) + jobs
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return tuple(SharedDifference(one, jobs) for one, jobs in ordered)


class JobSide(Struct, frozen=True, kw_only=True):
    """One job in one run; its last attempt."""

    state: str
    command: str = ""
    requirements: Requirements = Requirements()
    attempts: int = 0
    inputs: Mapping[str, str] | None = None  # files with size and hash; None: unknown
    exit_code: int | None = None
    duration_s: float | None = None
    cpu_s: float | None = None
    memory_bytes: int | None = None


class RunSide(Struct, frozen=True, kw_only=True):
    label: str
    jobs: Mapping[str, JobSide]
    wall_s: float | None = None
    spec_text: str = ""
    options: Mapping[str, object] = {}


class Change(Struct, frozen=True):
    """A number before and after; None: unknown."""

    before: float | None
    after: float | None

    @property
    def percent(self) -> float | None:
        return change_percent(self.before, self.after)

    def is_beyond_noise(self, unit: str) -> bool:
        return has_changed(self.before, self.after, unit)


class JobChange(Struct, frozen=True, kw_only=True):
    name: str
    state: tuple[str, str]
    exit_code: tuple[int | None, int | None]
    attempts: tuple[int, int]
    duration_s: Change
    cpu_s: Change
    memory_bytes: Change
    changed: tuple[str, ...] = ()  # command, cpus, memory, runtime, gpus, inputs
    weight: float = 0.0  # its change as a share of the run's total

    @property
    def is_significant(self) -> bool:
        return (
            self.state[0] != self.state[1]
            or self.exit_code[0] != self.exit_code[1]
            or self.attempts[0] != self.attempts[1]
            or bool(self.changed)
            or self.duration_s.is_beyond_noise("s")
            or self.cpu_s.is_beyond_noise("s")
            or self.memory_bytes.is_beyond_noise("bytes")
        )


class RunDiff(Struct, frozen=True, kw_only=True):
    before: str
    after: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    jobs: tuple[JobChange, ...]  # in both, the most significant first
    options: dict[str, tuple[object, object]]
    spec_lines: tuple[str, ...]  # unified diff; (): unchanged
    totals: dict[str, Change]
    surroundings: tuple[SharedDifference, ...] = ()  # differences in inputs and environment
    surroundings_of: int = 0  # jobs compared for that


def compare_runs(before: RunSide, after: RunSide) -> RunDiff:
    shared = [name for name in after.jobs if name in before.jobs]
    totals = {
        "wall_s": Change(before.wall_s, after.wall_s),
        **{
            name: Change(_total(before.jobs.values(), name), _total(after.jobs.values(), name))
            for name in ("duration_s", "cpu_s")
        },
        "memory_bytes": Change(_most(before), _most(after)),
        "completed": Change(_completed(before), _completed(after)),
        "jobs": Change(len(before.jobs), len(after.jobs)),
    }
    jobs = [_job_change(name, before.jobs[name], after.jobs[name], totals) for name in shared]
    jobs.sort(key=lambda job: (not job.is_significant, job.state[0] == job.state[1], -job.weight))
    return RunDiff(
        before=before.label,
        after=after.label,
        added=tuple(name for name in after.jobs if name not in before.jobs),
        removed=tuple(name for name in before.jobs if name not in after.jobs),
        jobs=tuple(jobs),
        options={
            name: (before.options.get(name), after.options.get(name))
            for name in sorted({*before.options, *after.options})
            if before.options.get(name) != after.options.get(name)
        },
        spec_lines=tuple(_spec_lines(before, after)),
        totals=totals,
    )


def _job_change(name: str, before: JobSide, after: JobSide, totals: Mapping[str, Change]) -> JobChange:
    numbers = {
        field: Change(getattr(before, field), getattr(after, field))
        for field in ("duration_s", "cpu_s", "memory_bytes")
    }
    return JobChange(
        name=name,
        state=(before.state, after.state),
        exit_code=(before.exit_code, after.exit_code),
        attempts=(before.attempts, after.attempts),
        duration_s=numbers["duration_s"],
        cpu_s=numbers["cpu_s"],
        memory_bytes=numbers["memory_bytes"],
        changed=tuple(_changed(before, after)),
        weight=max(_share(change, totals[field]) for field, change in numbers.items()),
    )


def _share(change: Change, total: Change) -> float:
    whole = max(total.before or 0.0, total.after or 0.0)
    if change.before is None or change.after is None or whole <= 0:
        return 0.0
    return abs(change.after - change.before) / whole


def _changed(before: JobSide, after: JobSide) -> Iterator[str]:
    if before.command != after.command:
        yield "command"
    asked = before.requirements, after.requirements
    for field, word in (
        ("cpus", "cpus"),
        ("memory_bytes", "memory"),
        ("timeout_s", "runtime"),
        ("gpus", "gpus"),
    ):
        if getattr(asked[0], field) != getattr(asked[1], field):
            yield word
    if before.inputs is not None and after.inputs is not None and before.inputs != after.inputs:
        yield "inputs"


def _total(jobs: Iterable[JobSide], field: str) -> float:
    return sum(getattr(job, field) or 0.0 for job in jobs)


def _most(side: RunSide) -> float | None:
    return max((job.memory_bytes for job in side.jobs.values() if job.memory_bytes is not None), default=None)


def _completed(side: RunSide) -> int:
    return sum(job.state == "completed" for job in side.jobs.values())


def _spec_lines(before: RunSide, after: RunSide) -> Iterator[str]:
    if before.spec_text == after.spec_text:
        return
    import difflib

    lines = difflib.unified_diff(
        before.spec_text.splitlines(),
        after.spec_text.splitlines(),
        before.label,
        after.label,
        n=1,
        lineterm="",
    )
    yield from lines
