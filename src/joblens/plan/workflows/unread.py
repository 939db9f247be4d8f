"""What of a workflow's file could not be read, so that nothing is told that may only follow from it."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from joblens.model.runs.workflow_spec import DatasetSpec, FileSpec, JobSpec, UserDataSpec
from joblens.plan.commands.substitution import pattern_of
from joblens.plan.workflows.problems import Path

_SWEEP_KEYS = frozenset(
    {"parameters", "parameter_mode", "use_parameters", "parameters_file", "use_parameters_file"}
)
_ANY_NAME = re.compile(".*", re.DOTALL)


class Unread:
    """`paths`: places in the file, each with what stands there. An entry whose index is no number is one more
    of its section that stands elsewhere."""

    def __init__(self, paths: Mapping[Path, Any] | None = None) -> None:
        self._paths = paths or {}
        self._names: dict[str, list[re.Pattern[str]]] = {}
        for path, raw in self._paths.items():
            if len(path) <= 2 or (len(path) == 3 and path[2] == "name"):
                self._names.setdefault(str(path[0]), []).append(_name_pattern(raw if len(path) > 1 else None))

    def hides(self, path: Path) -> bool:
        """Whether something at or around this place was not read."""
        return bool(self._paths) and any(path[:length] in self._paths for length in range(1, len(path) + 1))

    def names_in(self, section: str) -> list[re.Pattern[str]]:
        """What names look like that are missing in a section."""
        return self._names.get(section, [])

    def may_have(self, section: str, name: str) -> bool:
        return any(pattern.fullmatch(name) for pattern in self.names_in(section))

    def makes_unclear(self, entry: JobSpec | FileSpec | UserDataSpec | DatasetSpec, path: Path) -> bool:
        """Whether it is not known what an entry is repeated for."""
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
        """How those of variables begin whose texts are not known."""
        return [
            "{" + str(path[1]) if len(path) > 1 else "{" for path in self._paths if path[0] == "variables"
        ]

    @cached_property
    def shared_parameters(self) -> list[str]:
        """Names of those whose values are not known."""
        return [str(path[1]) for path in self._paths if len(path) == 2 and path[0] == "parameters"]

    @cached_property
    def has_variables(self) -> bool:
        return any(path[0] == "variables" for path in self._paths)

    @cached_property
    def has_parameters(self) -> bool:
        """Or variables: something by whose name a value may be given."""
        return self.has_variables or any(
            path[0] == "parameters" or len(path) == 2 or path[2:3] == ("parameters",) for path in self._paths
        )


NOTHING_UNREAD = Unread()


def _name_pattern(raw: Any) -> re.Pattern[str]:
    name = raw.get("name") if isinstance(raw, dict) else raw
    return pattern_of(name) if isinstance(name, str) and name.strip() else _ANY_NAME
