"""Utilization check: use against request, with the messages and JSON form of Torc.

Memory is the peak that cannot be reclaimed, CPU the highest rate between two samples (or the exact average if
that is higher or all there is), runtime the job's own time. Hitting a limit is a violation even if the number
is just below it: with enforcement it cannot rise further.
"""

import enum
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from joblens.analysis.formats.history import returncode_of
from joblens.analysis.numbers.rates import (
    is_memory_measured,
    is_out_of_memory,
    is_throttled,
    node_count,
    peak_cpu_percent,
)
from joblens.model.jobs.job import Outcome, Record, Status
from joblens.model.values.units import GIB, in_gb, in_mb

_KILLED = 137
_ONE_CORE = 100.0  # percent
_EARLY, _LATE = 0.8, 0.9  # shares of the time limit
TIMEOUT_CODES = (124, 152)


class Resource(enum.StrEnum):
    MEMORY = "Memory"  # bytes
    CPU = "CPU"  # percent of one core
    RUNTIME = "Runtime"  # seconds


class LimitHit(enum.StrEnum):
    NONE = ""
    OUT_OF_MEMORY = "out of memory"
    THROTTLED = "throttled"
    TIMED_OUT = "timed out"


class Utilization(Struct, frozen=True, kw_only=True):
    """One resource of one attempt."""

    record: Record
    resource: Resource
    specified: float
    peak: float | None  # None: not known, and a limit was hit
    is_least: bool = False  # `peak` may have been more
    hit: LimitHit = LimitHit.NONE

    @property
    def over_percent(self) -> float | None:
        return None if self.peak is None else (self.peak / self.specified - 1) * 100

    def is_violation(self, min_over_percent: float) -> bool:
        over = self.over_percent
        return bool(self.hit) or (over is not None and over > 0 and over >= min_over_percent)

    @property
    def is_far_below(self) -> bool:
        """Returns whether it requested more than twice its use. A time limit is meant to be higher."""
        if self.peak is None or self.is_least or self.resource is Resource.RUNTIME:
            return False
        one_core_less = self.specified - self.peak >= _ONE_CORE or self.resource is not Resource.CPU
        return one_core_less and self.peak < self.specified / 2


class LikelyCause(Struct, frozen=True, kw_only=True):
    """Likely cause of a failure. `memory_share` and `runtime_share`: of the request."""

    record: Record
    return_code: int | None
    likely_oom: bool
    likely_timeout: bool
    memory_share: float | None = None
    runtime_share: float | None = None


class UtilizationReport(Struct, frozen=True, kw_only=True):
    total_results: int
    violations: tuple[Utilization, ...]
    within: tuple[Utilization, ...]
    failures: tuple[LikelyCause, ...]
    gpu_memory: tuple[Record, ...] | None = None  # attempts that used a GPU; None: of none it is known

    @property
    def over_asking(self) -> int:
        """Returns jobs that requested far more than they used."""
        return len({item.record.job.name for item in self.within if item.is_far_below})


def check_utilization(
    records: Iterable[Record], *, include_failed: bool = False, min_over_percent: float = 1.0
) -> UtilizationReport:
    """Checks ended attempts. Failed ones count only for the limits they hit, unless `include_failed`."""
    total = 0
    violations: list[Utilization] = []
    within: list[Utilization] = []
    failures: list[LikelyCause] = []
    measured: list[Record] = []
    for record in records:
        if record.outcome is None:
            continue
        total += 1
        if record.outcome.usage.gpu_memory_peak_bytes is not None:
            measured.append(record)
        is_failed = record.status is not Status.SUCCESS
        for item in utilizations(record, record.outcome):
            if item.is_violation(min_over_percent) and (item.hit or include_failed or not is_failed):
                violations.append(item)
            elif include_failed or not is_failed:
                within.append(item)
        if is_failed:
            failures += likely_causes(record, record.outcome)
    return UtilizationReport(
        total_results=total,
        violations=tuple(violations),
        within=tuple(within),
        failures=tuple(failures),
        gpu_memory=tuple(record for record in measured if gpu_memory_peak(record)) if measured else None,
    )


def gpu_memory_peak(record: Record) -> int:
    """Returns peak GPU memory, for which there are no requests to compare with."""
    return 0 if record.outcome is None else record.outcome.usage.gpu_memory_peak_bytes or 0


def utilizations(record: Record, outcome: Outcome) -> Iterator[Utilization]:
    """Yields numbers with a requirement, if known or if the limit was hit."""
    needs, usage = record.job.requirements, outcome.usage
    if needs.memory_bytes:
        yield from _known(
            record,
            Resource.MEMORY,
            needs.memory_bytes,
            usage.memory_peak_bytes,
            LimitHit.OUT_OF_MEMORY if is_out_of_memory(outcome) else LimitHit.NONE,
            is_least="memory_peak_bytes" in usage.lower_bounds,
        )
    if needs.cpus:
        hit = LimitHit.THROTTLED if is_throttled(outcome) else LimitHit.NONE
        peak = peak_cpu_percent(outcome)
        on_each = None if peak is None else peak / node_count(record)
        yield from _known(record, Resource.CPU, needs.cpus * 100, on_each, hit)
    if needs.timeout_s:
        hit = LimitHit.TIMED_OUT if outcome.status is Status.TIMEOUT else LimitHit.NONE
        yield from _known(record, Resource.RUNTIME, needs.timeout_s, outcome.duration_s, hit)


