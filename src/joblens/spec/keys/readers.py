"""Readers of keys and sections, made from the tables of keys.

A section is read to its end in spite of errors, so that all problems of a file are reported at once. Paths
and messages are built only for problems: a file may have a hundred thousand jobs.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from joblens.spec.formats.positions import Document, Path, Problem, any_of, nearest_word, shown
from joblens.spec.keys import kinds, recipe
from joblens.spec.keys.kinds import EXPECTED, Kind, Note, Wrong, expected, fail
from joblens.spec.keys.table import Key, Section
from joblens.spec.keys.unknown import meant_key, unknown_key, where_of
from joblens.spec.keys.workflow_run import read_sbatch_options

Reader = Callable[[Any], Any]


Made = TypeVar("Made")


def read_file(
    document: Document, make: Callable[[Any], Made], empty: str
) -> tuple[Made | None, tuple[Problem, ...]]:
    """Returns what `make` builds from a parsed file, or None with all problems, sorted by position. `empty`:
    the problem of an empty file."""
    made: Made | None = None
    problems = list(document.problems)
    if document.value is None:
        problems = problems or [Problem(document.mark(()), empty)]
    else:
        try:
            made = make(document.value)
        except Wrong as wrong:
            problems += [Problem(document.mark(path), message) for path, message in wrong.finished]
    problems.sort(key=lambda problem: (problem.mark.line, problem.mark.column))
    return None if problems else made, tuple(dict.fromkeys(problems))


def section_readers(
    sections: dict[str, Section], makers: Mapping[str, Callable[[dict[str, Any]], Any]]
) -> dict[str, Reader]:
    """Returns a reader per section. `makers`: build values other than mappings. The table lists sections
    before their inner sections."""
    readers: dict[str, Reader] = {}
    for name, section in reversed(sections.items()):
        readers[name] = SectionReader(section, makers.get(name, dict), readers)
    return readers


def reader_of(key: Key, inside: Mapping[str, Reader]) -> Reader:
    """Returns the reader of a key. `inside`: readers of inner sections."""
    match key.kind:
        case Kind.SECTION:
            return inside[key.section]
        case Kind.SECTIONS:
            return list_reader(key.kind, inside[key.section], least=1 if key.is_required else 0)
        case Kind.SECTIONS_BY_NAME:
            return _mapping_reader(key.kind, inside[key.section], kinds.check_entry_name)
        case Kind.REQUIREMENTS:
            return _name_or_section(inside[key.section])
        case Kind.CONTAINER:
            return _container_reader(inside[key.section])
        case Kind.CHOICE:
            return _choice_reader(key)
    read = _READERS[key.kind]
    has_bounds = key.least is not None or key.more_than is not None or key.most is not None
    return _bounded(read, key) if has_bounds else read


def _bounded(read: Reader, key: Key) -> Reader:
    least, more_than, most = key.least, key.more_than, key.most

    def read_bounded(raw: Any) -> Any:
        value = read(raw)
        if least is not None and value < least:
            fail(f"must be {f'at least {least:g}' if least else '0 or more'}, not {_plain(raw)}")
        if more_than is not None and value <= more_than:
            fail(f"must be more than {more_than:g}, not {_plain(raw)}")
        if most is not None and value > most:
            fail(f"must be at most {most:g}, not {_plain(raw)}")
        return value

    return read_bounded


def _plain(raw: Any) -> str:
    return raw if isinstance(raw, str) else shown(raw)


def list_reader(kind: Kind, read: Reader, least: int = 0) -> Reader:
    def read_list(raw: Any) -> Any:
        if type(raw) is not list:
            hint = f"; write [{raw}]" if isinstance(raw, str) and kind is not Kind.SECTIONS else ""
            fail(f"must be {EXPECTED[kind]}, not {shown(raw)}{hint}")
        if len(raw) < least:
            fail("must have at least one entry")
        try:
            return tuple([read(item) for item in raw])
        except Wrong:
            raise _all_wrong(enumerate(raw), read) from None

    return read_list


def _all_wrong(items: Any, read: Reader) -> Wrong:
    notes: list[Note] = []
    finished: list[Note] = []
    for index, item in items:
        try:
            read(item)
        except Wrong as wrong:
            notes += [((index, *path), text) for path, text in wrong.notes]
            finished += [((index, *path), text) for path, text in wrong.finished]
    return Wrong(notes, finished)


def _name_or_section(read_section: Reader) -> Reader:
    def read(raw: Any) -> Any:
        if type(raw) is str:
            return kinds.read_reference(raw)
        if type(raw) is not dict:
            expected(Kind.REQUIREMENTS, raw)
        return read_section(raw)

    return read


def _container_reader(read_section: Reader) -> Reader:
    """Accepts an image as short form of a mapping; false: no container, whatever the workflow says."""

    def read(raw: Any) -> Any:
        if raw is False:
            return {}
        if type(raw) is str:
            return {"image": kinds.read_path(raw)}
        if type(raw) is not dict:
            expected(Kind.CONTAINER, raw)
        return read_section(raw)

    return read


def _choice_reader(key: Key) -> Reader:
    values: dict[str, Any] = {
        word: key.choice_class(word) if key.choice_class else word for word in key.choices
    }

    def read(raw: Any) -> Any:
        if type(raw) is str and raw in values:
            return values[raw]
        nearest = nearest_word(raw, values) if isinstance(raw, str) else None
        hint = f"; did you mean '{nearest}'?" if nearest else ""
        return fail(f"must be {any_of(key.choices)}, not {shown(raw)}{hint}")

    return read


def _mapping_reader(kind: Kind, read: Reader, check_name: Callable[[str], None]) -> Reader:
    def read_entry(entry: tuple[str, Any]) -> Any:
        check_name(entry[0])
        return read(entry[1])

    def read_mapping(raw: Any) -> Any:
        if type(raw) is not dict:
            expected(kind, raw)
        try:
            return {name: read_entry((name, value)) for name, value in raw.items()}
        except Wrong:
            raise _all_wrong(((name, (name, value)) for name, value in raw.items()), read_entry) from None

    return read_mapping


_READERS: dict[Kind, Reader] = {
    Kind.TEXT: kinds.read_text,
    Kind.NAME: kinds.read_name,
    Kind.LONG_NAME: kinds.read_long_name,
    Kind.REQUIREMENTS_NAME: kinds.read_requirements_name,
    Kind.REFERENCE: kinds.read_reference,
    Kind.COMMAND: kinds.read_command,
    Kind.PATH: kinds.read_path,
    Kind.BOOL: kinds.read_bool,
    Kind.INT: kinds.read_whole,
    Kind.NUMBER: kinds.read_finite,
    Kind.SIZE: kinds.read_size,
    Kind.DURATION: kinds.read_duration,
    Kind.WHEN_BLOCKED_FAILS: kinds.read_when_blocked_fails,
    Kind.JSON: lambda raw: raw,
    Kind.METADATA: kinds.read_metadata,
    Kind.SIGNAL: kinds.read_signal,
    Kind.OPTION_WORD: kinds.read_option_word,
    Kind.LABEL: kinds.read_label,
    Kind.STAGGER: kinds.read_stagger,
    Kind.WALLTIME: kinds.read_walltime,
    Kind.SLURM_MEMORY: kinds.read_slurm_memory,
    Kind.NAMES: list_reader(Kind.NAMES, kinds.read_reference),
    Kind.REGEXES: list_reader(Kind.REGEXES, kinds.read_regex),
    Kind.COMMANDS: list_reader(Kind.COMMANDS, kinds.read_command),
    Kind.EXIT_CODES: list_reader(Kind.EXIT_CODES, kinds.read_exit_code),
    Kind.ENV: _mapping_reader(Kind.ENV, kinds.read_text, kinds.check_env_name),
    Kind.VARIABLES: _mapping_reader(Kind.VARIABLES, kinds.read_text, kinds.check_placeholder_name),
    Kind.PARAMETERS: _mapping_reader(Kind.PARAMETERS, kinds.read_parameter, kinds.check_placeholder_name),
    Kind.SBATCH: read_sbatch_options,
    Kind.PATHS: recipe.read_paths,
    Kind.WORDS: recipe.read_words,
    Kind.OPERATORS: recipe.read_operators,
    Kind.JOB_ID: recipe.read_job_id,
    Kind.COUNT_OR_AUTO: recipe.read_count_or_auto,
    Kind.REJECT_LIMIT: recipe.read_reject_limit,
    Kind.NOT_SUPPORTED: recipe.refuse_unless_off,
    Kind.ARGV: list_reader(Kind.ARGV, kinds.read_text),
    Kind.ARGV_BY_NAME: _mapping_reader(
        Kind.ARGV_BY_NAME, list_reader(Kind.ARGV, kinds.read_text), kinds.check_entry_name
    ),
    Kind.PARAMETER_VALUES: _mapping_reader(
        Kind.PARAMETER_VALUES, kinds.read_tool_value, kinds.check_placeholder_name
    ),
}


class SectionReader:
    """Reads a mapping by its table of keys. `make` gets the values by field."""

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
                    continue  # spec.keys.unknown reports the latter
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
        """Reports missing keys; a misspelled key is not reported as missing."""
        section = self._section
        misspelt = {meant_key(section.name, name) for name in raw if name not in section.keys}
        whose = where_of(section, raw).removeprefix(" in ") or section.title
        missing = [name for name in section.keys if name in self._required - raw.keys() - misspelt]
        return [((), f"{whose} has no '{name}'") for name in missing]

    def _misspelt(self, raw: dict[str, Any], needed: tuple[str, ...]) -> list[str]:
        """Returns words that are probably misspelled names of these keys."""
        unknown = [name for name in raw if name not in self._section.keys]
        return [name for name in unknown if meant_key(self._section.name, name) in needed]

    def _stands_twice(self, name: str, raw: dict[str, Any]) -> str:
        target = self._entries[name][0]
        other = next(one for one in raw if one != name and self._entries.get(one, ("",))[0] == target)
        return f"{name}{where_of(self._section, raw)} means the same as {other}; write only one of them"

    def _together(self, raw: dict[str, Any]) -> list[Note]:
        """Checks keys against each other."""
        problems: list[Note] = []
        for name, others in self._excludes:
            if name in raw and not others.isdisjoint(raw) and _is_set(raw[name]):
                clash = [other for other in raw if other in others and _is_set(raw[other])]
                where = where_of(self._section, raw)
                problems += [((other,), f"{other}{where} cannot be combined with {name}") for other in clash]
        for key in self._conditional:
            if key.is_written(raw.get(key.name)):
                problems += self._misplaced(key, raw)
        for need in self._section.needs:
            if raw.get(need.key) in need.values and not any(_is_set(raw.get(name)) for name in need.any_of):
                where = where_of(self._section, raw)
                text = f"{need.key} {raw[need.key]}{where} requires {_quoted(need.any_of)}"
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
        return [((key.name,), f"{key.name}{where} requires {name} {any_of(values)}, not {given}")]


def _quoted(names: tuple[str, ...]) -> str:
    return any_of([f"'{name}'" for name in names])


def _is_set(value: Any) -> bool:
    return value is not None and value is not False and value != []


def _subject(name: str, path: Path) -> str:
    for step in path:
        name = f"item {step + 1} of {name}" if isinstance(step, int) else f"{name}.{step}"
    return name
