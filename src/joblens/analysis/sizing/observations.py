"""What single attempts tell of what their jobs need.

One that came to its end tells it exactly; one that was killed at a limit only that it is more than that; one
that failed for another reason, or was cancelled, what it is at least."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.analysis.numbers.outcome_numbers import (
    is_out_of_memory,
    is_throttled,
    node_count,
    peak_cpu_percent,
)
from joblens.analysis.numbers.statistics import nearest_rank
from joblens.analysis.sizing.allocation import Need
from joblens.analysis.sizing.amounts import LEAST_MEMORY_BUFFER
from joblens.model.jobs.job import Record, Requirements, Status

OOM_GROWTH = 1.5
TIMEOUT_GROWTH = 1.4
SAMPLED_ACCOUNTING = "sacct"
_OWN_ACCOUNTING = ("cgroup", "process-tree", "in-process")
_SEEN_ENOUGH_S = 60.0  # Slurm looks every 30 s, unless it is told otherwise
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "max": 1.0}


class Observation(Struct, frozen=True, kw_only=True):
    """One attempt of one job of one run."""

    job: str
    run: int
    attempt: int
    status: Status
    duration_s: float
    memory_bytes: int | None = None
    memory_is_least: bool = False  # may have been more
    memory_has_files: bool = False  # measured by an older joblens: mapped files may be in it
    peak_cores: float | None = None
    limits: Requirements = Requirements()  # that it had
    is_out_of_memory: bool = False
    is_throttled: bool = False
    is_sampled: bool = (
        False  # by Slurm, now and then: memory may have been more, of CPUs only the average is known
    )

    @property
    def is_complete(self) -> bool:
        return self.status is Status.SUCCESS

    @property
    def has_all_memory(self) -> bool:
        """A job can succeed though one of its processes was killed for memory: then it wanted more."""
        return self.is_complete and not self.is_out_of_memory

    @property
    def is_timed_out(self) -> bool:
        return self.status is Status.TIMEOUT

    @property
    def when(self) -> tuple[int, int]:
        """Attempts of one job, in their order."""
        return self.run, self.attempt


class Spread(Struct, frozen=True):
    """How an amount was spread over the jobs: p50, p90, p95, max. Those in `at_least` may be more, because
    jobs that were killed are among them or below."""

    quantiles: dict[str, float] = {}
    at_least: tuple[str, ...] = ()


def observation_of(record: Record, run: int, *, is_unmade: bool = False) -> Observation | None:
    """None: it has not ended, or nothing of it was measured. `is_unmade`: it did not make its output files,
    so it did not come to its end, whatever it said itself."""
    outcome = record.outcome
    if outcome is None or outcome.status in (Status.ERROR, Status.LOST):
        return None
    peak = peak_cpu_percent(outcome)
    is_sampled = record.attempt is not None and record.attempt.accounting == SAMPLED_ACCOUNTING
    # Seen often enough, a sampled peak is one to add more to, instead of none to go by.
    is_seen_enough = is_sampled and outcome.duration_s >= _SEEN_ENOUGH_S
    return Observation(
        job=record.job.name,
        run=run,
        attempt=1 if record.job.run is None else record.job.run.attempt,
        status=Status.FAILED if is_unmade else outcome.status,
        duration_s=outcome.duration_s,
        memory_bytes=outcome.usage.memory_peak_bytes,
        memory_is_least="memory_peak_bytes" in outcome.usage.lower_bounds and not is_seen_enough,
        memory_has_files=has_mapped_files(record),
        peak_cores=None if peak is None else peak / 100 / node_count(record),
        limits=record.job.requirements if record.job.enforce else Requirements(),
        is_out_of_memory=is_out_of_memory(outcome),
        is_throttled=is_throttled(outcome),
        is_sampled=is_sampled,
    )


def has_mapped_files(record: Record) -> bool:
    """Its peak is of an older joblens, which took the high-water mark of a process."""
    if record.outcome is None or record.attempt is None or record.outcome.usage.memory_peak_bytes is None:
        return False
    return not record.outcome.usage.memory_peak_basis and record.attempt.accounting.startswith(
        _OWN_ACCOUNTING
    )


def without_mapped_files(seen: Sequence[Observation]) -> tuple[Observation, ...]:
    """Peaks with mapped files count only for jobs of which there is no other."""
    known = {item.job for item in seen if item.memory_bytes is not None and not item.memory_has_files}
    return tuple(
        replace(item, memory_bytes=None, memory_is_least=False, memory_has_files=False)
        if item.memory_has_files and item.job in known
        else item
        for item in seen
    )


def memory_limits_hit(seen: Sequence[Observation]) -> list[int]:
    """Of attempts whose jobs' real need is not known since. That one is known once the job comes through
    afterwards with more; or came through before, with more than what was not enough now."""
    through = _by_job(item for item in seen if item.has_all_memory)
    return [
        limit
        for item in seen
        if item.is_out_of_memory and (limit := item.limits.memory_bytes) is not None
        if not any(
            (one.limits.memory_bytes is None or one.limits.memory_bytes > limit)
            and (one.when > item.when or (one.memory_bytes or 0) >= limit)
            for one in through.get(item.job, ())
        )
    ]


def time_limits_hit(seen: Sequence[Observation]) -> list[float]:
    """The same for time."""
    through = _by_job(item for item in seen if item.is_complete)
    return [
        limit
        for item in seen
        if item.is_timed_out and (limit := item.limits.timeout_s) is not None
        if not any(
            (one.limits.timeout_s is None or one.limits.timeout_s > limit)
            and (one.when > item.when or one.duration_s >= limit)
            for one in through.get(item.job, ())
        )
    ]


def _by_job(seen: Iterator[Observation]) -> dict[str, list[Observation]]:
    found: dict[str, list[Observation]] = {}
    for item in seen:
        found.setdefault(item.job, []).append(item)
    return found


def memory_needs(seen: Sequence[Observation]) -> list[Need]:
    """Of every job of every run, those that were killed for memory and never came through included: left
    out, only the small ones would be seen. What such a job used in another run counts where that is more
    than it was killed at, else what it would be given next."""
    needs = []
    through = _by_job(item for item in seen if item.has_all_memory and item.memory_bytes is not None)
    done = {(item.run, item.job) for items in through.values() for item in items}
    killed: dict[tuple[int, str], Observation] = {}
    for item in seen:
        if item.has_all_memory and item.memory_bytes is not None:
            needs.append(Need(item.memory_bytes, item.duration_s))
        elif item.is_out_of_memory and item.limits.memory_bytes and (item.run, item.job) not in done:
            before = killed.get((item.run, item.job))
            if before is None or (before.limits.memory_bytes or 0) < item.limits.memory_bytes:
                killed[item.run, item.job] = item
    for item in killed.values():
        limit = item.limits.memory_bytes or 0
        known = [one for one in through.get(item.job, ()) if (one.memory_bytes or 0) > limit]
        largest = max(known, key=lambda one: one.memory_bytes or 0, default=None)
        if largest is not None:
            needs.append(Need(largest.memory_bytes or 0, largest.duration_s))
        else:
            needs.append(Need(int(limit * OOM_GROWTH / LEAST_MEMORY_BUFFER), item.duration_s))
    return needs


def spread(complete: Sequence[float], killed_at: Sequence[float] = ()) -> Spread:
    """Of what completed jobs used. A limit at which a job was killed stands for 'more than that': it
    takes its place among the others, and from there on every number is at least what is shown."""
    ordered = sorted([*((value, False) for value in complete), *((limit, True) for limit in killed_at)])
    if not ordered:
        return Spread()
    places = {name: nearest_rank(share, len(ordered)) for name, share in _QUANTILES.items()}
    first_killed = next((place for place, (_, is_killed) in enumerate(ordered) if is_killed), len(ordered))
    return Spread(
        {name: ordered[place][0] for name, place in places.items()},
        tuple(name for name, place in places.items() if place >= first_killed),
    )
