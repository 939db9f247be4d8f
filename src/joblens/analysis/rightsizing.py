"""What the jobs of a workflow should ask for, from everything that was seen of them in all its runs.

Jobs that share their requirements get one advice. A job that was killed at a limit tells only that it needs
more than that; one that failed for another reason tells what it needs at least."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from joblens.analysis.allocation import Allocation, Need, Strategy, compare
from joblens.analysis.amounts import (
    cpus_for,
    cpus_text,
    memory_for,
    memory_range,
    memory_text,
    rounded_memory,
    rounded_runtime,
    runtime_for,
    runtime_range,
    runtime_text,
)
from joblens.analysis.statistics import nearest_rank
from joblens.model.job import Record, Requirements, Status
from joblens.model.units import format_bytes, format_duration

OOM_GROWTH = 1.5
TIMEOUT_GROWTH = 1.4
_THROTTLED = 0.05  # share of its time from which a job is taken to have wanted more CPUs
_QUANTILES = (0.5, 0.9, 0.95, 1.0)


class Observation(Struct, frozen=True, kw_only=True):
    """One attempt of one job of one run."""

    job: str
    run: int
    attempt: int
    status: Status
    duration_s: float
    memory_bytes: int | None = None
    memory_is_least: bool = False  # may have been more
    peak_cores: float | None = None
    mean_cores: float | None = None
    limits: Requirements = Requirements()  # that it had
    is_out_of_memory: bool = False
    is_throttled: bool = False

    @property
    def is_complete(self) -> bool:
        return self.status is Status.SUCCESS

    @property
    def is_timed_out(self) -> bool:
        return self.status is Status.TIMEOUT


class Group(Struct, frozen=True, kw_only=True):
    """Jobs that share their requirements, and what was seen of them."""

    name: str  # as people know it: the group's name, or that of the job in the file
    current: Requirements
    observations: tuple[Observation, ...]
    is_named: bool = True
    spec_job: int = -1  # entry of the file; -1: a named group
    has_requirements: bool = True  # False: nothing is written for it


class Advice(Struct, frozen=True, kw_only=True):
    """For one resource of one group. Texts are as a spec has them."""

    resource: str  # memory, cpus, runtime
    current: float | None
    recommended: float
    current_text: str
    recommended_text: str
    reason: str
    quantiles: dict[str, float] = field(default_factory=dict)  # p50, p90, p95, max

    @property
    def is_change(self) -> bool:
        return self.current is None or self.current != self.recommended

    @property
    def grows(self) -> bool:
        return self.current is not None and self.recommended > self.current


class GroupAdvice(Struct, frozen=True, kw_only=True):
    group: Group
    jobs: int
    runs: int
    confidence: str  # low, medium, high
    advice: tuple[Advice, ...]
    strategies: tuple[Allocation, ...] = ()


def observation_of(record: Record, run: int) -> Observation | None:
    """None: it has not ended, or nothing of it was measured."""
    outcome = record.outcome
    if outcome is None or outcome.status in (Status.ERROR, Status.LOST):
        return None
    usage = outcome.usage
    duration_s = outcome.duration_s
    mean = None
    if usage.cpu_total_usec is not None and duration_s > 0:
        mean = usage.cpu_total_usec / 1e6 / duration_s
    profile = (outcome.profile or {}).get("process_cpu") or {}
    peak_percent = profile.get("max_percent")
    peak = mean if peak_percent is None else max(peak_percent / 100, mean or 0.0)
    throttled = (usage.cpu_throttled_usec or 0) / 1e6
    return Observation(
        job=record.job.name,
        run=run,
        attempt=1 if record.job.run is None else record.job.run.attempt,
        status=outcome.status,
        duration_s=duration_s,
        memory_bytes=usage.memory_peak_bytes,
        memory_is_least="memory_peak_bytes" in usage.lower_bounds,
        peak_cores=peak,
        mean_cores=mean,
        limits=record.job.requirements if record.job.enforce else Requirements(),
        is_out_of_memory=outcome.reason == "out-of-memory",
        is_throttled=duration_s > 0 and throttled >= max(0.5, _THROTTLED * duration_s),
    )


def advise(groups: Iterable[Group], strategy: Strategy = Strategy.MAX_SEEN) -> list[GroupAdvice]:
    """Groups of which nothing was seen are left out."""
    return [_advise(group, strategy) for group in groups if group.observations]


def _advise(group: Group, strategy: Strategy) -> GroupAdvice:
    seen = group.observations
    strategies = compare(_needs(seen))
    parts = (_memory(group, strategies, strategy), _cpus(group), _runtime(group))
    has_ends = any(item.is_complete for item in seen)
    jobs = len({(item.run, item.job) for item in seen})
    runs = len({item.run for item in seen})
    return GroupAdvice(
        group=group,
        jobs=jobs,
        runs=runs,
        confidence=_confidence(jobs, runs),
        # of jobs that never came to their end only that they need more can be known
        advice=tuple(part for part in parts if part is not None and (has_ends or part.current is not None)),
        strategies=strategies,
    )


def _confidence(jobs: int, runs: int) -> str:
    if runs >= 3 or jobs >= 20:
        return "high"
    return "medium" if runs == 2 or jobs >= 5 else "low"


def _needs(seen: Sequence[Observation]) -> list[Need]:
    return [
        Need(item.memory_bytes, item.duration_s)
        for item in seen
        if item.is_complete and item.memory_bytes is not None
    ]


# ---- one resource each ----------------------------------------------------------------------------------


def _memory(group: Group, strategies: Sequence[Allocation], strategy: Strategy) -> Advice | None:
    current = group.current.memory_bytes
    known = [item.memory_bytes for item in group.observations if item.memory_bytes is not None]
    killed = [
        limit
        for item in group.observations
        if item.is_out_of_memory and (limit := item.limits.memory_bytes) is not None
        if not _is_resolved(item, group.observations, "memory_bytes")
    ]
    if not known and not killed:
        return None
    peak = max(known, default=0)
    wanted: float = memory_for(peak)
    reason, fitting = f"peak {format_bytes(peak)} + 10 to 20 %", memory_range(peak)
    chosen = next((option for option in strategies if option.strategy is strategy), None)
    if chosen is not None and strategy is not Strategy.MAX_SEEN and chosen.first_bytes < wanted:
        wanted = chosen.first_bytes
        fitting = (wanted, wanted)
        share = f"{100 * chosen.retries:.0f} % tried"
        reason = f"{strategy}: {share} again with {memory_text(chosen.retry_bytes)}"
    if killed and max(killed) * OOM_GROWTH > wanted:
        times = f"{len(killed)} out of memory" if len(killed) > 1 else "out of memory"
        wanted = rounded_memory(max(killed) * OOM_GROWTH)
        reason = f"{times} at {format_bytes(max(killed))}: + 50 %"
        wanted, reason = _already_more(current, wanted, reason)
    elif current is not None:
        uncertain = any(item.memory_is_least for item in group.observations)
        keep = _why_kept(group, current, wanted, fitting, uncertain=uncertain)
        wanted, reason = (current, f"peak {format_bytes(peak)}{keep}") if keep else (wanted, reason)
    return _of("memory", current, wanted, memory_text, reason, [float(size) for size in known])


def _cpus(group: Group) -> Advice | None:
    current = group.current.cpus
    known = [item.peak_cores for item in group.observations if item.peak_cores is not None]
    if not known:
        return None
    peak = max(known)
    wanted: float = cpus_for(peak)
    reason = f"peak {100 * peak:.0f} % CPU, up to the next core"
    held_back = [item.limits.cpus for item in group.observations if item.is_throttled and item.limits.cpus]
    if held_back and max(held_back) >= wanted and (current is None or current <= max(held_back)):
        wanted = cpus_for(max(held_back) + 1)
        reason = f"held back at {max(held_back):g}: one more"
    elif current is not None:
        keep = _why_kept(group, current, wanted, (wanted, wanted), uncertain=False)
        wanted, reason = (current, f"peak {100 * peak:.0f} % CPU{keep}") if keep else (wanted, reason)
    return _of("cpus", current, wanted, cpus_text, reason, known)


def _runtime(group: Group) -> Advice | None:
    current = group.current.timeout_s
    known = [item.duration_s for item in group.observations]
    killed = [
        limit
        for item in group.observations
        if item.is_timed_out and (limit := item.limits.timeout_s) is not None
        if not _is_resolved(item, group.observations, "timeout_s")
    ]
    longest = max(known)
    wanted: float = runtime_for(longest)
    reason = f"longest {format_duration(longest)} + 15 to 30 %"
    if killed and max(killed) * TIMEOUT_GROWTH > wanted:
        times = f"{len(killed)} timed out" if len(killed) > 1 else "timed out"
        wanted = rounded_runtime(max(killed) * TIMEOUT_GROWTH)
        reason = f"{times} after {format_duration(max(killed))}: + 40 %"
        wanted, reason = _already_more(current, wanted, reason)
    elif current is not None:
        keep = _why_kept(group, current, wanted, runtime_range(longest), uncertain=False)
        wanted, reason = (current, f"longest {format_duration(longest)}{keep}") if keep else (wanted, reason)
    return _of("runtime", current, wanted, runtime_text, reason, known)


def _already_more(current: float | None, wanted: float, reason: str) -> tuple[float, str]:
    """Someone has given it more since: what it needs is not known, so it is not taken away again."""
    if current is not None and current >= wanted:
        return current, f"{reason.partition(':')[0]}: has more now"
    return wanted, reason


def _why_kept(
    group: Group, current: float, wanted: float, fitting: tuple[float, float], *, uncertain: bool
) -> str:
    """'' where another amount is better. Asking for less has to be safe; a change has to be worth it."""
    if wanted == current or (wanted > current >= fitting[0]) or (wanted < current <= fitting[1]):
        return ": fits as it is"
    if wanted > current:
        return ""
    if uncertain:
        return ", perhaps more: kept"
    if not any(item.is_complete for item in group.observations):
        return ", but none came to its end: kept"
    return ""


def _is_resolved(cut: Observation, seen: Sequence[Observation], limit: str) -> bool:
    """The same job came to its end with more (or without a limit), so what it needs is known."""
    had = getattr(cut.limits, limit)
    return any(
        item.job == cut.job
        and item.is_complete
        and ((other := getattr(item.limits, limit)) is None or other > had)
        for item in seen
    )


def _of(
    resource: str,
    current: float | None,
    wanted: float,
    text: Callable[[Any], str],
    reason: str,
    known: Sequence[float],
) -> Advice:
    return Advice(
        resource=resource,
        current=current,
        recommended=wanted,
        current_text="" if current is None else text(current),
        recommended_text=text(wanted),
        reason=reason,
        quantiles=_quantiles(known),
    )


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    names = ("p50", "p90", "p95", "max")
    return {name: ordered[nearest_rank(q, len(ordered))] for name, q in zip(names, _QUANTILES, strict=True)}
