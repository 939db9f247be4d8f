"""Settings, each with its value and its origin."""

from collections.abc import Mapping
from typing import Any

from joblens.model.redaction.secrets import redact_text
from joblens.model.settings import is_postgres, without_password
from joblens.model.values.units import format_bytes, format_duration
from joblens.views.text.style import Palette
from joblens.views.text.table import Column, render_table

_NO_BOUND = 100_000  # lines are not cut: a path that is cut is no path


def setting_values(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A tree of settings by dotted names, for showing."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            values.update(setting_values(value, f"{prefix}{key}."))
        else:
            values[prefix + key] = _without_secret(value)
    return values


def _without_secret(value: Any) -> Any:
    """URLs of stores and brokers may hold a password."""
    if not isinstance(value, str) or "://" not in value:
        return value
    return without_password(value) if is_postgres(value) else redact_text(value)


def render_config(
    values: Mapping[str, Any], kinds: Mapping[str, str], origins: Mapping[str, str], paint: Palette
) -> list[str]:
    """Formats settings. `kinds`: size, duration or plain, per setting."""
    columns = (Column("SETTING"), Column("VALUE"), Column("FROM"))
    rows = [
        [
            name,
            value_text(value, kinds[name]),
            paint.paint(origins[name], "dim" if origins[name] == "default" else "green"),
        ]
        for name, value in values.items()
    ]
    return render_table(columns, rows, _NO_BOUND, paint)


def value_text(value: Any, kind: str) -> str:
    """`kind`: size, duration or another one of model.setting_list."""
    if value is None:
        return "(not set)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind == "size":
        return format_bytes(value)
    if kind == "duration":
        return format_duration(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
