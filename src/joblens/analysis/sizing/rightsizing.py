"""Right-sizing: requests for the jobs of a workflow, from all its runs.

Jobs that share their requirements get one recommendation.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from joblens.analysis.sizing.amounts import (
    cpus_for,
    cpus_text,
    is_least_memory_spare,
    is_least_spare,
    memory_for,
    memory_range,
    memory_text,
    rounded_memory,
    rounded_runtime,
    runtime_for,
    runtime_range,
    runtime_text,
)
from joblens.analysis.sizing.observations import (
    OOM_GROWTH,
    TIMEOUT_GROWTH,
    Allocation,
    Observation,
    Spread,
    Strategy,
    compare,
    memory_limits_hit,
    memory_needs,
    spread,
    time_limits_hit,
    without_mapped_files,
)
from joblens.model.jobs.job import Requirements
from joblens.model.values.units import counted, format_bytes, format_duration

_LOW = "low"
_SAMPLED_GROWTH = 1.18  # on top of the margin for every peak


class Group(Struct, frozen=True, kw_only=True):
    """Jobs that share their requirements, and their observations."""

    name: str  # as people know it: the group's name, or that of the job in the file
    current: Requirements
    observations: tuple[Observation, ...]
    is_named: bool = True
    spec_job: int = -1  # entry of the file; -1: a named group
    has_requirements: bool = True  # False: nothing is written for it


class Advice(Struct, frozen=True, kw_only=True):
    """Advice for one resource of one group. Texts are in the units of a spec."""

    resource: str  # memory, cpus, runtime
    current: float | None
    recommended: float
    current_text: str
    recommended_text: str
    reason: str
    quantiles: dict[str, float] = field(default_factory=dict)  # p50, p90, p95, max, of jobs that completed
    at_least: tuple[str, ...] = ()  # lower bounds: jobs were killed at a limit
    retry_at: int | None = None  # bytes; set where jobs that do not fit are retried with it

    @property
    def is_change(self) -> bool:
        return self.current is None or self.current != self.recommended

    @property
    def grows(self) -> bool:
        return self.current is not None and self.recommended > self.current

    @property
    def shrinks(self) -> bool:
        return self.current is not None and self.recommended < self.current


class GroupAdvice(Struct, frozen=True, kw_only=True):
    group: Group
    jobs: int
    runs: int
    confidence: str  # low, medium, high
    advice: tuple[Advice, ...]
    strategies: tuple[Allocation, ...] = ()

    @property
    def is_thin(self) -> bool:
        """Returns whether there are so few jobs that the next one may well need more."""
        return self.confidence == _LOW


def advise(groups: Iterable[Group], strategy: Strategy = Strategy.MAX_SEEN) -> list[GroupAdvice]:
    """Returns advice; groups without observations are omitted."""
    return [_advise(group, strategy) for group in groups if group.observations]


def _advise(group: Group, strategy: Strategy) -> GroupAdvice:
    group = replace(group, observations=without_mapped_files(group.observations))
    observations = group.observations
    largest = _memory_of_largest(group)
    strategies = compare(memory_needs(observations), None if largest is None else int(largest[0]))
    parts = (_memory(group, largest, strategies, strategy), _cpus(group), _runtime(group))
    has_ends = any(item.is_complete for item in observations)
    jobs = len({(item.run, item.job) for item in observations})
    runs = len({item.run for item in observations})
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
    return "medium" if runs == 2 or jobs >= 5 else _LOW


# ---- one resource each ----------------------------------------------------------------------------------


def _memory(
    group: Group, largest: tuple[float, str] | None, strategies: Sequence[Allocation], strategy: Strategy
) -> Advice | None:
    if largest is None:
        return None
    current, observations = group.current.memory_bytes, group.observations
    use = spread(
        [float(item.memory_bytes) for item in observations if item.has_all_memory and item.memory_bytes],
        memory_limits_hit(observations),
    )
    advised, reason = largest
    smaller = next((one for one in strategies if one.strategy is strategy and one.retries), None)
    if smaller is not None and smaller.first_bytes < advised:
        advised, reason = _smaller_first_try(group, smaller)
        retry = smaller.retry_bytes if advised == smaller.first_bytes else None
        return _of("memory", current, advised, memory_text, reason, use, retry_at=retry)
    return _of("memory", current, advised, memory_text, reason, use)


def _memory_of_largest(group: Group) -> tuple[float, str] | None:
    """Returns the amount that fits all, and why; None: unknown."""
    observations = group.observations
    known = [item.memory_bytes for item in observations if item.memory_bytes is not None]
    killed = memory_limits_hit(observations)
    if not known and not killed:
        return None
    peak = max(known, default=0)
    text = f"peak {format_bytes(peak)}{_with_files(observations, peak)}"
    is_sampled = any(item.is_sampled for item in observations)
    enough = peak * _SAMPLED_GROWTH if is_sampled else peak
    current = group.current.memory_bytes
    advised: float = memory_for(enough)
    if killed and max(killed) * OOM_GROWTH > advised:
        times = f"{len(killed)} out of memory" if len(killed) > 1 else "out of memory"
        reason = f"{times} at {format_bytes(max(killed))}: + 50%"
        return _already_more(current, rounded_memory(max(killed) * OOM_GROWTH), reason)
    if current is not None:
        uncertain = any(item.memory_is_least for item in group.observations)
        keep = _why_kept(group, current, advised, memory_range(enough), uncertain=uncertain)
        if keep:
            return current, f"{text}{keep}"
    if is_sampled:
        return advised, f"{text} in Slurm's samples + 30 to 40%"
    more = "8 to 16 MiB" if is_least_memory_spare(peak) else "10 to 20%"
    return advised, f"{text} + {more}"


def _with_files(observations: Sequence[Observation], peak: int) -> str:
    """Returns a note for peaks in which newer versions of joblens may find less memory."""
    has_files = any(item.memory_has_files for item in observations if item.memory_bytes == peak)
    return " (older record, may include mapped files)" if has_files else ""


def _smaller_first_try(group: Group, chosen: Allocation) -> tuple[float, str]:
    """Returns the first request of a strategy with retries, under which a killed job is no reason for
    more."""
    share = f"{100 * chosen.retries:.0f}% need a retry with {memory_text(chosen.retry_bytes)}"
    current = group.current.memory_bytes
    if current is not None and chosen.first_bytes < current:
        if any(item.memory_is_least for item in group.observations):
            return current, "peaks may have been higher: kept"
        if not any(item.is_complete for item in group.observations):
            return current, "none completed: kept"
    return chosen.first_bytes, f"{chosen.strategy}: {share}"


def _cpus(group: Group) -> Advice | None:
    current = group.current.cpus
    observations = group.observations
    known = [item.peak_cores for item in observations if item.peak_cores is not None]
    if not known:
        return None
    peak = max(known)
    advised: float = cpus_for(peak)
    percent = round(100 * peak)
    # Sampling shows a busy core as a little more than one.
    cores = counted(advised, "core")
    headroom = "up to the next core" if percent <= 100 * advised else f"hardly more than {cores}"
    level = "average" if any(item.is_sampled for item in observations) else "peak"
    reason = f"{level} {percent}% CPU, {headroom}"
    held_back = [item.limits.cpus for item in observations if item.is_throttled and item.limits.cpus]
    if held_back and max(held_back) >= advised and (current is None or current <= max(held_back)):
        advised = cpus_for(max(held_back) + 1)
        reason = f"throttled at {max(held_back):g}: one more"
    elif current is not None:
        keep = _why_kept(group, current, advised, (advised, advised), uncertain=False)
        advised, reason = (current, f"{level} {percent}% CPU{keep}") if keep else (advised, reason)
    use = spread(
        [item.peak_cores for item in observations if item.is_complete and item.peak_cores is not None]
    )
    return _of("cpus", current, advised, cpus_text, reason, use)


def _runtime(group: Group) -> Advice | None:
    current = group.current.timeout_s
    killed = time_limits_hit(group.observations)
    longest = max(item.duration_s for item in group.observations)
    use = spread([item.duration_s for item in group.observations if item.is_complete], killed)
    advised: float = runtime_for(longest)
    times = f"{len(killed)} timed out" if len(killed) > 1 else "timed out"
    if killed and max(killed) * TIMEOUT_GROWTH > advised:
        advised = rounded_runtime(max(killed) * TIMEOUT_GROWTH)
        reason = f"{times} after {format_duration(max(killed))}: + 40%"
        advised, reason = _already_more(current, advised, reason)
        return _of("runtime", current, advised, runtime_text, reason, use)
    more = " + 10 to 20s" if is_least_spare(longest) else " + 15 to 30%"
    observations = (
        f"{times} after {format_duration(max(killed))}" if killed else f"longest {format_duration(longest)}"
    )
    reason = observations + more
    if current is not None:
        keep = _why_kept(group, current, advised, runtime_range(longest), uncertain=False)
        advised, reason = (current, f"{observations}{keep}") if keep else (advised, reason)
    return _of("runtime", current, advised, runtime_text, reason, use)


def _already_more(current: float | None, advised: float, reason: str) -> tuple[float, str]:
    """Returns the current request if a user has raised it since: the need is unknown."""
    if current is not None and current >= advised:
        return current, f"{reason.partition(':')[0]}: already raised"
    return advised, reason


def _why_kept(
    group: Group, current: float, advised: float, fitting: tuple[float, float], *, uncertain: bool
) -> str:
    """Returns why to keep the request; '' if another is better. Lowering must be safe, and a change
    worthwhile."""
    if advised == current or (advised > current >= fitting[0]) or (advised < current <= fitting[1]):
        return ": fits as it is"
    if advised > current:
        return ""
    if uncertain:
        return ", perhaps more: kept"
    if not any(item.is_complete for item in group.observations):
        return ", but none completed: kept"
    return ""


def _of(
    resource: str,
    current: float | None,
    advised: float,
    text: Callable[[Any], str],
    reason: str,
    use: Spread,
    *,
    retry_at: int | None = None,
) -> Advice:
    return Advice(
        resource=resource,
        current=current,
        recommended=advised,
        current_text="" if current is None else text(current),
        recommended_text=text(advised),
        reason=reason,
        quantiles=use.quantiles,
        at_least=use.at_least,
        retry_at=retry_at,
    )
