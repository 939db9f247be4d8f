"""Warnings about a workflow file that can be run: keys that are read and change nothing, and unknown keys in
sections that tolerate them. One warning for each key, at its first position, however many entries set it."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from msgspec import Struct

from joblens.spec.formats.positions import Path
from joblens.spec.keys.table import Key, NoEffect, Section
from joblens.spec.keys.unknown import unknown_key, where_of
from joblens.spec.keys.workflow import SECTIONS


class SpecWarning(Struct, frozen=True):
    """`engines`: the engines of runs that it concerns; (): all."""

    path: Path
    message: str
    engines: tuple[str, ...] = ()


def find_key_warnings(value: Any) -> list[SpecWarning]:
    """Returns the warnings for the content of a workflow file that has no mistakes, in its order."""
    found: dict[tuple[str, str], SpecWarning] = {}
    more: dict[tuple[str, str], int] = {}
    for key, warning in _walk(SECTIONS["workflow"], value, ()):
        if key in found:
            more[key] = more.get(key, 0) + 1
        else:
            found[key] = warning
    return [_with_count(warning, more.get(key, 0)) for key, warning in found.items()]


def _with_count(warning: SpecWarning, more: int) -> SpecWarning:
    if not more:
        return warning
    return SpecWarning(warning.path, f"{warning.message} (and {more:,} more like it)", warning.engines)


def _walk(section: Section, raw: Any, path: Path) -> Iterator[tuple[tuple[str, str], SpecWarning]]:
    """Yields each with the section and key it is about."""
    watched = _watched(section.name)
    if section.warns_of_unknown:
        for name in raw:
            if name not in section.keys and not section.is_free(name):
                message = f"{unknown_key(section, name, raw)}; it is ignored"
                yield (section.name, name), SpecWarning((*path, name), message)
    for name, value in raw.items():
        key = watched.get(name)
        if key is None:
            continue
        if key.warns_elsewhere and key.is_written(value) and (other := _missed(section, key, raw)):
            message = f"{name}{where_of(section, raw)} has no effect with {other}"
            yield (section.name, f"{name} {other}"), SpecWarning((*path, name), message)
        elif key.no_effect is not None and key.no_effect.covers(value):
            message = f"{name}{where_of(section, raw)}{_in_words(key.no_effect, value)}"
            yield (section.name, name), SpecWarning((*path, name), message, key.no_effect.engines)
        elif key.section and isinstance(value, list):
            inner = SECTIONS[key.section]
            for place, entry in enumerate(value):
                if inner.warns_of_unknown or not _watched(inner.name).keys().isdisjoint(entry):
                    yield from _walk(inner, entry, (*path, name, place))
        elif key.section and isinstance(value, dict):
            yield from _walk(SECTIONS[key.section], value, (*path, name))


def _missed(section: Section, key: Key, raw: dict[str, Any]) -> str:
    """The other key and its value, where that is none with which this one has an effect."""
    assert key.only_with is not None
    name, values = key.only_with
    given = raw.get(name) if raw.get(name) is not None else section.keys[name].default
    return "" if given in values else f"{name} {given}"


def _in_words(no_effect: NoEffect, value: Any) -> str:
    said = f": '{value}'" if no_effect.only else ""
    engine = " with this engine" if no_effect.engines else ""
    return f"{said} has no effect{engine}: {no_effect.why}"


@cache
def _watched(section_name: str) -> dict[str, Key]:
    """Keys that may lead to a warning: the walk passes over everything else of a file with many jobs."""
    return {
        name: key
        for name, key in SECTIONS[section_name].keys.items()
        if key.no_effect is not None or key.warns_elsewhere or (key.section and _may_warn(key.section))
    }


def _may_warn(section_name: str) -> bool:
    return SECTIONS[section_name].warns_of_unknown or bool(_watched(section_name))
