"""Problems of a workflow, one per position, without consequences of unreadable parts."""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from joblens.model.runs.workflow_spec import DatasetSpec, FileSpec, JobSpec, UserDataSpec
from joblens.plan.commands.parameters import pattern_of

Path = tuple[str | int, ...]

# Comparing a word with very many names takes too long for a hint.
_MOST_COMPARED = 2000
_MOST_HINTS = 500
_SECTIONS = {  # of a file, by section
    "file": "files",
    "user data": "user_data",
    "dataset": "datasets",
    "resource requirement": "resource_requirements",
    "failure handler": "failure_handlers",
}
_FEW = 6


class PlanProblem(Struct, frozen=True):
    """`path`: position in the spec's document, by keys as written."""

    path: Path
    message: str


class Problems:
    """Problems by position. Repetitions, as in the jobs of a sweep, are counted. `part` distinguishes several
    problems at one position."""

    def __init__(self) -> None:
        self.warnings: dict[Path, str] = {}
        self._first: dict[tuple[Path, str | int], str] = {}
        self._more: dict[tuple[Path, str | int], int] = {}

    def note(self, path: Path, message: str, part: str | int = "") -> None:
        if self._is_new(path, part):
            self._first[path, part] = message

    def warn(self, path: Path, message: str) -> None:
        """Reports something that is valid but may be unintended: once per path."""
        self.warnings.setdefault(path, message)

    def unknown(self, path: Path, kind: str, name: str, known: Collection[str], part: str | int = "") -> None:
        """Notes an undefined name, with the most similar one."""
        if self._is_new(path, part):
            if not known and kind in _SECTIONS:
                hint = f"; declare it under {_SECTIONS[kind]}:"
            else:
                hint = did_you_mean(name, known) if len(self._first) < _MOST_HINTS else ""
            self._first[path, part] = f"there is no {kind} '{name}'{hint}"

    def all(self) -> tuple[PlanProblem, ...]:
        return tuple(
            PlanProblem(key[0], message + self._how_many_more(key)) for key, message in self._first.items()
        )

    def _is_new(self, path: Path, part: str | int) -> bool:
        """Returns whether the problem is new; counts repetitions."""
        key = (path, part)
        if key not in self._first:
            return True
        self._more[key] = self._more.get(key, 0) + 1
        return False

    def _how_many_more(self, key: tuple[Path, str | int]) -> str:
        more = self._more.get(key, 0)
        return f" (and {more:,} more from this entry)" if more else ""


def did_you_mean(name: str, known: Collection[str]) -> str:
    nearest = nearest_name(name, known)
    if nearest:
        return f"; did you mean '{nearest}'?"
    if not known:
        return "; the workflow has none"
    if len(known) == 1:
        return f"; there is only '{next(iter(known))}'"
    return f"; there are {', '.join(repr(one) for one in known)}" if len(known) <= _FEW else ""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    import difflib

    names = known if isinstance(known, Collection) else list(known)
    if len(names) > _MOST_COMPARED:
        names = _similar(name, names)
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return found[0] if found else None


def _similar(name: str, names: Collection[str]) -> list[str]:
    begins, ends, length = name[:4], name[-4:], len(name)
    likely = [
        other
        for other in names
        if abs(len(other) - length) <= 3 and (other.startswith(begins) or other.endswith(ends))
    ]
    return likely[:_MOST_COMPARED]


_SWEEP_KEYS = frozenset(
    {"parameters", "parameter_mode", "use_parameters", "parameters_file", "use_parameters_file"}
)
_ANY_NAME = re.compile(".*", re.DOTALL)


class Unread:
    """Unreadable parts of a file. `paths`: positions with their content. An entry whose index is not a number
    is an additional entry of its section elsewhere."""

    def __init__(self, paths: Mapping[Path, Any] | None = None) -> None:
        self._paths = paths or {}
        self._names: dict[str, list[re.Pattern[str]]] = {}
        for path, raw in self._paths.items():
            if len(path) <= 2 or (len(path) == 3 and path[2] == "name"):
                self._names.setdefault(str(path[0]), []).append(_name_pattern(raw if len(path) > 1 else None))

    def hides(self, path: Path) -> bool:
        """Returns whether something at or around this position is unreadable."""
        return bool(self._paths) and any(path[:length] in self._paths for length in range(1, len(path) + 1))

    def names_in(self, section: str) -> list[re.Pattern[str]]:
        """Returns patterns of missing names in a section."""
        return self._names.get(section, [])

    def may_have(self, section: str, name: str) -> bool:
        return any(pattern.fullmatch(name) for pattern in self.names_in(section))

    def makes_unclear(self, entry: JobSpec | FileSpec | UserDataSpec | DatasetSpec, path: Path) -> bool:
        """Returns whether the repetitions of an entry are unknown."""
        if not self._paths:
            return False
        shared = [("parameters", name) for name in entry.use_parameters or ()]
        if shared and any(self.hides(one) for one in shared):
            return True
        if entry.use_parameters_file and self.hides(("parameters_file",)):
            return True
        return path in self._unclear or any(start in entry.name for start in self._placeholders)

    @cached_property
    def _unclear(self) -> frozenset[Path]:
        return frozenset(path[:2] for path in self._paths if len(path) > 2 and path[2] in _SWEEP_KEYS)

    @cached_property
    def _placeholders(self) -> list[str]:
        """Returns prefixes of placeholders of variables with unknown values."""
        return [
            "{" + str(path[1]) if len(path) > 1 else "{" for path in self._paths if path[0] == "variables"
        ]

    @cached_property
    def shared_parameters(self) -> list[str]:
        """Returns names of parameters with unknown values."""
        return [str(path[1]) for path in self._paths if len(path) == 2 and path[0] == "parameters"]

    @cached_property
    def has_variables(self) -> bool:
        return any(path[0] == "variables" for path in self._paths)

    @cached_property
    def has_parameters(self) -> bool:
        """Returns whether parameters or variables are unreadable."""
        return self.has_variables or any(
            path[0] == "parameters" or len(path) == 2 or path[2:3] == ("parameters",) for path in self._paths
        )


NOTHING_UNREAD = Unread()


def _name_pattern(raw: Any) -> re.Pattern[str]:
    name = raw.get("name") if isinstance(raw, dict) else raw
    return pattern_of(name) if isinstance(name, str) and name.strip() else _ANY_NAME
