"""What to say about a key that joblens does not know: the right word, or where it belongs."""

from functools import cache
from typing import Any

from joblens.spec.formats.words import any_of, nearest_word
from joblens.spec.keys.recipe import RECIPE_SECTIONS
from joblens.spec.keys.table import Section
from joblens.spec.keys.task import TASK_SECTIONS
from joblens.spec.keys.tool import TOOL_SECTIONS
from joblens.spec.keys.workflow import SECTIONS

_MOST_LISTED = 14

# Words of other systems, and what they are called here.
_OTHER_WORDS = {
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
_HINTS = {"slurm_config": "write its options into slurm_defaults, its allocations into slurm_schedulers"}


def where_of(section: Section, raw: dict[str, Any]) -> str:
    """' in job 'a''; at the top of the file nothing."""
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
    """Those of the same kind of file."""
    others = (RECIPE_SECTIONS, TOOL_SECTIONS, TASK_SECTIONS)
    return next((sections for sections in others if section_name in sections), SECTIONS)


@cache
def meant_key(section_name: str, name: str) -> str | None:
    """The key of the section that was probably meant."""
    sections = _sections_beside(section_name)
    keys = sections[section_name].keys
    if sections is TOOL_SECTIONS and f"{name}s" in keys:  # script: of a workflow's job, it means command
        return f"{name}s"
    meant = _OTHER_WORDS.get(name.lower(), "")
    return meant if meant in keys else nearest_word(name, keys)


@cache
def _advice(section_name: str, name: str) -> str:
    if name in _HINTS:
        return _HINTS[name]
    meant = meant_key(section_name, name)
    if meant:
        return f"did you mean '{meant}'?"
    sections = _sections_beside(section_name)
    elsewhere = next((other for other in sections.values() if name in other.keys), None)
    if elsewhere:
        return f"it belongs in {elsewhere.place.replace('`', '')}"
    keys = sections[section_name].keys
    if len(keys) <= _MOST_LISTED or sections is TOOL_SECTIONS:
        return f"expected {any_of(list(keys))}"
    if sections is SECTIONS:
        return "'joblens schema' has all keys"
    page = "recipes" if sections is RECIPE_SECTIONS else "task-pipeline"
    return f"docs/{page}.md has all keys"
