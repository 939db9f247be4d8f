"""Datasets of a run: a table of all, and everything about one."""

from collections.abc import Sequence
from typing import Any

from joblens.model.values.units import format_bytes, format_duration, format_instant
from joblens.views.text.numbers import UNKNOWN
from joblens.views.text.style import PLAIN, Palette, clean
from joblens.views.text.table import Column, render_table

_COLOURS = {"pending": "blue", "finalizing": "cyan", "finalized": "green", "failed": "red"}
_COLUMNS = (
    Column("DATASET", gives_way=True),
    Column("STATUS"),
    Column("MADE BY", is_right=True, goes=2),
    Column("FILES", is_right=True),
    Column("SIZE", is_right=True),
    Column("HASH", goes=1),
    Column("PATH", gives_way=True, least=10),
)
_SHORT_HASH = 12


def render_datasets(rows: Sequence[dict[str, Any]], *, width: int, paint: Palette = PLAIN) -> list[str]:
    """`rows`: as `--json` has them."""
    table = [
        [
            clean(row["name"]),
            paint.paint(row["status"], _COLOURS.get(row["status"], "bold")),
            f"{row['producers_done']}/{row['producers']}" if row["producers"] else UNKNOWN,
            UNKNOWN if row["files"] is None else f"{row['files']:,}",
            format_bytes(row["bytes"]),
            _hash(row),
            clean(row["path"]),
        ]
        for row in rows
    ]
    lines = render_table(_COLUMNS, table, width, paint)
    return [*lines, *(f"  {clean(row['name'])}: {clean(row['error'])}" for row in rows if row["error"])]


def _hash(row: dict[str, Any]) -> str:
    return f"{row['hash_mode']} {(row['sha256'] or '')[:_SHORT_HASH]}".rstrip()


def render_dataset(row: dict[str, Any], paint: Palette = PLAIN) -> list[str]:
    """`row`: as `datasets show --json` has it."""
    made_by = (
        f"{row['producers_done']} of {len(row['producers'])} jobs done" if row["producers"] else "no job"
    )
    facts = {
        "path": clean(row["path"]),
        "status": paint.paint(row["status"], _COLOURS.get(row["status"], "bold")),
        "error": clean(row["error"] or ""),
        "description": clean(row["description"]),
        "files": "" if row["files"] is None else f"{row['files']:,}",
        "size": "" if row["bytes"] is None else f"{format_bytes(row['bytes'])} ({row['bytes']:,} bytes)",
        "hash mode": row["hash_mode"],
        "sha256": row["sha256"] or "",
        "finalized": "" if row["finalized_at_us"] is None else format_instant(row["finalized_at_us"]),
        "hashed in": "" if row["duration_s"] is None else format_duration(row["duration_s"]),
        "made by": _with_names(made_by, row["producers"]),
        "read by": _with_names("", row["readers"]),
    }
    return [clean(row["name"]), *(f"  {name:<12}{value}" for name, value in facts.items() if value)]


def _with_names(text: str, names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(clean(name) for name in names[:most])
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{text}: {shown}{more}" if text and shown else text or f"{shown}{more}"
