"""Records and samples as flat rows, for tables: CSV and Parquet."""

from typing import Any

from msgspec import json

from joblens.analysis.formats.history import returncode_of
from joblens.analysis.numbers.where_it_ran import where_it_ran
from joblens.model.jobs.job import USAGE_NUMBERS, Record, Usage
from joblens.model.jobs.sample import SAMPLE_COLUMNS, SAMPLE_TABLES, Sample

_NO_USAGE = Usage()

# column -> kind: int, float, text, bool, time (µs UTC)
JOB_COLUMNS: dict[str, str] = {
    "job_uuid": "text",
    "number": "int",
    "task_id": "text",
    "name": "text",
    "tool": "text",
    "script": "text",
    "status": "text",
    "reason": "text",
    "created_time": "time",
    "start_time": "time",
    "end_time": "time",
    "duration_seconds": "float",
    "returncode": "int",
    "signal": "int",
    "error": "text",
    "command": "text",
    "params": "text",
    "tags": "text",
    "user": "text",
    "host": "text",
    "engine": "text",
    "nodes": "text",
    "cluster_job_id": "text",
    "node_id": "text",
    "worker": "text",
    "accounting": "text",
    "samples": "int",
    **dict.fromkeys(USAGE_NUMBERS, "int"),
    "lower_bounds": "text",
    "estimates": "text",
    "memory_peak_basis": "text",
}
SAMPLE_TABLE_COLUMNS: dict[str, str] = {
    "job_uuid": "text",
    "index": "int",
    **{name: "time" if name == "at_us" else "int" for name in SAMPLE_COLUMNS},
    **dict.fromkeys(SAMPLE_TABLES, "text"),
}


def job_row(record: Record) -> list[Any]:
    """In the order of JOB_COLUMNS; lists and objects as JSON text."""
    job, attempt, outcome = record.job, record.attempt, record.outcome
    usage = _NO_USAGE if outcome is None else outcome.usage
    where = where_it_ran(record)
    head = [
        job.uuid,
        record.number,
        job.external_id or job.uuid,
        job.name,
        job.tool,
        job.script,
        record.status.value,
        None if outcome is None else outcome.reason,
        job.created_at_us,
        None if attempt is None else attempt.started_at_us,
        None if outcome is None else outcome.ended_at_us,
        None if outcome is None else outcome.duration_s,
        None if outcome is None else returncode_of(outcome),
        None if outcome is None else outcome.signal,
        None if outcome is None else outcome.error,
        _text(job.argv),
        _text(job.params),
        _text(job.tags),
        job.user,
        where.host,
        where.engine,
        ",".join(where.nodes),
        where.cluster_job_id,
        where.node_id,
        where.worker,
        None if attempt is None else attempt.accounting,
        None if outcome is None else outcome.samples,
    ]
    marks = [_text(usage.lower_bounds), _text(usage.estimates), usage.memory_peak_basis]
    return [*head, *(getattr(usage, name) for name in USAGE_NUMBERS), *marks]


def sample_row(uuid: str, index: int, sample: Sample) -> list[Any]:
    """In the order of SAMPLE_TABLE_COLUMNS; tables as JSON text."""
    tables = (getattr(sample, name) for name in SAMPLE_TABLES)
    texts = (None if table is None else _text(table) for table in tables)
    return [uuid, index, *(getattr(sample, name) for name in SAMPLE_COLUMNS), *texts]


def _text(value: Any) -> str:
    return json.encode(value).decode()
