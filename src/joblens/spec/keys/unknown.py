"""Unknown and unused keys: suggestions of the right key, and warnings about keys without effect."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from msgspec import Struct

from joblens.spec.formats.positions import Path, any_of, nearest_word
from joblens.spec.keys.recipe import RECIPE_SECTIONS
from joblens.spec.keys.table import Key, NoEffect, Section
from joblens.spec.keys.tool import TASK_SECTIONS, TOOL_SECTIONS
from joblens.spec.keys.workflow import SECTIONS

_MOST_LISTED = 14

# Keys of other systems, and their names here.
_FOREIGN_KEYS = {
    "after": "depends_on",
    "cmd": "command",
    "cpu": "num_cpus",
    "dependencies": "depends_on",
    "dependency": "depends_on",
    "environment": "env",
    "gpu": "num_gpus",
    "handler": "failure_handler",
    "inputs": "input_files",
    "mem": "memory",
    "ncpus": "num_cpus",
    "needs": "depends_on",
    "outputs": "output_files",
    "requirements": "resource_requirements",
    "resources": "resource_requirements",
    "retries": "failure_handler",
    "retry": "failure_handler",
    "script": "command",
    "tasks": "jobs",
    "time": "runtime",
    "time_limit": "runtime",
    "timeout": "runtime",
    "vars": "variables",
    "walltime": "runtime",
}
_COUNTED = ("job", "file", "dataset", "failure handler", "Slurm scheduler", "task")
_HINTS = {"slurm_config": "write its options in slurm_defaults, its allocations in slurm_schedulers"}


def where_of(section: Section, raw: dict[str, Any]) -> str:
    """Returns ' in job 'a''; "" at the top of the file."""
    if section.name in ("workflow", "recipe", "tool", "task_file"):
        return ""
    name = raw.get("name")
    has_name = isinstance(name, str | int | float) and not isinstance(name, bool) and name != ""
    return (
        f" in {section.title} {_name_shown(str(name))}" if has_name else f" in {_with_article(section.title)}"
    )


def _name_shown(name: str) -> str:
    return f"'{name}'" if name.isprintable() else repr(name)


def _with_article(title: str) -> str:
    return f"a {title}" if title in _COUNTED else title


def unknown_key(section: Section, name: str, raw: dict[str, Any]) -> str:
    return f"unknown key '{name}'{where_of(section, raw)}; {_advice(section.name, name)}"


def _sections_beside(section_name: str) -> dict[str, Section]:
    """Returns the sections of the same kind of file."""
    others = (RECIPE_SECTIONS, TOOL_SECTIONS, TASK_SECTIONS)
    return next((sections for sections in others if section_name in sections), SECTIONS)


@cache
def meant_key(section_name: str, name: str) -> str | None:
    """Returns the key of the section that was probably meant."""
    sections = _sections_beside(section_name)
    keys = sections[section_name].keys
    if sections is TOOL_SECTIONS and f"{name}s" in keys:  # script: in a workflow's job it means command
        return f"{name}s"
    intended = _FOREIGN_KEYS.get(name.lower(), "")
    return intended if intended in keys else nearest_word(name, keys)


@cache
def _advice(section_name: str, name: str) -> str:
    if name in _HINTS:
        return _HINTS[name]
    intended = meant_key(section_name, name)
    if intended:
        return f"did you mean '{intended}'?"
    sections = _sections_beside(section_name)
    elsewhere = next((other for other in sections.values() if name in other.keys), None)
    if elsewhere:
        return f"it belongs in {elsewhere.location.replace('`', '')}"
    keys = sections[section_name].keys
    if len(keys) <= _MOST_LISTED or sections is TOOL_SECTIONS:
        return f"expected {any_of(list(keys))}"
    if sections is SECTIONS:
        return "'joblens schema' lists all keys"
    page = "recipes" if sections is RECIPE_SECTIONS else "task-pipeline"
    return f"docs/{page}.md lists all keys"


class SpecWarning(Struct, frozen=True):
    """`engines`: the run engines that it concerns; (): all."""

    path: Path
    message: str
    engines: tuple[str, ...] = ()


def find_key_warnings(value: Any) -> list[SpecWarning]:
    """Returns the warnings of a workflow file without errors, in file order."""
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
    """Yields warnings with their section and key."""
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
            message = f"{name}{where_of(section, raw)}{_describe(key.no_effect, value)}"
            yield (section.name, name), SpecWarning((*path, name), message, key.no_effect.engines)
        elif key.section and isinstance(value, list):
            inner = SECTIONS[key.section]
            for index, entry in enumerate(value):
                if inner.warns_of_unknown or not _watched(inner.name).keys().isdisjoint(entry):
                    yield from _walk(inner, entry, (*path, name, index))
        elif key.section and isinstance(value, dict):
            yield from _walk(SECTIONS[key.section], value, (*path, name))


def _missed(section: Section, key: Key, raw: dict[str, Any]) -> str:
    """Returns the other key and its value, if this key has no effect with it."""
    assert key.only_with is not None
    name, values = key.only_with
    given = raw.get(name) if raw.get(name) is not None else section.keys[name].default
    return "" if given in values else f"{name} {given}"


def _describe(no_effect: NoEffect, value: Any) -> str:
    value_text = f": '{value}'" if no_effect.only else ""
    engine = " with this engine" if no_effect.engines else ""
    return f"{value_text} has no effect{engine}: {no_effect.why}"


@cache
def _watched(section_name: str) -> dict[str, Key]:
    """Returns keys that may cause a warning: the walk skips everything else of a large file."""
    return {
        name: key
        for name, key in SECTIONS[section_name].keys.items()
        if key.no_effect is not None or key.warns_elsewhere or (key.section and _may_warn(key.section))
    }


def _may_warn(section_name: str) -> bool:
    return SECTIONS[section_name].warns_of_unknown or bool(_watched(section_name))
