"""Results of benchmarks as text for a terminal."""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from joblens.analysis.comparing.bench import (
    COMMANDS,
    NUMBERS,
    are_of_one_machine,
    medians,
    parameter_changes,
    variants_of,
)
from joblens.model.values.units import MIB, counted, format_bytes, format_duration, listed
from joblens.views.text.numbers import UNKNOWN
from joblens.views.text.style import PLAIN, Palette, clean, fit, wrap_beside
from joblens.views.text.table import Column, render_table

_STOPPED = {
    "precision": "reached the requested precision",
    "time": "stopped at time limit",
    "runs": "all runs done",
    "interrupt": "interrupted",
    "failure": "a run failed",
}
_SHOWN_OUTLIERS = 6
_TIMES = ("duration_seconds", "cpu_seconds")

Form = Mapping[str, Any]


def render_result(document: Form, width: int, paint: Palette = PLAIN) -> list[str]:
    variants = variants_of(document)
    lines = [*command_lines(document, width, paint), ""]
    lines += numbers_table(variants, width, paint)
    for comparison in document.get("comparisons", ()):
        lines += ["", *comparison_lines(comparison, paint)]
    lines += [""] if document.get("comparisons") else []
    lines += notes(document, variants, width)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def numbers_table(variants: Sequence[Form], width: int, paint: Palette = PLAIN) -> list[str]:
    columns = [
        Column("", gives_way=True, least=6),
        Column("RUNS", is_right=True),
        Column("WALL TIME", is_right=True),
        Column("INTERVAL", is_right=True, goes=3),
        Column("CPU TIME", is_right=True),
        Column("MEMORY", is_right=True),
        Column("READ", is_right=True, goes=1),
        Column("WRITTEN", is_right=True, goes=2),
    ]
    rows = []
    for variant in variants:
        metrics, middle = variant["metrics"], medians(variant["runs"])
        good, runs = metrics["successful_runs"], metrics["runs"]
        rows.append(
            [
                clean(variant["name"]),
                str(runs) if good == runs else f"{good} of {runs}",
                fine_duration(middle["duration_seconds"]),
                _span(metrics["median_duration_low"], metrics["median_duration_high"]),
                fine_duration(middle["cpu_seconds"]),
                _size(middle["memory_peak_mb"]),
                _size(middle["io_read_mb"]),
                _size(middle["io_write_mb"]),
            ]
        )
    return render_table(columns, rows, width, paint)


def comparison_lines(comparison: Form, paint: Palette = PLAIN) -> list[str]:
    names = f"{clean(comparison['variant'])} against {clean(comparison['baseline'])}"
    lines = [paint.paint(names, "bold")]
    for name, what in NUMBERS.items():
        number = comparison["numbers"][name]
        if number is not None:
            colour = {True: "green", False: "red"}[number["ratio"] < 1] if number["differs"] else "dim"
            lines.append(f"  {what:<12} {paint.paint(_ratio(number), colour)}")
    if len(lines) == 1:
        lines.append("  nothing to compare: one of them has no successful run")
    return lines


def verdict(number: Form, what: str) -> str:
    """Returns a sentence about a ratio: '12% less wall time'."""
    ratio, differs = number["ratio"], number["differs"]
    if differs is None:
        return f"{_change(ratio)} {what}; too few runs for an interval"
    if differs:
        return f"{_change(ratio)} {what}"
    if number["detectable"] is None:
        return f"no difference in {what}"
    detectable = _share(number["detectable"])
    return f"no difference in {what} ({detectable} would be detectable)"


def notes(document: Form, variants: Sequence[Form], width: int) -> list[str]:
    found = []
    if document["kind"] == COMMANDS:
        order = ", random order" if len(variants) > 1 else ""
        stopped = str(_STOPPED.get(document["stopped"], document["stopped"]))
        if document["stopped"] == "time" and document["rounds"] == 1:
            stopped += " in the first round"
        found.append(f"{counted(document['rounds'], 'round')}{order}; {stopped}")
    if document.get("failure"):
        found.append(f"failed: {clean(document['failure'])}")
    if document.get("error"):
        found.append(f"no run succeeded: {clean(document['error'])}")
    found += [text for variant in variants if (text := _outliers(variant))]
    found += list(document.get("disturbances") or ())
    return [line for text in found for line in _bullet(text, width)]


def differences_of(before: Form, after: Form) -> list[str]:
    """Returns differences in the set-up of two results that may explain different times."""
    changes = parameter_changes(before, after)
    is_same = are_of_one_machine(before, after)
    return differences({"parameter_changes": changes, "same_machine": is_same})


