"""What is wrong with a workflow, gathered: one problem a place, however many jobs one entry stands for."""

from collections.abc import Collection, Iterable

from msgspec import Struct

Path = tuple[str | int, ...]

# Comparing a word with very many names takes longer than the help is worth.
_MOST_COMPARED = 2000
_MOST_HINTS = 500
_FEW = 6


class PlanProblem(Struct, frozen=True):
    """`path` leads to the place in the spec's document, as its keys are written there."""

    path: Path
    message: str


class Problems:
    """A sweep repeats the same mistake in each of its jobs: told once, with how often. `part` tells several
    mistakes at one place apart."""

    def __init__(self) -> None:
        self.warnings: dict[Path, str] = {}
        self._first: dict[tuple[Path, str | int], str] = {}
        self._more: dict[tuple[Path, str | int], int] = {}

    def note(self, path: Path, message: str, part: str | int = "") -> None:
        if self._is_new(path, part):
            self._first[path, part] = message

    def warn(self, path: Path, message: str) -> None:
        """Something that is no mistake and may not have been meant: once for each path."""
        self.warnings.setdefault(path, message)

    def unknown(self, path: Path, kind: str, name: str, known: Collection[str], part: str | int = "") -> None:
        """A name that stands for nothing, with the one that was probably meant."""
        if self._is_new(path, part):
            hint = did_you_mean(name, known) if len(self._first) < _MOST_HINTS else ""
            self._first[path, part] = f"there is no {kind} '{name}'{hint}"

    def all(self) -> tuple[PlanProblem, ...]:
        return tuple(
            PlanProblem(key[0], message + self._how_many_more(key)) for key, message in self._first.items()
        )

    def _is_new(self, path: Path, part: str | int) -> bool:
        """Whether a message is still wanted; counts what is not. Finding the nearest name takes a while."""
        key = (path, part)
        if key not in self._first:
            return True
        self._more[key] = self._more.get(key, 0) + 1
        return False

    def _how_many_more(self, key: tuple[Path, str | int]) -> str:
        more = self._more.get(key, 0)
        return f" (and {more:,} more like it from this entry)" if more else ""


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
