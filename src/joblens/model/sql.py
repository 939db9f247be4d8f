"""SQL queries over the views of a store: views, limits, answers."""

from typing import Any

from msgspec import Struct

# Views of every store with their columns (docs/sql.md). Columns are only appended; a column with a changed
# meaning needs a new version.
VIEWS_VERSION = 1
VIEWS: dict[str, tuple[str, ...]] = {
    "jobs": (
        *(
            "number",
            "uuid",
            "own_id",
            "name",
            "tool",
            "user_name",
            "status",
            "host",
            "began_at_us",
            "ended_at_us",
        ),
        *(
            "duration_s",
            "cpu_s",
            "memory_bytes",
            "exit_code",
            "reason",
            "run_uuid",
            "run_index",
            "run_attempt",
        ),
    ),
    "attempts": (
        *("job_number", "attempt", "started_at_us", "host", "accounting", "kernel", "cpu_count"),
        *("memory_total_bytes", "provenance"),
    ),
    "runs": ("uuid", "workflow_number", "number", "started_at_us", "ended_at_us"),
    "workflows": ("number", "uuid", "name", "user_name", "source"),
    "samples": ("job_number", "samples", "bytes"),
    "findings": ("job_number", "code"),
    "tags": ("job_number", "tag"),
    "events": ("number", "run_uuid", "at_us", "kind", "fact"),
    "annotations": ("job_number", "at_us", "author", "text"),
    "deleted_jobs": (
        "number",
        "uuid",
        "own_id",
        "name",
        "user_name",
        "status",
        "deleted_at_us",
        "deleted_by",
    ),
}

QUERY_HINT = f"write one SELECT over the views {', '.join(VIEWS)}; docs/sql.md lists their columns"
_LONGEST_S = 2e6  # 23 days


class SqlLimits(Struct, frozen=True, kw_only=True):
    seconds: float = 30.0
    rows: int = 10_000
    bytes: int = 64 << 20  # of all values together
    is_trusted: bool = False  # written by joblens: runs without a separate process

    @property
    def timeout_s(self) -> float:
        """Returns `seconds` within the range of stores: 31 bits for milliseconds."""
        return min(self.seconds, _LONGEST_S)


class SqlAnswer(Struct, frozen=True, kw_only=True):
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    is_truncated: bool = False  # there were more than the limits allow
