"""Whether a regex is found in a name, in a time that grows with the length of both and no faster.

`re` tries the ways in which a pattern can match one after the other: `(a+)+$` has more of them in a name of
40 characters than a computer can try. Patterns with repeats inside repeats, or with many of them, are
followed in all ways at once instead (as a nondeterministic automaton). Nearly all patterns go to `re`."""

import functools
import importlib
import re
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, field

_constants: Any = importlib.import_module("re._constants")
_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")

_FEW = 3  # repeats beside each other: their ways multiply, but names are short
_MANY_TIMES = 10  # a repeat with a smaller bound adds few ways
_MOST_STATES = 20_000

_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
_CHARACTERS = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN)
_TESTS = (_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT)

Search = Callable[[str], object]


def search_of(pattern: str) -> Search:
    """Raises re.error for what is no regex, and for what can neither be followed nor left to `re`."""
    plain = re.compile(pattern)
    parsed = _parser.parse(pattern)
    if not _may_take_long(parsed):
        return plain.search
    return _Automaton(parsed).is_found


def _may_take_long(items: Iterable[Any]) -> bool:
    counts = list(_depths(items, 0))
    return len(counts) > _FEW or max(counts, default=0) > 1


def _depths(items: Iterable[Any], depth: int) -> Iterable[int]:
    """Of every repeat, and of everything inside one that can match in several ways, how deep it is."""
    for operation, value in items:
        inner = depth
        is_repeat = operation in _REPEATS and value[1] > _MANY_TIMES
        if is_repeat or (depth and operation in (*_REPEATS, _constants.BRANCH)):
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
    """`takes`: a test of the next character; `holds`: of the place; neither: a way on. No `nexts`: found."""

    nexts: list[int] = field(default_factory=list)
    takes: Callable[[str], bool] | None = None
    holds: Callable[[str, int], object] | None = None


class _Automaton:
    def __init__(self, parsed: Any) -> None:
        self._states = [_State()]
        self._start = self._sequence(parsed, parsed.state.flags, 0)

    def is_found(self, text: str) -> bool:
        current: set[int] = set()
        for place in range(len(text) + 1):
            reached = self._reached({*current, self._start}, text, place)
            if 0 in reached:
                return True
            if place < len(text):
                letter = text[place]
                states = (self._states[each] for each in reached)
                current = {state.nexts[0] for state in states if state.takes and state.takes(letter)}
        return False

    def _reached(self, begin: set[int], text: str, place: int) -> set[int]:
        """Without taking a character."""
        reached: set[int] = set()
        waiting = list(begin)
        while waiting:
            number = waiting.pop()
            state = self._states[number]
            if number in reached or (state.holds is not None and not state.holds(text, place)):
                continue
            reached.add(number)
            if state.takes is None:
                waiting += state.nexts
        return reached

    # ---- built from its end ----------------------------------------------------------------------------

    def _add(self, state: _State) -> int:
        if len(self._states) == _MOST_STATES:
            raise re.error("it repeats too much, too often")
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
        if operation in _REPEATS:
            return self._repeat(value, flags, then)
        raise re.error("repeats inside repeats beside something that looks back or ahead may never end")

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
    """One item by itself."""
    state = _parser.State()
    state.flags = flags
    found: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, [(operation, value)]), flags)
    return found
