"""Values of a workflow's sections for the model, also from a file with mistakes.

Unusable values are omitted or substituted and recorded as unread, so that errors they may cause are not
reported. A misspelled key counts as the key that was meant.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from msgspec import Struct, structs

from joblens.model.runs.workflow_spec import (
    ActionSpec,
    DatasetSpec,
    ExecutionSpec,
    FailureHandler,
    FileSpec,
    JobSpec,
    MonitorSpec,
    RequirementsSpec,
    RetryRule,
    Stdio,
    UserDataSpec,
    WorkflowSpec,
)
from joblens.spec.formats.positions import Path
from joblens.spec.keys.kinds import Kind, Note, Wrong
from joblens.spec.keys.readers import Reader, SectionReader
from joblens.spec.keys.table import Key, Section
from joblens.spec.keys.unknown import meant_key
from joblens.spec.keys.workflow import SECTIONS

_AMOUNT_FIELDS = frozenset({"num_cpus", "memory_bytes", "num_gpus", "num_nodes", "runtime_s"})
_NOTHING: dict[str, Any] = {}  # shared by all jobs that have none, and never modified
_SPEC_FIELDS = frozenset(WorkflowSpec.__struct_fields__)


def _requirements(values: dict[str, Any]) -> RequirementsSpec:
    return _shared_requirements(frozenset(values.items()))


@lru_cache(maxsize=4096)
def _shared_requirements(values: frozenset[tuple[str, Any]]) -> RequirementsSpec:
    return RequirementsSpec(**dict(values))


def _job(values: dict[str, Any]) -> JobSpec:
    if not _AMOUNT_FIELDS.isdisjoint(values):
        amounts = {field: values.pop(field) for field in _AMOUNT_FIELDS if field in values}
        values["requirements"] = _requirements(amounts)
    if "parameters" not in values:
        values["parameters"] = _NOTHING
    if "env" not in values:
        values["env"] = _NOTHING
    return JobSpec(**values)


def _monitor(values: dict[str, Any]) -> MonitorSpec:
    """Keys under `jobs` override the flat keys. The machine is not measured without the jobs."""
    jobs: dict[str, Any] = values.pop("jobs", _NOTHING)
    host: dict[str, Any] = values.pop("compute_node", _NOTHING)
    if values.get("enabled") is False:
        host = {**host, "host_enabled": False}
    return MonitorSpec(**{**values, **jobs, **host})


def _workflow(values: dict[str, Any]) -> WorkflowSpec:
    values.pop("$schema", None)
    other = {field: values.pop(field) for field in [*values] if field not in _SPEC_FIELDS}
    return WorkflowSpec(**values, other=other)


def _struct(struct: type[Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda values: struct(**values)


_MAKERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "workflow": _workflow,
    "job": _job,
    "container": dict,
    "file": _struct(FileSpec),
    "user_data": _struct(UserDataSpec),
    "dataset": _struct(DatasetSpec),
    "resource_requirements": _requirements,
    "inline_requirements": _requirements,
    "failure_handler": _struct(FailureHandler),
    "rule": _struct(RetryRule),
    "action": _struct(ActionSpec),
    "resource_monitor": _monitor,
    "monitor_jobs": dict,
    "monitor_compute_node": dict,
    "execution_config": _struct(ExecutionSpec),
    "stdio": _struct(Stdio),
    "slurm_scheduler": dict,
    "dynamic_jobs": dict,
}


@cache
def section_reader(name: str) -> Reader:
    section = SECTIONS[name]
    below = {key.section for key in section.keys.values() if key.section}
    return SectionReader(section, _MAKERS[name], {inner: section_reader(inner) for inner in below})


ITEM = "(?!)"  # of a list of names, patterns or commands: a pattern that matches nothing
_NOT_IN_NAMES = re.compile(r"[/\x00-\x1f\x7f\ud800-\udfff]")


def stand_in_entry(section: Section, raw: Any, base: Path) -> dict[str, Any]:
    """Returns a substitute for an entry of a list that is not a mapping, or is inconsistent."""
    known = {"name": raw} if isinstance(raw, str) else {}
    if isinstance(raw, dict) and isinstance(raw.get("name"), str):
        known = {"name": raw["name"]}
    keys = section.keys.values()
    entry = {key.name: stand_in(section, key, known, base) for key in keys if key.is_required}
    if section.name == "action":
        entry["commands"] = [ITEM]
    if section.name == "rule":
        entry["match_all_exit_codes"] = True
    return entry


def stand_in(section: Section, key: Key, beside: dict[str, Any], base: Path) -> Any:
    """Returns a substitute for a required key. `beside`: other keys of the mapping."""
    number = next((step + 1 for step in reversed(base) if isinstance(step, int)), 0)
    match key.kind:
        case Kind.NAME | Kind.LONG_NAME | Kind.REQUIREMENTS_NAME:
            return _name(beside.get(key.name), number)
        case Kind.SECTIONS:
            inside = "job" if section.name == "workflow" else "rule"
            return [{"name": "#1", "command": ITEM}] if inside == "job" else [{"match_all_exit_codes": True}]
        case Kind.CHOICE:
            return _choice(key, beside)
    return f"{section.name} {number}"


def _name(raw: Any, number: int) -> str:
    """Returns a valid name close to the written one; messages about other problems may show it."""
    cleaned = _NOT_IN_NAMES.sub("?", raw).strip() if isinstance(raw, str) else ""
    return cleaned if cleaned not in ("", "default") else f"#{number}"


def _choice(key: Key, beside: dict[str, Any]) -> str:
    """Chooses an action's value that fits its other keys."""
    if key.name == "trigger_type":
        return "on_jobs_complete" if {"jobs", "job_name_regexes"} & beside.keys() else "on_workflow_start"
    schedules = {"scheduler", "scheduler_type", "num_allocations"} & beside.keys()
    return "schedule_nodes" if schedules else "run_commands"


