"""A text column with some of its bytes replaced."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from joblens.data.texts.bits import BLOCK
from joblens.data.texts.text_view import CharacterClasses, Text, character_sizes, code_points, text_array


def spliced(text: Text, starts: Any, ends: Any, replacements: Sequence[bytes]) -> Any:
    """The column with data[starts[i]:ends[i]] replaced: pieces that are in order, do not touch one another's
    bytes, are not empty and each lie in one row."""
    content = memoryview(text.data)
    pieces: list[bytes | memoryview] = []
    place = 0
    for start, end, replacement in zip(starts.tolist(), ends.tolist(), replacements, strict=True):
        pieces.append(content[place:start])
        pieces.append(replacement)
        place = end
    pieces.append(content[place:])
    growth = np.zeros(len(starts) + 1, np.int64)
    lengths = np.fromiter(map(len, replacements), np.int64, len(replacements))
    np.cumsum(lengths - (ends - starts), out=growth[1:])
    offsets = text.offsets + growth[np.searchsorted(starts, text.offsets, side="left")]
    return text_array(b"".join(pieces), offsets)


class CharacterReplacer:
    """Replaces single characters by texts that are no longer than they are, in bytes."""

    def __init__(self, replacements: dict[str, str]) -> None:
        self._texts = sorted(set(replacements.values()))
        numbers = {text: number for number, text in enumerate(self._texts, 1)}
        classes = {old: numbers[new] for old, new in replacements.items()}
        self._classes = CharacterClasses(lambda character: classes.get(character, 0))
        self._ascii = [
            (ord(old), ord(new)) for old, new in replacements.items() if old.isascii() and old != new
        ]

    def replaced(self, text: Text) -> Any:
        """The column; the same array when there is nothing to replace."""
        ascii_places = [(np.flatnonzero(text.data == old), new) for old, new in self._ascii]
        leads, classes = self._others(text)
        if not len(leads) and not any(len(places) for places, _ in ascii_places):
            return text.array
        data = text.data.copy()
        for places, new in ascii_places:
            data[places] = new
        if not len(leads):
            return text_array(data, text.offsets)
        return self._shortened(text, data, leads, classes)

    def _others(self, text: Text) -> tuple[Any, Any]:
        """Where characters to be replaced begin that are not ASCII, and the number of what replaces each."""
        found = [(np.zeros(0, np.int64), np.zeros(0, np.uint8))]
        if not text.is_ascii:
            for start in range(0, text.size, BLOCK):
                leads = np.flatnonzero(text.data[start : start + BLOCK] >= 0xC0) + start
                classes = self._classes.of(code_points(text.data, leads))
                found.append((leads[classes > 0], classes[classes > 0]))
        return np.concatenate([leads for leads, _ in found]), np.concatenate([these for _, these in found])

    def _shortened(self, text: Text, data: Any, leads: Any, classes: Any) -> Any:
        sizes = character_sizes(data[leads])
        lengths = np.array([0, *(len(new.encode()) for new in self._texts)])[classes]
        keep = np.ones(text.size, bool)
        for step in range(4):
            keep[leads[(lengths <= step) & (step < sizes)] + step] = False
        for number, new in enumerate(self._texts, 1):
            places = leads[classes == number]
            for step, byte in enumerate(new.encode()):
                data[places + step] = byte
        lost = np.zeros(len(leads) + 1, np.int64)
        np.cumsum(sizes - lengths, out=lost[1:])
        return text_array(data[keep], text.offsets - lost[np.searchsorted(leads, text.offsets, side="left")])
