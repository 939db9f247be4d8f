"""Readers for whole sections of a workflow file, made from the tables of keys.

A section is read to its end whatever is wrong in it, so that all problems of a file are told at once. Paths
and messages are only put together for what is wrong: a file may have a hundred thousand jobs."""

from collections.abc import Callable, Mapping
from typing import Any

from joblens.spec.formats.positions import Path
from joblens.spec.formats.words import any_of
from joblens.spec.keys.kinds import Kind, Note, Wrong, expected
from joblens.spec.keys.readers import Reader, reader_of
from joblens.spec.keys.table import Key, Section
from joblens.spec.keys.unknown import meant_key, unknown_key, where_of


class SectionReader:
    """Reads a mapping by the table of its keys. `make` gets the values by their fields."""

    def __init__(
        self, section: Section, make: Callable[[dict[str, Any]], Any], inside: Mapping[str, Reader]
    ) -> None:
        self._section = section
        self._make = make
        self._entries = {
            name: (key.target, reader_of(key, inside), key.is_required) for name, key in section.keys.items()
        }
        self._required = frozenset(name for name, key in section.keys.items() if key.is_required)
        self._excludes = [(name, frozenset(others)) for name, others in section.excludes]
        self._conditional = [
            key for key in section.keys.values() if key.only_with and not key.warns_elsewhere
        ]
        self._is_free = section.is_free

    def __call__(self, raw: Any) -> Any:
        if type(raw) is not dict:
            expected(Kind.SECTION, raw)
        values: dict[str, Any] = {}
        problems: list[Note] = []
        entries = self._entries
        for name, given in raw.items():
            entry = entries.get(name)
            if entry is None:
                if self._is_free(name) or self._section.warns_of_unknown:
                    continue  # spec.key_warnings reports the latter
                problems.append(((name,), unknown_key(self._section, name, raw)))
                continue
            field, read, is_required = entry
            if given is None and not is_required:
                continue
            try:
                value = read(given)
            except Wrong as wrong:
                problems += self._named(wrong, name, raw)
                continue
            if field in values:
                problems.append(((name,), self._stands_twice(name, raw)))
            values[field] = value
        if not self._required <= raw.keys():
            problems += self._missing(raw)
        problems += self._together(raw)
        if problems:
            raise Wrong([], problems)
        return self._make(values)

    def _named(self, wrong: Wrong, name: str, raw: dict[str, Any]) -> list[Note]:
        where = where_of(self._section, raw)
        named = [((name, *path), f"{_subject(name, path)}{where} {text}") for path, text in wrong.notes]
        return [*named, *(((name, *path), text) for path, text in wrong.finished)]

    def _missing(self, raw: dict[str, Any]) -> list[Note]:
        """A key that was only misspelt is told as such and not missed."""
        section = self._section
        misspelt = {meant_key(section.name, name) for name in raw if name not in section.keys}
        whose = where_of(section, raw).removeprefix(" in ") or section.title
        missing = [name for name in section.keys if name in self._required - raw.keys() - misspelt]
        return [((), f"{whose} has no '{name}'") for name in missing]

    def _misspelt(self, raw: dict[str, Any], needed: tuple[str, ...]) -> list[str]:
        """Words that stand there for one of those."""
        unknown = [name for name in raw if name not in self._section.keys]
        return [name for name in unknown if meant_key(self._section.name, name) in needed]

    def _stands_twice(self, name: str, raw: dict[str, Any]) -> str:
        target = self._entries[name][0]
        other = next(one for one in raw if one != name and self._entries.get(one, ("",))[0] == target)
        return f"{name}{where_of(self._section, raw)} says the same as {other}; write only one of them"

    def _together(self, raw: dict[str, Any]) -> list[Note]:
        """What is wrong between keys."""
        problems: list[Note] = []
        for name, others in self._excludes:
            if name in raw and not others.isdisjoint(raw) and _is_set(raw[name]):
                clash = [other for other in raw if other in others and _is_set(raw[other])]
                where = where_of(self._section, raw)
                problems += [((other,), f"{other}{where} cannot stand beside {name}") for other in clash]
        for key in self._conditional:
            if key.is_written(raw.get(key.name)):
                problems += self._misplaced(key, raw)
        for need in self._section.needs:
            if raw.get(need.key) in need.values and not any(_is_set(raw.get(name)) for name in need.any_of):
                where = where_of(self._section, raw)
                text = f"{need.key} {raw[need.key]}{where} needs {_quoted(need.any_of)} beside it"
                problems.append(((need.key,), text))
        needed = self._section.needs_any
        if needed and not any(_is_set(raw.get(name)) for name in (*needed, *self._misspelt(raw, needed))):
            problems.append(((), f"{self._section.title} needs {_quoted(needed)}"))
        return problems

    def _misplaced(self, key: Key, raw: dict[str, Any]) -> list[Note]:
        assert key.only_with is not None
        name, values = key.only_with
        other = self._section.keys[name]
        given = other.default if raw.get(name) is None else raw[name]
        if given not in other.choices or given in values:
            return []
        where = where_of(self._section, raw)
        return [((key.name,), f"{key.name}{where} goes with {name} {any_of(values)}, not {given}")]


def _quoted(names: tuple[str, ...]) -> str:
    return any_of([f"'{name}'" for name in names])


def _is_set(value: Any) -> bool:
    return value is not None and value is not False and value != []


def _subject(name: str, path: Path) -> str:
    for step in path:
        name = f"item {step + 1} of {name}" if isinstance(step, int) else f"{name}.{step}"
    return name
