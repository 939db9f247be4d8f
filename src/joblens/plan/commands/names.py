"""Name index: finds the names that match a regular expression, in linear time and without trying each regex
on every name.
A sweep may have one regex per job: a hundred thousand regexes on a hundred thousand names. Names are first
looked up by a literal prefix, suffix or substring of the regex.
`re` backtracks: `(a+)+$` takes exponential time on a name of 40 characters. Patterns with nested or many
repeats, which are rare, are matched by a nondeterministic automaton instead.
"""

import functools
import importlib
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct, field

MOST_BRANCHES = 16

# Counted repetitions are atomic: `x{(1|2)}` has none, but its expansion would.
_PIECE = re.compile(
    r"\\[^0-9xuUN]|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|\(\?:|(?P<complex>\\[0-9xuUN]|\(\?|[{\[\\])|.",
    re.DOTALL,
)
_REPEATS = frozenset("*+?{")


class _TooComplex(Exception):
    pass


def branches_of(pattern: str) -> list[str]:
    """Returns regexes, one of which matches wherever the pattern does; only the pattern itself if it has no
    alternatives, too many, or is too complex."""
    if "|" not in pattern and "(" not in pattern:
        return [pattern]
    try:
        pieces = _pieces(pattern)
        branches, end = _alternatives(pieces, 0)
    except _TooComplex:
        return [pattern]
    return branches if end == len(pieces) else [pattern]


def _pieces(pattern: str) -> list[str]:
    pieces = []
    for found in _PIECE.finditer(pattern):
        if found["complex"]:
            raise _TooComplex
        pieces.append(found[0])
    return pieces


def _alternatives(pieces: list[str], at: int) -> tuple[list[str], int]:
    """Reads up to the end, or to the bracket that closes the group, which is not consumed."""
    done: list[str] = []
    current, is_first = [""], True
    while at < len(pieces) and pieces[at] != ")":
        piece = pieces[at]
        if is_first and piece[0] in _REPEATS:
            raise _TooComplex  # it repeats nothing within the group
        is_first = piece == "|"
        if piece == "|":
            done, current = done + current, [""]
        elif piece in ("(", "(?:"):
            inner, at = _group(pieces, at + 1)
            current = [before + each for before in current for each in inner]
        else:
            current = [before + piece for before in current]
        if len(done) + len(current) > MOST_BRANCHES:
            raise _TooComplex
        at += 1
    return done + current, at


def _group(pieces: list[str], at: int) -> tuple[list[str], int]:
    inner, end = _alternatives(pieces, at)
    following = pieces[end + 1 : end + 2]
    if end == len(pieces) or (following and following[0][0] in _REPEATS):
        raise _TooComplex
    return inner, end


_constants: Any = importlib.import_module("re._constants")
_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")

_FEW = 3  # adjacent repeats: alternatives multiply, but names are short
_MANY_TIMES = 10  # a repeat with a smaller bound adds few ways
_MOST_STATES = 20_000

_REGEX_SEARCH_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
_CHARACTERS = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN)
_TESTS = (_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT)

Search = Callable[[str], object]


def search_of(pattern: str) -> Search:
    """Returns a search function. Raises re.error for an invalid regex, or if neither matcher supports it."""
    plain = re.compile(pattern)
    parsed = _parser.parse(pattern)
    if not _may_take_long(parsed):
        return plain.search
    return _Automaton(parsed).is_found


def _may_take_long(items: Iterable[Any]) -> bool:
    counts = list(_depths(items, 0))
    return len(counts) > _FEW or max(counts, default=0) > 1


def _depths(items: Iterable[Any], depth: int) -> Iterable[int]:
    """Yields the depth of every repeat, and of everything inside a repeat that can match in several ways."""
    for operation, value in items:
        inner = depth
        is_repeat = operation in _REGEX_SEARCH_REPEATS and value[1] > _MANY_TIMES
        if is_repeat or (depth and operation in (*_REGEX_SEARCH_REPEATS, _constants.BRANCH)):
            inner += 1
            yield inner
        for sub in _parts(value):
            yield from _depths(sub, inner)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, _parser.SubPattern):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _parts(each)


