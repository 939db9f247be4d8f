"""Names and their places, and which of them a regex finds, without trying each regex on every name.

A sweep writes one regex a job: a hundred thousand regexes on a hundred thousand names. Each is narrowed first
by what any match must begin with, end with or contain."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence

from msgspec import Struct

from joblens.plan.commands.alternations import branches_of
from joblens.plan.commands.regex_search import search_of

_LITERAL = re.compile(r"[\w /:@#%&~,;<>='\"!-]")
_GRAM = 3
# Below this many regexes the index of fragments costs more than it saves.
_WORTH_AN_INDEX = 30
_MANY = 500
_AFTER_ANY = "\U0010ffff"


class Literals(Struct, frozen=True):
    """What every match of a regex has: texts inside, the first at the beginning or the last at the end."""

    runs: tuple[str, ...]
    at_start: bool = False
    at_end: bool = False
    is_all: bool = False  # nothing but one text and anchors


def literals_of(pattern: str) -> Literals:
    """Only what is certain; a regex too clever for this has none, and is tried on every name."""
    if "(?" in pattern.replace("(?:", ""):
        return Literals(())
    at_start, at_end = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$")
    body = pattern[int(at_start) : len(pattern) - int(at_end)]
    runs, is_plain = _runs(body)
    if not runs:
        return Literals(())
    is_all = is_plain and len(runs) == 1
    return Literals(
        tuple(run for run in runs if run),
        at_start=at_start and bool(runs[0]),
        at_end=at_end and bool(runs[-1]),
        is_all=is_all and bool(runs[0]),
    )


def _runs(body: str) -> tuple[list[str], bool]:
    """Literal texts in order ('' where something else stands at an end); whether there is nothing else. None
    at all: it has alternatives, of which no text is certain."""
    runs, place, depth, is_plain = [""], 0, 0, True
    while place < len(body):
        character = body[place]
        following = body[place + 1 : place + 2]
        width, literal = 1, ""
        if character == "\\" and following and not following.isalnum():
            width, literal = 2, following
        elif character == "[":
            width = _class_width(body, place)
        elif character == "\\":
            width = 2
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "|" and not depth:
            return [], False
        elif _LITERAL.match(character):
            literal = character
        after = body[place + width : place + width + 1]
        if literal and not depth and after not in ("*", "?", "{", "+"):
            runs[-1] += literal
        else:
            is_plain = False
            runs.append("")
        place += width
    return runs, is_plain


def _class_width(body: str, place: int) -> int:
    end = place + 1
    if body[end : end + 1] == "^":
        end += 1
    end += 1  # a bracket that comes first is one of the characters
    while end < len(body) and body[end] != "]":
        end += 2 if body[end] == "\\" else 1
    return end - place + 1


class NameIndex:
    """Names by place. A name that stands twice keeps its first place."""

    def __init__(self, names: list[str], not_made: Sequence[re.Pattern[str]] = ()) -> None:
        """`not_made`: what names look like that would be here if their entries could have been expanded."""
        self.names = names
        self._not_made = not_made
        self.places: dict[str, int] = {}
        for place, name in enumerate(names):
            self.places.setdefault(name, place)
        self._found: dict[str, tuple[int, ...]] = {}
        self._sorted: list[tuple[str, int]] | None = None
        self._reversed: list[tuple[str, int]] | None = None
        self._grams: dict[str, list[int]] | None = None
        self._scans = 0

    @property
    def is_complete(self) -> bool:
        return not self._not_made

    def might_have(self, name: str) -> bool:
        return any(pattern.fullmatch(name) for pattern in self._not_made)

    def matching(self, pattern: str) -> tuple[int, ...]:
        """Places of the names in which the regex is found, ascending. re.error: it is no regex."""
        found = self._found.get(pattern)
        if found is None:
            found = self._found[pattern] = self._search(pattern)
        return found

    def _search(self, pattern: str) -> tuple[int, ...]:
        branches = branches_of(pattern)
        if branches == [pattern]:
            return self._search_one(pattern)
        try:
            found = [self._search_one(branch) for branch in dict.fromkeys(branches)]
        except re.error:
            return self._search_one(pattern)  # what is wrong with it is told of the whole
        return found[0] if len(found) == 1 else tuple(sorted(set().union(*found)))

    def _search_one(self, pattern: str) -> tuple[int, ...]:
        literals = literals_of(pattern)
        if literals.is_all and literals.at_start and literals.at_end:
            place = self.places.get(literals.runs[0])
            return () if place is None else (place,)
        search = _plain_search(literals) if literals.is_all else search_of(pattern)
        candidates = self._candidates(literals)
        if candidates is None:
            return tuple(place for place, name in enumerate(self.names) if search(name))
        return tuple(sorted(place for place in candidates if search(self.names[place])))

    def _candidates(self, literals: Literals) -> list[int] | None:
        """The fewest that can be told without the regex. None: all of them."""
        ranges = []
        if literals.at_start:
            if self._sorted is None:
                self._sorted = sorted((name, place) for place, name in enumerate(self.names))
            ranges.append(_beginning_with(self._sorted, literals.runs[0]))
        if literals.at_end:
            if self._reversed is None:
                self._reversed = sorted((name[::-1], place) for place, name in enumerate(self.names))
            ranges.append(_beginning_with(self._reversed, literals.runs[-1][::-1]))
        fewest = min(ranges, key=_Range.size, default=None)
        if fewest is None or fewest.size() > _MANY:
            containing = self._containing(literals)
            if containing is not None and (fewest is None or len(containing) < fewest.size()):
                return containing
        return None if fewest is None else fewest.places()

    def _containing(self, literals: Literals) -> list[int] | None:
        self._scans += 1
        if self._scans < _WORTH_AN_INDEX or all(len(run) < _GRAM for run in literals.runs):
            return None
        if self._grams is None:
            self._grams = _grams_of(self.names)
        grams = self._grams
        pieces = (run[at : at + _GRAM] for run in literals.runs for at in range(len(run) - _GRAM + 1))
        return min((grams.get(piece, []) for piece in pieces), key=len)


def _plain_search(literals: Literals) -> Callable[[str], object]:
    """Compiling a regex costs more than all the rest when each job has one of its own."""
    text = literals.runs[0]
    if literals.at_start:
        return lambda name: name.startswith(text)
    if literals.at_end:
        return lambda name: name.endswith(text)
    return lambda name: text in name


class _Range(Struct, frozen=True):
    """A part of an ordered list, not yet taken out of it."""

    ordered: list[tuple[str, int]]
    first: int
    end: int

    def size(self) -> int:
        return self.end - self.first

    def places(self) -> list[int]:
        return [place for _, place in self.ordered[self.first : self.end]]


def _beginning_with(ordered: list[tuple[str, int]], text: str) -> _Range:
    return _Range(ordered, bisect_left(ordered, (text, -1)), bisect_left(ordered, (text + _AFTER_ANY, -1)))


def _grams_of(names: list[str]) -> dict[str, list[int]]:
    grams: defaultdict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        for gram in {name[at : at + _GRAM] for at in range(len(name) - _GRAM + 1)}:
            grams[gram].append(place)
    return dict(grams)
