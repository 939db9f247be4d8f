"""Readers for single keys of a workflow file, made from what the tables say about them."""

from collections.abc import Callable, Mapping
from typing import Any

from joblens.spec.formats.words import any_of, nearest_word, shown
from joblens.spec.keys import kinds, recipe_kinds
from joblens.spec.keys.kinds import EXPECTED, Kind, Note, Wrong, expected, fail
from joblens.spec.keys.sbatch_options import read_sbatch_options
from joblens.spec.keys.table import Key

Reader = Callable[[Any], Any]


def reader_of(key: Key, inside: Mapping[str, Reader]) -> Reader:
    """`inside` has the readers of the sections that may stand below."""
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
    for place, item in items:
        try:
            read(item)
        except Wrong as wrong:
            notes += [((place, *path), text) for path, text in wrong.notes]
            finished += [((place, *path), text) for path, text in wrong.finished]
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
    """An image alone stands for a mapping of it; false: no container, whatever the workflow says."""

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
    Kind.PATHS: recipe_kinds.read_paths,
    Kind.WORDS: recipe_kinds.read_words,
    Kind.OPERATORS: recipe_kinds.read_operators,
    Kind.JOB_ID: recipe_kinds.read_job_id,
    Kind.COUNT_OR_AUTO: recipe_kinds.read_count_or_auto,
    Kind.REJECT_LIMIT: recipe_kinds.read_reject_limit,
    Kind.NOT_SUPPORTED: recipe_kinds.refuse_unless_off,
    Kind.ARGV: list_reader(Kind.ARGV, kinds.read_text),
    Kind.ARGV_BY_NAME: _mapping_reader(
        Kind.ARGV_BY_NAME, list_reader(Kind.ARGV, kinds.read_text), kinds.check_entry_name
    ),
    Kind.PARAMETER_VALUES: _mapping_reader(
        Kind.PARAMETER_VALUES, kinds.read_tool_value, kinds.check_placeholder_name
    ),
}