class _State(Struct):
    """`takes` tests the next character, `holds` the position; neither: epsilon. No `nexts`: accepting."""

    nexts: list[int] = field(default_factory=list)
    takes: Callable[[str], bool] | None = None
    holds: Callable[[str, int], object] | None = None


class _Automaton:
    def __init__(self, parsed: Any) -> None:
        self._states = [_State()]
        self._start = self._sequence(parsed, parsed.state.flags, 0)

    def is_found(self, text: str) -> bool:
        current: set[int] = set()
        for position in range(len(text) + 1):
            reached = self._reached({*current, self._start}, text, position)
            if 0 in reached:
                return True
            if position < len(text):
                letter = text[position]
                states = (self._states[each] for each in reached)
                current = {state.nexts[0] for state in states if state.takes and state.takes(letter)}
        return False

    def _reached(self, begin: set[int], text: str, position: int) -> set[int]:
        """Returns the states reached without consuming a character."""
        reached: set[int] = set()
        waiting = list(begin)
        while waiting:
            number = waiting.pop()
            state = self._states[number]
            if number in reached or (state.holds is not None and not state.holds(text, position)):
                continue
            reached.add(number)
            if state.takes is None:
                waiting += state.nexts
        return reached

    # ---- built from its end ----------------------------------------------------------------------------

    def _add(self, state: _State) -> int:
        if len(self._states) == _MOST_STATES:
            raise re.error("too many repeats")
        self._states.append(state)
        return len(self._states) - 1

    def _sequence(self, items: Iterable[Any], flags: int, then: int) -> int:
        for operation, value in reversed(list(items)):
            then = self._item(operation, value, flags, then)
        return then

    def _item(self, operation: Any, value: Any, flags: int, then: int) -> int:
        if operation in _CHARACTERS:
            match = _compiled(operation, value, flags).match
            takes = functools.lru_cache(maxsize=256)(lambda letter: match(letter) is not None)
            return self._add(_State([then], takes=takes))
        if operation in _TESTS and not any(map(_may_take_long, _parts(value))):
            return self._add(_State([then], holds=_compiled(operation, value, flags).match))
        if operation is _constants.SUBPATTERN:
            _, added, removed, inner = value
            return self._sequence(inner, (flags | added) & ~removed, then)
        if operation is _constants.BRANCH:
            return self._add(_State([self._sequence(branch, flags, then) for branch in value[1]]))
        if operation in _REGEX_SEARCH_REPEATS:
            return self._repeat(value, flags, then)
        raise re.error("nested repeats cannot be combined with look-around or back-references")

    def _repeat(self, value: Any, flags: int, then: int) -> int:
        least, most, inner = value
        if most is _constants.MAXREPEAT:
            loop = self._add(_State([then]))
            self._states[loop].nexts.append(self._sequence(inner, flags, loop))
            then = loop
        else:
            end = then
            for _ in range(most - least):
                then = self._add(_State([end, self._sequence(inner, flags, then)]))
        for _ in range(least):
            then = self._sequence(inner, flags, then)
        return then


def _compiled(operation: Any, value: Any, flags: int) -> re.Pattern[str]:
    """Compiles one item."""
    state = _parser.State()
    state.flags = flags
    found: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, [(operation, value)]), flags)
    return found


_LITERAL = re.compile(r"[\w /:@#%&~,;<>='\"!-]")
_GRAM = 3
# Below this many regexes the index of fragments costs more than it saves.
_WORTH_AN_INDEX = 30
_MANY = 500
_AFTER_ANY = "\U0010ffff"


class Literals(Struct, frozen=True):
    """Literal parts of every match: texts inside, the first at the start or the last at the end."""

    runs: tuple[str, ...]
    at_start: bool = False
    at_end: bool = False
    is_all: bool = False  # only one text and anchors


