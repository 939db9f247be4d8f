"""Options of runs that differ, by the names they have on the command line, in words."""

from collections.abc import Iterator, Mapping

from joblens.model.values.units import format_bytes, format_duration
from joblens.views.text.numbers import UNKNOWN
from joblens.views.text.style import clean

_NAMES = {
    "most_jobs": "jobs",
    "memory_bytes": "memory",
    "time_s": "time",
    "slurm time_s": "walltime",
    "slurm options": "sbatch",
}
_OF_SEVERAL = {"slurm": "", "parameters": "parameter "}  # what stands before the names of theirs


def changed_options(options: Mapping[str, tuple[object, object]]) -> Iterator[tuple[str, str, str]]:
    """-> (name, before, after)"""
    for name, (before, after) in options.items():
        if name not in _OF_SEVERAL:
            yield _NAMES.get(name, name), _in_words(name, before), _in_words(name, after)
            continue
        sides = [side if isinstance(side, Mapping) else {} for side in (before, after)]
        for part in dict.fromkeys([*sides[0], *sides[1]]):
            values = [side.get(part) for side in sides]
            if values[0] != values[1]:
                known = _NAMES.get(f"{name} {part}", part)
                words = (_in_words(part, value) for value in values)
                yield f"{_OF_SEVERAL[name]}{clean(str(known))}", next(words), next(words)


def _in_words(name: str, value: object) -> str:
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return clean(", ".join(map(str, value))) or UNKNOWN
    if isinstance(value, int | float) and name.endswith("_s"):
        return format_duration(value)
    if isinstance(value, int) and name.endswith("_bytes"):
        return format_bytes(value)
    return clean(f"{value:g}" if isinstance(value, float) else str(value))