def _known(
    record: Record,
    resource: Resource,
    specified: float,
    peak: float | None,
    hit: LimitHit,
    *,
    is_least: bool = False,
) -> Iterator[Utilization]:
    if peak is not None or hit:
        yield Utilization(
            record=record, resource=resource, specified=specified, peak=peak, is_least=is_least, hit=hit
        )


def likely_causes(record: Record, outcome: Outcome) -> Iterator[LikelyCause]:
    """Yields causes of a failure that no limit of joblens explains: an early kill suggests memory, a late one
    time. If memory was measured, exit code 137 alone does not count."""
    if is_out_of_memory(outcome) or outcome.status in (Status.TIMEOUT, Status.CANCELLED):
        return
    needs, code = record.job.requirements, returncode_of(outcome)
    peak = outcome.usage.memory_peak_bytes
    memory = peak / needs.memory_bytes if peak is not None and needs.memory_bytes else None
    runtime = outcome.duration_s / needs.timeout_s if needs.timeout_s else None
    is_early = runtime is None or runtime < _EARLY
    is_killed_early = code == _KILLED and is_early and not is_memory_measured(record, outcome)
    likely_oom = (memory is not None and memory > 1) or is_killed_early
    likely_timeout = (runtime is not None and runtime > _LATE) or code in TIMEOUT_CODES
    if likely_oom or likely_timeout:
        yield LikelyCause(
            record=record,
            return_code=code,
            likely_oom=likely_oom,
            likely_timeout=likely_timeout,
            memory_share=memory,
            runtime_share=runtime,
        )


def amount_text(resource: Resource, amount: float | None) -> str:
    if amount is None:
        return "-"
    if resource is Resource.MEMORY:
        return f"{in_gb(amount):.2f} GB" if amount >= GIB else f"{in_mb(amount):.1f} MB"
    return f"{amount:.1f}%" if resource is Resource.CPU else runtime_text(amount)


def specified_text(item: Utilization) -> str:
    if item.resource is not Resource.CPU:
        return amount_text(item.resource, item.specified)
    cores = f"{item.specified / 100:g}"
    return f"{item.specified:g}% ({cores} {'core' if cores == '1' else 'cores'})"


def runtime_text(seconds: float) -> str:
    """Returns '2h 45m 0s'; below a minute, '45.3s'."""
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}h {minutes}m {whole % 60}s" if hours else f"{minutes}m {whole % 60}s"


def over_text(item: Utilization) -> str:
    if item.over_percent is None:
        return "-"
    # To the nearest tenth, halves away from zero, as people do: 31.25 is 31.3 and -4.95 is -5.0. An example
    # of Torc shows -9.9 for 720.3 of 800 (-9.96); no rule gives that and its -5.0 for 380.2 of 400 as well.
    tenths = math.floor(round(abs(item.over_percent) * 10, 6) + 0.5)
    return f"{'-' if item.over_percent < 0 and tenths else '+'}{tenths / 10:.1f}%"


def report_form(
    report: UtilizationReport, *, workflow_id: int | None, run_id: int | None, show_all: bool
) -> dict[str, Any]:
    form: dict[str, Any] = {
        "workflow_id": workflow_id,
        "run_id": run_id,
        "total_results": report.total_results,
        "over_utilization_count": len(report.violations),
        "violations": _item_forms(report.violations),
    }
    if show_all:
        form["within_limits"] = _item_forms(report.within)
    form["likely_causes"] = [_cause_form(cause) for cause in report.failures]
    form["over_asking_count"] = report.over_asking
    form["gpu_memory"] = None if report.gpu_memory is None else _gpu_memory_forms(report.gpu_memory)
    return form


def _gpu_memory_forms(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [
        {
            "job_id": record.number,
            "job_name": record.job.name,
            "peak_used": amount_text(Resource.MEMORY, gpu_memory_peak(record)),
            "peak_value": gpu_memory_peak(record),
            "status": record.status.value,
            "attempt": 1 if record.job.run is None else record.job.run.attempt,
            "job_uuid": record.job.uuid,
        }
        for record in records
    ]


def _item_forms(items: Sequence[Utilization]) -> list[dict[str, Any]]:
    return [
        {
            "job_id": item.record.number,
            "job_name": item.record.job.name,
            "resource_type": item.resource.value,
            "specified": specified_text(item),
            "peak_used": amount_text(item.resource, item.peak),
            "over_utilization": over_text(item),
            "specified_value": item.specified,
            "peak_value": item.peak,
            "peak_is_lower_bound": item.is_least,
            "over_percent": item.over_percent,
            "limit_hit": item.hit.value or None,
            "status": item.record.status.value,
            "attempt": 1 if item.record.job.run is None else item.record.job.run.attempt,
            "job_uuid": item.record.job.uuid,
        }
        for item in items
    ]


def _cause_form(cause: LikelyCause) -> dict[str, Any]:
    return {
        "job_id": cause.record.number,
        "job_name": cause.record.job.name,
        "return_code": cause.return_code,
        "likely_oom": cause.likely_oom,
        "likely_timeout": cause.likely_timeout,
        "memory_share": cause.memory_share,
        "runtime_share": cause.runtime_share,
        "job_uuid": cause.record.job.uuid,
    }
