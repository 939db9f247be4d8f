"""What the YAML parser finds wrong, in words that say what to do about it."""

from typing import Any

from joblens.spec.formats.positions import Mark, Problem

_INDENTED = "; this line may be indented wrongly"
# What the parser says, and what is said instead.
_WORDS = {
    "mapping values are not allowed in this context": (
        "a ':' cannot stand here; the line may be indented wrongly, or the text needs quotes"
    ),
    "did not find expected '-' indicator": "expected another '-' of the list{begun}" + _INDENTED,
    "did not find expected key": "expected a key of the mapping{begun}" + _INDENTED,
    "could not find expected ':'": "expected ':' after a key",
    "did not find expected ',' or ']'": "expected ',' or ']' in the list{begun}",
    "did not find expected ',' or '}'": "expected ',' or '}}' in the mapping{begun}",
    "did not find expected node content": "expected a value",
    "did not find expected comment or line break": "expected the end of the line",
}


def yaml_mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def syntax_problem(error: Any, text: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:  # a character that YAML does not have, by its place in the text
        return _bad_character(text, getattr(error, "reason", None) or str(error))
    place, begun = yaml_mark(mark), getattr(error, "context_mark", None)
    said = getattr(error, "problem", None) or str(error)
    context = getattr(error, "context", None) or ""
    if "quoted scalar" in context and begun is not None:
        return Problem(yaml_mark(begun), "not valid YAML: the quoted text that begins here is never closed")
    if said.startswith("found character that cannot start"):
        return Problem(place, f"not valid YAML: {_cannot_start(_character_at(text, place))}")
    words = _WORDS.get(said)
    if words is None:
        return Problem(place, f"not valid YAML: {said}" + (f" ({context})" if context else ""))
    where = f" that begins on line {begun.line + 1}" if begun is not None else ""
    return Problem(place, f"not valid YAML: {words.format(begun=where)}")


def _cannot_start(character: str) -> str:
    if character == "\t":
        return "a tab cannot indent a line; use spaces"
    return f"a text that begins with '{character}' needs quotes"


def _character_at(text: str, place: Mark) -> str:
    lines = text.splitlines()
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    return line[place.column - 1 : place.column]


def _bad_character(text: str, reason: str) -> Problem:
    from joblens.spec.formats.positions import LineTable

    for offset, character in enumerate(text):
        if not character.isprintable() and (character < " " or "\x7f" <= character < "\xa0"):
            if character in "\t\n\r\x85":
                continue
            message = f"not valid YAML: the control character {character!r} is not allowed"
            return Problem(LineTable(text).mark(offset), message)
    return Problem(Mark(1, 1), f"not valid YAML: {reason}")
