"""Settings with their values and origins."""

from collections.abc import Mapping
from typing import Any

from joblens.model.redaction.secrets import redact_text
from joblens.model.settings import is_postgres, without_password
from joblens.model.values.units import format_bytes, format_duration
from joblens.views.text.style import Palette
from joblens.views.text.table import Column, render_table

_NO_BOUND = 100_000  # lines are not truncated: paths must stay usable


def setting_values(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens a tree of settings to dotted names, without secrets."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            values.update(setting_values(value, f"{prefix}{key}."))
        else:
            values[prefix + key] = _without_secret(value)
    return values


def _without_secret(value: Any) -> Any:
    """Redacts passwords in URLs of stores and brokers."""
    if not isinstance(value, str) or "://" not in value:
        return value
    return without_password(value) if is_postgres(value) else redact_text(value)


def render_config(
    values: Mapping[str, Any], kinds: Mapping[str, str], origins: Mapping[str, str], paint: Palette
) -> list[str]:
    """Formats settings. `kinds`: setting -> size, duration, ..."""
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
    """Formats a value. `kind`: one of model.setting_list."""
    if value is None:
        return "(not set)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind == "size":
        return format_bytes(value)
    if kind == "duration":
        return format_duration(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
