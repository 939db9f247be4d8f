"""An event as a line for people."""

from datetime import UTC, datetime

from msgspec import UNSET

from joblens.model.recipes.event import RecipeEvent


def event_line(event: RecipeEvent) -> str:
    """`2025-08-09 04:00:53.496 op_complete partition 3 operator 2 words_num_filter rows 5 -> 4 0.12 s: …`"""
    at = datetime.fromtimestamp(event.timestamp, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} {event_words(event)}\n"


def event_words(event: RecipeEvent) -> str:
    """The same without the time, for a log that has its own."""
    parts = [str(event.event_type)]
    if event.partition_id is not UNSET:
        parts.append(f"partition {event.partition_id}")
    if event.operation_idx is not UNSET:
        parts.append(f"operator {event.operation_idx}")
    if event.operation_name is not UNSET:
        parts.append(event.operation_name)
    if event.retry_count is not UNSET and event.retry_count:
        parts.append(f"retry {event.retry_count}")
    if event.output_rows is not UNSET:
        came = "" if event.input_rows is UNSET else f"{event.input_rows} -> "
        parts.append(f"rows {came}{event.output_rows}")
    if event.duration is not UNSET:
        parts.append(f"{event.duration:.3f} s")
    if event.checkpoint_path is not UNSET:
        parts.append(event.checkpoint_path)
    words = [text for text in (event.message, event.error_message) if text is not UNSET and text]
    told = ": ".join([" ".join(parts), *words])
    return " ".join(told.split())  # one line, whatever an error message brings along