_MOST_ROUNDS = 6
_LISTS = (Kind.NAMES, Kind.REGEXES, Kind.COMMANDS)
_MAPPINGS = (Kind.ENV, Kind.VARIABLES, Kind.PARAMETERS, Kind.SBATCH)
# In place of a list index: some entry that is elsewhere, under an unknown key.
ELSEWHERE = "?"


class Draft(Struct, frozen=True):
    """Substituted content of a file with mistakes.

    `unread`: omitted or substituted values as written, by path. `renamed`: keys as written in the file, by
    their paths in the spec. `late`: more mistakes, found under misspelled keys.
    """

    spec: WorkflowSpec
    unread: dict[Path, Any]
    renamed: dict[Path, str]
    late: tuple[Note, ...] = ()

    def path_in_file(self, path: Path) -> Path:
        return written_path(self.renamed, path)


def draft_of(value: dict[str, Any], notes: list[Note], doubled: list[Path]) -> Draft | None:
    """Builds a draft.

    `notes`: messages of the reader. `doubled`: duplicate keys. None: it cannot be repaired.
    """
    mending = _Mending(value)
    mending.unread.update((_doubtful(path), None) for path in doubled)
    late: list[Note] = []
    for _ in range(_MOST_ROUNDS):
        for path in dict.fromkeys(path for path, _ in notes):
            mending.mend(path)
        try:
            spec = section_reader("workflow")(mending.value)
        except Wrong as wrong:
            notes = wrong.finished
            late += [note for note in notes if mending.is_inside_renamed(note[0])]
            continue
        return Draft(
            _with_written_names(spec, mending.unread),
            mending.unread,
            mending.renamed,
            tuple(dict.fromkeys(late)),
        )
    return None


def _doubtful(path: Path) -> Path:
    """Returns whether a path is doubtful: of a duplicate list, the entries of the first are good."""
    key = SECTIONS["workflow"].keys.get(str(path[0]))
    is_list = len(path) == 1 and key is not None and key.kind is Kind.SECTIONS
    return (*path, ELSEWHERE) if is_list else path


def _with_written_names(spec: WorkflowSpec, unread: dict[Path, Any]) -> WorkflowSpec:
    """Restores names as written, because messages refer to jobs by name, even by an invalid one."""
    jobs = list(spec.jobs)
    for path, raw in unread.items():
        is_name = len(path) == 3 and path[0] == "jobs" and path[2] == "name"
        if is_name and isinstance(raw, str) and raw.strip() and raw.isprintable():
            index = int(path[1])
            jobs[index : index + 1] = [structs.replace(job, name=raw) for job in jobs[index : index + 1]]
    return structs.replace(spec, jobs=tuple(jobs))


def written_path(renamed: dict[Path, str], path: Path) -> Path:
    if not renamed:
        return path
    return tuple(renamed.get(path[: at + 1], key) for at, key in enumerate(path))