def differences(compared: Form) -> list[str]:
    """Returns the same for a stored comparison."""
    changes = compared["parameter_changes"]
    changed_values = [
        f"{clean(name)} {_value_text(one)} → {_value_text(two)}" for name, (one, two) in changes.items()
    ]
    found = [f"they differ: {', '.join(changed_values)}"] if changed_values else []
    return [*found, *([] if compared["same_machine"] else ["they ran on different machines"])]


def parameters_text(document: Form) -> str:
    return ", ".join(
        f"{clean(name)}={_value_text(value)}" for name, value in (document.get("params") or {}).items()
    )


def _value_text(value: Any) -> str:
    if value is None:
        return UNKNOWN
    return clean(value if isinstance(value, str) else json.dumps(value))


def render_list(documents: Sequence[Form], width: int, paint: Palette = PLAIN) -> list[str]:
    columns = [
        Column("ID", gives_way=True, least=16, keeps_end=True),
        Column("WHEN"),
        Column("WHAT", gives_way=True, least=10),
        Column("PARAMETERS", gives_way=True, least=10, goes=1),
        Column("RUNS", is_right=True),
        Column("WALL TIME", is_right=True),
        Column("RATIO", is_right=True),
    ]
    rows = []
    for document in documents:
        variants = variants_of(document)
        first = variants[-1]
        comparisons = document.get("comparisons") or ()
        number = comparisons[-1]["numbers"]["duration_seconds"] if comparisons else None
        rows.append(
            [
                document["id"],
                document["created_time"][:16].replace("T", " "),
                clean(document.get("title") or first["name"]),
                parameters_text(document) or UNKNOWN,
                str(first["metrics"]["runs"]),
                fine_duration(first["metrics"]["median_duration"]),
                UNKNOWN if number is None else f"{number['ratio']:.3f}",
            ]
        )
    return render_table(columns, rows, width, paint)


def command_text(variant: Form) -> str:
    words = variant["command"]
    return clean(words[0] if variant.get("is_shell") and words else shlex.join(words))


def fine_duration(seconds: float | None) -> str:
    """Formats three significant digits: 1.23ms, 45.6ms, 1.23s, 2m03s."""
    if seconds is None:
        return UNKNOWN
    if seconds >= 99.95:
        return format_duration(seconds)
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        value = seconds / size
        if value >= 0.9995 or unit == "µs":
            digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
            return f"{value:.{min(digits, 2)}f}{unit}"
    return UNKNOWN


def command_lines(document: Form, width: int, paint: Palette = PLAIN) -> list[str]:
    """Returns the command of each variant."""
    variants = variants_of(document)
    lines = []
    longest = max((len(clean(variant["name"])) for variant in variants), default=0)
    for variant in variants:
        mark = " (baseline)" if len(variants) > 1 and variant["name"] == document.get("baseline") else ""
        name = clean(variant["name"])
        columns_left = max(20, width - longest - len(mark) - 2)
        space = " " * (longest - len(name))
        lines.append(f"{paint.paint(name, 'bold')}{space}  {fit(command_text(variant), columns_left)}{mark}")
    parameters = parameters_text(document)
    return [*lines, *([f"{' ' * longest}  {fit(parameters, width - longest - 2)}"] if parameters else [])]


def _ratio(number: Form) -> str:
    text = f"{number['ratio']:.3f}x"
    if number["low"] is not None:
        text += f"  ({round(100 * number['confidence'], 1):g}% CI {number['low']:.3f}-{number['high']:.3f})"
    return f"{text}  {_short_verdict(number)}"


def _short_verdict(number: Form) -> str:
    if number["differs"] is None:
        return "too few runs"
    if number["differs"]:
        return _change(number["ratio"])
    if number["detectable"] is None:
        return "no difference"
    return f"no difference ({_share(number['detectable'])} would be detectable)"


def _change(ratio: float) -> str:
    return f"{_share(1 - ratio)} less" if ratio < 1 else f"{_share(ratio - 1)} more"


def _share(value: float) -> str:
    percent = 100 * value
    return f"{percent:.0f}%" if percent >= 10 else f"{percent:.1f}%"


def _outliers(variant: Form) -> str:
    numbers = variant["metrics"]["outliers"]
    if not numbers:
        return ""
    times = {run["run_number"]: run["duration_seconds"] for run in variant["runs"]}
    shown = listed(numbers, _SHOWN_OUTLIERS, lambda one: f"run {one} ({fine_duration(times[one])})")
    return f"{clean(variant['name'])}: {shown} {'is an outlier' if len(numbers) == 1 else 'are outliers'}"


def _span(low: float | None, high: float | None) -> str:
    return UNKNOWN if low is None else f"{fine_duration(low)} … {fine_duration(high)}"


def _size(mib: float | None) -> str:
    return UNKNOWN if mib is None else format_bytes(mib * MIB)


def _bullet(text: str, width: int) -> list[str]:
    return wrap_beside("· ", text, max(42, width))
