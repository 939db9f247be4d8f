"""Numbers of a job as a crate tells them: one property each, with its unit and where it was read."""

from joblens.analysis.crates.graph import CrateGraph, Ref
from joblens.analysis.numbers.usage import source_of
from joblens.model.jobs.job import USAGE_NUMBERS, Outcome, Usage

_UNITS = "https://qudt.org/vocab/unit/"
_UNIT_OF_ENDING = {
    "usec": "MicroSEC",
    "bytes": "BYTE",
    "uj": "MicroJ",
    "mg": "MilliGM",
}


def add_usage(graph: CrateGraph, ident: str, outcome: Outcome) -> list[Ref]:
    """`ident`: of the action, without '#'."""
    numbers = [("duration_s", outcome.duration_s, "SEC", "monotonic clock")]
    for name in USAGE_NUMBERS:
        value = getattr(outcome.usage, name)
        if value is not None:
            numbers.append((name, value, _unit(name), _source(outcome.usage, name)))
    return [
        graph.add(
            f"#{ident}-{name}",
            "PropertyValue",
            propertyID=f"joblens:{name}",
            name=name.removesuffix(f"_{name.rsplit('_', 1)[-1]}" if unit != "NUM" else "").replace("_", " "),
            value=value,
            unitCode=f"{_UNITS}{unit}",
            description=source,
        )
        for name, value, unit, source in numbers
    ]


def _unit(name: str) -> str:
    return _UNIT_OF_ENDING.get(name.rsplit("_", 1)[-1], "NUM")


def _source(usage: Usage, name: str) -> str:
    source = source_of(usage, name) or usage.sources.get(name, "")
    if name in usage.lower_bounds:
        return f"at least; {source}" if source else "at least"
    if name in usage.estimates:
        return f"estimate; {source}"
    return source
