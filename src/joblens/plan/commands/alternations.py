"""A regex with alternatives as several without: `(pre|x)_7$` finds what `pre_7$` or `x_7$` finds.

Each of those has a text that every match must have, and names can be looked up by it."""

import re

MOST_BRANCHES = 16

# Counted repetitions are taken whole: `x{(1|2)}` has none, and what comes of it would.
_PIECE = re.compile(
    r"\\[^0-9xuUN]|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|\(\?:|(?P<clever>\\[0-9xuUN]|\(\?|[{\[\\])|.",
    re.DOTALL,
)
_REPEATS = frozenset("*+?{")


class _TooClever(Exception):
    pass


def branches_of(pattern: str) -> list[str]:
    """Regexes of which one or another is found wherever the pattern is. The pattern itself when it has no
    alternatives, too many, or is too clever."""
    if "|" not in pattern and "(" not in pattern:
        return [pattern]
    try:
        pieces = _pieces(pattern)
        branches, end = _alternatives(pieces, 0)
    except _TooClever:
        return [pattern]
    return branches if end == len(pieces) else [pattern]


def _pieces(pattern: str) -> list[str]:
    pieces = []
    for found in _PIECE.finditer(pattern):
        if found["clever"]:
            raise _TooClever
        pieces.append(found[0])
    return pieces


def _alternatives(pieces: list[str], at: int) -> tuple[list[str], int]:
    """Up to the end or the bracket that closes the group, which is not taken."""
    done: list[str] = []
    current, is_first = [""], True
    while at < len(pieces) and pieces[at] != ")":
        piece = pieces[at]
        if is_first and piece[0] in _REPEATS:
            raise _TooClever  # it has nothing to repeat: what stands before the group is not meant
        is_first = piece == "|"
        if piece == "|":
            done, current = done + current, [""]
        elif piece in ("(", "(?:"):
            inner, at = _group(pieces, at + 1)
            current = [before + each for before in current for each in inner]
        else:
            current = [before + piece for before in current]
        if len(done) + len(current) > MOST_BRANCHES:
            raise _TooClever
        at += 1
    return done + current, at


def _group(pieces: list[str], at: int) -> tuple[list[str], int]:
    inner, end = _alternatives(pieces, at)
    following = pieces[end + 1 : end + 2]
    if end == len(pieces) or (following and following[0][0] in _REPEATS):
        raise _TooClever
    return inner, end
