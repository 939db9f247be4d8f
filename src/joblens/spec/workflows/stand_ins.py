"""What takes the place of something in a workflow file that cannot be used: harmless, of the right kind."""

import re
from typing import Any

from joblens.spec.formats.positions import Path
from joblens.spec.keys.kinds import Kind
from joblens.spec.keys.table import Key, Section

ITEM = "(?!)"  # of a list of names, patterns or commands: a pattern that finds nothing
_NOT_IN_NAMES = re.compile(r"[/\x00-\x1f\x7f\ud800-\udfff]")


def stand_in_entry(section: Section, raw: Any, base: Path) -> dict[str, Any]:
    """For an entry of a list that is no mapping, or one in which nothing fits together."""
    known = {"name": raw} if isinstance(raw, str) else {}
    if isinstance(raw, dict) and isinstance(raw.get("name"), str):
        known = {"name": raw["name"]}
    keys = section.keys.values()
    entry = {key.name: stand_in(section, key, known, base) for key in keys if key.is_required}
    if section.name == "action":
        entry["commands"] = [ITEM]
    if section.name == "rule":
        entry["match_all_exit_codes"] = True
    return entry


def stand_in(section: Section, key: Key, beside: dict[str, Any], base: Path) -> Any:
    """For a key that must be there. `beside`: what the mapping has."""
    number = next((step + 1 for step in reversed(base) if isinstance(step, int)), 0)
    match key.kind:
        case Kind.NAME | Kind.LONG_NAME | Kind.REQUIREMENTS_NAME:
            return _name(beside.get(key.name), number)
        case Kind.SECTIONS:
            inside = "job" if section.name == "workflow" else "rule"
            return [{"name": "#1", "command": ITEM}] if inside == "job" else [{"match_all_exit_codes": True}]
        case Kind.CHOICE:
            return _choice(key, beside)
    return f"{section.name} {number}"


def _name(raw: Any, number: int) -> str:
    """As near to what was written as a name can be; it may be shown in a message about something else."""
    cleaned = _NOT_IN_NAMES.sub("?", raw).strip() if isinstance(raw, str) else ""
    return cleaned if cleaned not in ("", "default") else f"#{number}"


def _choice(key: Key, beside: dict[str, Any]) -> str:
    """Of an action: what goes with the keys it has."""
    if key.name == "trigger_type":
        return "on_jobs_complete" if {"jobs", "job_name_regexes"} & beside.keys() else "on_workflow_start"
    schedules = {"scheduler", "scheduler_type", "num_allocations"} & beside.keys()
    return "schedule_nodes" if schedules else "run_commands"
