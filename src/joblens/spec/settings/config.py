"""Configuration parser: setting values from files, environment and options.

Reports all unknown keys, wrong types and duplicate keys of a file at once, with their positions.
"""

import math
import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from joblens.model.errors import InputError
from joblens.model.jobs.probe_choice import chosen_probes
from joblens.model.setting_list import Kind, Setting, all_settings
from joblens.model.values.units import format_bytes, format_duration, parse_duration, parse_size

# A variable of the environment is read without YAML and, if it is right, without words for errors.
if TYPE_CHECKING:
    from joblens.spec.formats.yaml_reader import Document, Path, Problem

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class ConfigReading(Struct, frozen=True):
    """Values that one file sets (by dotted name), their lines, and its problems."""

    values: dict[str, Any]
    lines: dict[str, int]
    problems: tuple[str, ...]


def read_config(text: str, source: str) -> ConfigReading:
    """Parses a file. `source`: its path, for messages; relative paths start at its directory."""
    from joblens.spec.formats.yaml_reader import parse_yaml

    document = parse_yaml(text)
    walk = _Walk(document, os.path.dirname(os.path.abspath(source)))
    walk.section(document.value, "", ())
    found = sorted([*document.problems, *walk.problems], key=lambda one: (one.mark.line, one.mark.column))
    problems = tuple(f"{source}:{one.mark.line}:{one.mark.column}: {one.message}" for one in found)
    return ConfigReading(walk.values, walk.lines, problems)


class _Walk:
    """Walks a document section by section and collects values."""

    def __init__(self, document: "Document", base_dir: str) -> None:
        self.values: dict[str, Any] = {}
        self.lines: dict[str, int] = {}
        self.problems: list[Problem] = []
        self._document = document
        self._base_dir = base_dir

    def section(self, content: Any, prefix: str, path: "Path") -> None:
        if content is None:  # an empty file, or a section whose lines are all commented out
            return
        if not isinstance(content, dict):
            self._note(path, f"expected {_keys_text(prefix)}, not {_shown(content)}")
            return
        for key, raw in content.items():
            self._entry(prefix + key, raw, (*path, key))

    def _entry(self, name: str, raw: Any, path: "Path") -> None:
        setting = all_settings().get(name)
        if setting is not None:
            try:
                self.values[name] = value_from_yaml(setting, raw, self._base_dir)
                self.lines[name] = self._document.mark(path).line
            except InputError as error:
                self._note(path, str(error))
        elif name in section_names():
            self.section(raw, name + ".", path)
        else:
            self._note(path, unknown_key(name))

    def _note(self, path: "Path", message: str) -> None:
        from joblens.spec.formats.yaml_reader import Problem

        self.problems.append(Problem(self._document.mark(path), message))


def section_names() -> set[str]:
    sections: set[str] = set()
    for name in all_settings():
        while "." in name:
            name = name.rpartition(".")[0]  # noqa: PLW2901
            sections.add(name)
    return sections


def keys_of(prefix: str) -> list[str]:
    """Returns the keys of a section ('' is the top, else the prefix ends with a dot)."""
    inside = (name.removeprefix(prefix) for name in all_settings() if name.startswith(prefix))
    return list(dict.fromkeys(name.partition(".")[0] for name in inside))


def unknown_key(name: str) -> str:
    """Reports an unknown key, with the key or section that was probably meant."""
    from joblens.spec.formats.positions import nearest_word

    section, dot, key = name.rpartition(".")
    where = f" in '{section}'" if section else ""
    nearest = nearest_word(key, keys_of(section + dot))
    if nearest:
        return f"unknown key '{key}'{where}; did you mean '{nearest}'?"
    elsewhere = [other for other in all_settings() if other.rpartition(".")[2] == key]
    if elsewhere:
        return f"unknown key '{key}'{where}; did you mean '{elsewhere[0]}'?"
    return f"unknown key '{key}'{where}; expected {_keys_text(section + dot)}"