def literals_of(pattern: str) -> Literals:
    """Returns only certain literals; a complex regex has none and is tried on every name."""
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
    """Returns literal texts in order ('': another element is at an end), and whether the regex has nothing
    else. Empty for alternatives, of which no text is certain."""
    runs, position, depth, is_plain = [""], 0, 0, True
    while position < len(body):
        character = body[position]
        following = body[position + 1 : position + 2]
        width, literal = 1, ""
        if character == "\\" and following and not following.isalnum():
            width, literal = 2, following
        elif character == "[":
            width = _class_width(body, position)
        elif character == "\\":
            width = 2
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "|" and not depth:
            return [], False
        elif _LITERAL.match(character):
            literal = character
        after = body[position + width : position + width + 1]
        if literal and not depth and after not in ("*", "?", "{", "+"):
            runs[-1] += literal
        else:
            is_plain = False
            runs.append("")
        position += width
    return runs, is_plain


def _class_width(body: str, position: int) -> int:
    end = position + 1
    if body[end : end + 1] == "^":
        end += 1
    end += 1  # a leading bracket is an ordinary character
    while end < len(body) and body[end] != "]":
        end += 2 if body[end] == "\\" else 1
    return end - position + 1


class NameIndex:
    """Indexes of names. A duplicate name keeps its first index."""

    def __init__(self, names: list[str], not_made: Sequence[re.Pattern[str]] = ()) -> None:
        """`not_made`: patterns of names whose entries could not be expanded."""
        self.names = names
        self._not_made = not_made
        self.indexes: dict[str, int] = {}
        for position, name in enumerate(names):
            self.indexes.setdefault(name, position)
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
        """Returns the indexes of names in which the regex matches, ascending. Raises re.error."""
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
            return self._search_one(pattern)  # errors are reported for the whole regex
        return found[0] if len(found) == 1 else tuple(sorted(set().union(*found)))

    def _search_one(self, pattern: str) -> tuple[int, ...]:
        literals = literals_of(pattern)
        if literals.is_all and literals.at_start and literals.at_end:
            position = self.indexes.get(literals.runs[0])
            return () if position is None else (position,)
        search = _plain_search(literals) if literals.is_all else search_of(pattern)
        candidates = self._candidates(literals)
        if candidates is None:
            return tuple(position for position, name in enumerate(self.names) if search(name))
        return tuple(sorted(position for position in candidates if search(self.names[position])))

    def _candidates(self, literals: Literals) -> list[int] | None:
        """Returns the smallest set of candidates by literals. None: all names."""
        ranges = []
        if literals.at_start:
            if self._sorted is None:
                self._sorted = sorted((name, position) for position, name in enumerate(self.names))
            ranges.append(_beginning_with(self._sorted, literals.runs[0]))
        if literals.at_end:
            if self._reversed is None:
                self._reversed = sorted((name[::-1], position) for position, name in enumerate(self.names))
            ranges.append(_beginning_with(self._reversed, literals.runs[-1][::-1]))
        fewest = min(ranges, key=_Range.size, default=None)
        if fewest is None or fewest.size() > _MANY:
            containing = self._containing(literals)
            if containing is not None and (fewest is None or len(containing) < fewest.size()):
                return containing
        return None if fewest is None else fewest.indexes()

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
    """Returns a search without a regex: compiling one per job would dominate."""
    text = literals.runs[0]
    if literals.at_start:
        return lambda name: name.startswith(text)
    if literals.at_end:
        return lambda name: name.endswith(text)
    return lambda name: text in name


class _Range(Struct, frozen=True):
    """A slice of a sorted list."""

    ordered: list[tuple[str, int]]
    first: int
    end: int

    def size(self) -> int:
        return self.end - self.first

    def indexes(self) -> list[int]:
        return [position for _, position in self.ordered[self.first : self.end]]


def _beginning_with(ordered: list[tuple[str, int]], text: str) -> _Range:
    return _Range(ordered, bisect_left(ordered, (text, -1)), bisect_left(ordered, (text + _AFTER_ANY, -1)))


def _grams_of(names: list[str]) -> dict[str, list[int]]:
    grams: defaultdict[str, list[int]] = defaultdict(list)
    for position, name in enumerate(names):
        for gram in {name[at : at + _GRAM] for at in range(len(name) - _GRAM + 1)}:
            grams[gram].append(position)
    return dict(grams)