class _Mending:
    """Modifies a copy; copies only what changes."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.value: Any = value
        self.unread: dict[Path, Any] = {}
        self.renamed: dict[Path, str] = {}
        self._own: set[Path] = set()
        self._mended: set[Path] = set()

    def is_inside_renamed(self, path: Path) -> bool:
        """Returns whether it is the value of a misspelled key, which may be right for the intended key."""
        return any(path[:length] in self.renamed for length in range(1, len(path)))

    def mend(self, path: Path) -> None:
        section = SECTIONS["workflow"]
        base: Path = ()
        if path in self._mended:
            self._give_up_entry(path)
            return
        while len(path) > len(base):
            key = section.keys.get(str(path[len(base)]))
            rest = path[len(base) + 1 :]
            if key is None:
                self._unknown(section, base, str(path[len(base)]))
                return
            is_list = key.kind is Kind.SECTIONS
            is_section = is_list or key.kind in (Kind.SECTION, Kind.REQUIREMENTS)
            if not is_section or not rest:
                self._mended.add(path)
                self._leaf(section, base, key, rest)
                return
            section = SECTIONS[key.section]
            base = path[: len(base) + (2 if is_list else 1)]
        self._mended.add(path)
        self._entry(section, base)

    # ---- kinds of mistakes ---------------------------------------------------------------------------------

    def _unknown(self, section: Section, base: Path, name: str) -> None:
        mapping = self._container(base)
        if name not in mapping:
            return
        raw = mapping.pop(name)
        intended = meant_key(section.name, name)
        if intended is None:
            return
        key = section.keys[intended]
        target = key.older_name_of or key.name
        if target not in mapping:
            mapping[target] = raw
            self.renamed[*base, target] = name
        elif key.kind is Kind.SECTIONS:
            self.unread[*base, target, ELSEWHERE] = raw

    def _entry(self, section: Section, base: Path) -> None:
        """Handles a mapping with a missing key, or an entry that is not a mapping."""
        inside = self._container(base[:-1]) if base else None
        raw = self.value if inside is None else inside[base[-1]]
        if type(raw) is not dict:
            assert inside is not None
            inside[base[-1]] = stand_in_entry(section, raw, base)
            self.unread[base] = raw
            return
        mapping = self._container(base)
        for key in section.keys.values():
            if key.is_required and key.name not in mapping:
                mapping[key.name] = stand_in(section, key, mapping, base)
                self.unread[*base, key.name] = None

    def _leaf(self, section: Section, base: Path, key: Key, rest: Path) -> None:
        mapping = self._container(base)
        if key.name not in mapping:
            return
        raw = mapping[key.name]
        path = (*base, key.older_name_of or key.name)
        if key.kind in _LISTS and rest and type(raw) is list:
            self._container((*base, key.name))[rest[0]] = ITEM
            self.unread[*path, rest[0]] = raw[rest[0]]  # type: ignore[index]
        elif key.kind in _MAPPINGS and rest and type(raw) is dict:
            self._container((*base, key.name)).pop(rest[0], None)
            self.unread[*path, rest[0]] = raw.get(rest[0])
        elif key.kind in _LISTS and type(raw) is str and raw.strip():
            mapping[key.name] = [raw]  # the message's advice
        else:
            del mapping[key.name]
            self.unread[path] = raw
            if key.is_required:
                mapping[key.name] = stand_in(section, key, {**mapping, key.name: raw}, base)

    def _give_up_entry(self, path: Path) -> None:
        """Substitutes the whole entry around it, after a smaller change did not help."""
        if len(path) > 1 and isinstance(path[1], int):
            base = path[:2]
            section = SECTIONS[SECTIONS["workflow"].keys[str(path[0])].section]
            entries = self._container(base[:1])
            self.unread[base] = entries[base[1]]
            entries[base[1]] = stand_in_entry(section, entries[base[1]], base)
        elif path:
            self.unread[path[:1]] = self._container(()).pop(path[0], None)

    # ---- the copy ------------------------------------------------------------------------------------------

    def _container(self, path: Path) -> Any:
        """Returns the mapping or list at a path, copied on first access together with its ancestors."""
        if () not in self._own:
            self.value = self.value.copy()
            self._own.add(())
        found = self.value
        for length, key in enumerate(path, 1):
            if path[:length] not in self._own:
                found[key] = found[key].copy()
                self._own.add(path[:length])
            found = found[key]
        return found