def value_from_yaml(setting: Setting, raw: Any, base_dir: str) -> Any:
    """Converts a YAML value. Raises InputError with the expected kind."""
    if raw is None:
        if setting.is_optional:
            return None
        raise _wrong(setting, raw)
    if isinstance(raw, str) and setting.kind not in (Kind.BOOL, Kind.INT, Kind.FLOAT):
        return value_from_text(setting, raw, base_dir)
    is_number = isinstance(raw, int | float) and not isinstance(raw, bool) and math.isfinite(raw)
    match setting.kind:
        case Kind.BOOL if isinstance(raw, bool):
            return raw
        case Kind.FLOAT | Kind.DURATION if is_number:
            return _in_range(setting, float(raw))
        case Kind.INT if is_number and isinstance(raw, int):
            return _in_range(setting, raw)
        case Kind.SIZE if is_number and raw == int(raw):
            return _in_range(setting, int(raw))
    raise _wrong(setting, raw)


def value_from_text(setting: Setting, text: str, base_dir: str) -> Any:
    """Converts a value of the environment or an option. `base_dir`: of relative paths; '': it was removed."""
    word = text.strip()
    try:
        match setting.kind:
            case Kind.BOOL:
                return _bool(setting, word)
            case Kind.INT:
                return _in_range(setting, int(word))
            case Kind.FLOAT:
                return _in_range(setting, _finite(word))
            case Kind.DURATION:
                return _in_range(setting, parse_duration(word))
            case Kind.SIZE:
                return _in_range(setting, parse_size(word))
            case Kind.CHOICE:
                return _choice(setting, word)
            case Kind.PATH:
                return _path(setting, word, base_dir)
            case Kind.TEXT | Kind.PROBES:
                return _text(setting, text)
    except (ValueError, InputError) as error:
        if isinstance(error, _Unusable):
            raise
        raise _wrong(setting, text) from error


class _Unusable(InputError):
    """A valid value that cannot be used: a number out of range, a path relative to a removed directory."""


def _in_range(setting: Setting, number: Any) -> Any:
    if setting.least is not None and number < setting.least:
        bound = f"at least {_with_unit(setting, setting.least)}" if setting.least else "0 or more"
        raise _Unusable(f"{setting.name} must be {bound}, not {_with_unit(setting, number)}")
    if setting.most is not None and number > setting.most:
        bound = _with_unit(setting, setting.most)
        raise _Unusable(f"{setting.name} must be at most {bound}, not {_with_unit(setting, number)}")
    return number


def _with_unit(setting: Setting, number: float) -> str:
    if number < 0:
        return f"{number:g}"
    if setting.kind is Kind.DURATION:
        return format_duration(number)
    return format_bytes(number) if setting.kind is Kind.SIZE else f"{number:g}"


def _bool(setting: Setting, word: str) -> bool:
    if word.lower() in _TRUE:
        return True
    if word.lower() in _FALSE:
        return False
    raise _wrong(setting, word)


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(word)
    return number


def _choice(setting: Setting, word: str) -> str:
    for choice in setting.choices:
        if choice.lower() == word.lower().replace("-", "_"):
            return setting.choice_class(choice) if setting.choice_class else choice
    raise _wrong(setting, word)


def _text(setting: Setting, text: str) -> str:
    if setting.kind is Kind.PROBES:
        chosen_probes(text)
    return text


def _path(setting: Setting, word: str, base_dir: str) -> str:
    if not word or "\0" in word:
        raise _wrong(setting, word)
    if "://" in word:  # a store may be a URL
        return word
    path = os.path.expanduser(word)
    if not base_dir and not os.path.isabs(path):
        raise _Unusable(
            f"{setting.name} {_shown(word)} is relative, but the current directory no longer exists"
        )
    return os.path.normpath(os.path.join(base_dir, path))


def _wrong(setting: Setting, given: Any) -> InputError:
    return InputError(f"{setting.name} must be {setting.expected}, not {_shown(given)}")


def _shown(value: Any) -> str:
    from joblens.spec.formats.positions import shown

    return shown(value)


def _keys_text(prefix: str) -> str:
    from joblens.spec.formats.positions import any_of

    return any_of(keys_of(prefix))
