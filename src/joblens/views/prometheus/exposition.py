"""Exposition formats: metric families as Prometheus text 0.0.4 or OpenMetrics 1.0.

Names, tags and other text of jobs become label values only, escaped and shortened.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LONGEST_LABEL = 128

COUNTER, GAUGE, HISTOGRAM, INFO = "counter", "gauge", "histogram", "info"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_OPENMETRICS_SUFFIX = {COUNTER: "_total", INFO: "_info"}


def label_value(text: str) -> str:
    """Escapes text for double quotes. Truncates long text, and replaces characters that are not UTF-8."""
    if len(text) > LONGEST_LABEL:
        text = text[: LONGEST_LABEL - 1] + "…"
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text.translate(_ESCAPES)


def labels(values: Mapping[str, str]) -> str:
    """Returns `name="value"` pairs, separated by commas."""
    return ",".join(f'{name}="{label_value(value)}"' for name, value in values.items())


class Family(Struct):
    """One metric. `rows`: suffix of the name, labels as rendered by `labels`, value."""

    name: str
    kind: str
    help: str
    rows: list[tuple[str, str, float]] = field(default_factory=list)

    def add(self, label_text: str, value: float | None, suffix: str = "") -> None:
        """Adds a row; an unknown value (None) adds none."""
        if value is not None:
            self.rows.append((suffix, label_text, value))

    def add_scaled(self, label_text: str, value: int | None, divisor: float) -> None:
        if value is not None:
            self.rows.append(("", label_text, value / divisor))


class Families:
    """Families by name, in the order of their definition. Families without rows are omitted."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def counter(self, name: str, text: str) -> Family:
        return self._get(name, COUNTER, text)

    def gauge(self, name: str, text: str) -> Family:
        return self._get(name, GAUGE, text)

    def histogram(self, name: str, text: str) -> Family:
        return self._get(name, HISTOGRAM, text)

    def info(self, name: str, text: str) -> Family:
        return self._get(name, INFO, text)

    def _get(self, name: str, kind: str, text: str) -> Family:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, kind, text)
        return family

    def as_text(self) -> str:
        """Returns Prometheus text 0.0.4."""
        parts: list[str] = []
        for family in self._with_rows():
            kind = GAUGE if family.kind == INFO else family.kind
            parts.append(f"# HELP {family.name} {family.help}\n# TYPE {family.name} {kind}\n")
            parts += _lines(family)
        return "".join(parts)

    def as_openmetrics(self) -> str:
        """Returns OpenMetrics 1.0: names of families without `_total` and `_info`, and an end mark."""
        parts: list[str] = []
        for family in self._with_rows():
            name = family.name.removesuffix(_OPENMETRICS_SUFFIX.get(family.kind, ""))
            parts.append(f"# TYPE {name} {family.kind}\n# HELP {name} {family.help}\n")
            parts += _lines(family)
        parts.append("# EOF\n")
        return "".join(parts)

    def _with_rows(self) -> Iterable[Family]:
        return (family for family in self._families.values() if family.rows)


def _lines(family: Family) -> list[str]:
    name = family.name
    return [
        f"{name}{suffix}{{{label_text}}} {value!r}\n" if label_text else f"{name}{suffix} {value!r}\n"
        for suffix, label_text, value in family.rows
    ]
