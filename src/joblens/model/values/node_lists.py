"""Names of a cluster's nodes as Slurm writes many of them: n[1-3,07],gpu-[01-02]x."""

import itertools
import re

from joblens.model.errors import InputError

_MOST_NODES = 100_000
_PARTS = re.compile(r"\[([^\]]*)\]")


def expand_node_list(text: str) -> tuple[str, ...]:
    """Raises InputError for what cannot be read."""
    names: list[str] = []
    for word in _words(text):
        names += _expanded(word, text)
        if len(names) > _MOST_NODES:
            raise InputError(f"'{text}' names more than {_MOST_NODES} nodes")
    return tuple(names)


def _words(text: str) -> list[str]:
    """At commas that stand outside of brackets."""
    words, depth, word = [], 0, ""
    for character in text.strip():
        depth += (character == "[") - (character == "]")
        if character == "," and not depth:
            words.append(word)
            word = ""
        else:
            word += character
    if depth:
        raise InputError(f"a bracket is missing in the list of nodes '{text}'")
    return [word for word in (*words, word) if word]


def _expanded(word: str, text: str) -> list[str]:
    # Odd ones are what stood in brackets.
    pieces = [
        _numbers(piece, text) if index % 2 else [piece] for index, piece in enumerate(_PARTS.split(word))
    ]
    return ["".join(chosen) for chosen in itertools.islice(itertools.product(*pieces), _MOST_NODES + 1)]


def _numbers(ranges: str, text: str) -> list[str]:
    numbers: list[str] = []
    for one in ranges.split(","):
        first, _, last = one.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal()) or int(last) - int(first) > _MOST_NODES:
            raise InputError(f"'{one}' is no range of numbers in the list of nodes '{text}'")
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return numbers
