"""The words and the JSON form of a check of utilization, as Torc's users know them."""

import math
from collections.abc import Sequence
from typing import Any

from joblens.analysis.sizing.utilization import (
    LikelyCause,
    Resource,
    Utilization,
    UtilizationReport,
    gpu_memory_peak,
)
from joblens.model.jobs.job import Record
from joblens.model.values.units import GIB, in_gb, in_mb


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
    """'2h 45m 0s'; below a minute with tenths where there are some."""
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
