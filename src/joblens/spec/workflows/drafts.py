"""A workflow file with mistakes in it, as far as it can be understood: names, parameters and cycles can then
be looked at beside them, and everything that is wrong with a file is told at once.

What cannot be used is left out or stood in for, and remembered as unread: nothing that it may be the cause of
is to be told. A misspelt key counts as the key that was meant."""

from typing import Any

from msgspec import Struct, structs

from joblens.model.runs.workflow_spec import WorkflowSpec
from joblens.spec.formats.positions import Path
from joblens.spec.keys.kinds import Kind, Note, Wrong
from joblens.spec.keys.table import Key, Section
from joblens.spec.keys.unknown import meant_key
from joblens.spec.keys.workflow import SECTIONS
from joblens.spec.workflows.stand_ins import ITEM, stand_in, stand_in_entry
from joblens.spec.workflows.values import section_reader

_MOST_ROUNDS = 6
_LISTS = (Kind.NAMES, Kind.REGEXES, Kind.COMMANDS)
_MAPPINGS = (Kind.ENV, Kind.VARIABLES, Kind.PARAMETERS, Kind.SBATCH)
# In place of a list's index: some entry of it that stands elsewhere, under a key that is not known.
ELSEWHERE = "?"


class Draft(Struct, frozen=True):
    """`unread`: what was left out or stood in for, as it was written, by its path. `renamed`: the words that
    stand in the file for keys, by the paths they have in the spec. `late`: more mistakes, found under keys
    that were misspelt."""

    spec: WorkflowSpec
    unread: dict[Path, Any]
    renamed: dict[Path, str]
    late: tuple[Note, ...] = ()

    def path_in_file(self, path: Path) -> Path:
        return written_path(self.renamed, path)


def draft_of(value: dict[str, Any], notes: list[Note], doubled: list[Path]) -> Draft | None:
    """`notes`: what reading it said. `doubled`: keys that stand twice. None: it is beyond that."""
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
    """Where a whole list of entries stands twice, those of the first are good."""
    key = SECTIONS["workflow"].keys.get(str(path[0]))
    is_list = len(path) == 1 and key is not None and key.kind is Kind.SECTIONS
    return (*path, ELSEWHERE) if is_list else path


def _with_written_names(spec: WorkflowSpec, unread: dict[Path, Any]) -> WorkflowSpec:
    """Messages call a job by its name, even if it cannot have that one."""
    jobs = list(spec.jobs)
    for path, raw in unread.items():
        is_name = len(path) == 3 and path[0] == "jobs" and path[2] == "name"
        if is_name and isinstance(raw, str) and raw.strip() and raw.isprintable():
            place = int(path[1])
            jobs[place : place + 1] = [structs.replace(job, name=raw) for job in jobs[place : place + 1]]
    return structs.replace(spec, jobs=tuple(jobs))


def written_path(renamed: dict[Path, str], path: Path) -> Path:
    if not renamed:
        return path
    return tuple(renamed.get(path[: at + 1], key) for at, key in enumerate(path))


class _Mending:
    """Changes a copy; only what is changed is copied."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.value: Any = value
        self.unread: dict[Path, Any] = {}
        self.renamed: dict[Path, str] = {}
        self._own: set[Path] = set()
        self._mended: set[Path] = set()

    def is_inside_renamed(self, path: Path) -> bool:
        """The value of a misspelt key itself is not told: it may well be right for what was meant."""
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

    # ---- what can be wrong ---------------------------------------------------------------------------------

    def _unknown(self, section: Section, base: Path, name: str) -> None:
        mapping = self._container(base)
        if name not in mapping:
            return
        raw = mapping.pop(name)
        meant = meant_key(section.name, name)
        if meant is None:
            return
        key = section.keys[meant]
        target = key.older_name_of or key.name
        if target not in mapping:
            mapping[target] = raw
            self.renamed[*base, target] = name
        elif key.kind is Kind.SECTIONS:
            self.unread[*base, target, ELSEWHERE] = raw

    def _entry(self, section: Section, base: Path) -> None:
        """Something is missing in a mapping, or it is none."""
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
            mapping[key.name] = [raw]  # what the message advises
        else:
            del mapping[key.name]
            self.unread[path] = raw
            if key.is_required:
                mapping[key.name] = stand_in(section, key, {**mapping, key.name: raw}, base)

    def _give_up_entry(self, path: Path) -> None:
        """What was done did not help: the whole entry around it is stood in for."""
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
        """The mapping or list at a path, copied on the first visit, with everything around it."""
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
