"""Command lines as plans: one command, or a sweep `cmd {x}` with one job per combination.

`::: a b` gives values, a second `:::` makes all pairs, `:::+` is zipped with the values before it, and `::::
file` takes the lines of a file. `{}` stands for all values, `{1}` for those of the first source, `{name}` for
a parameter; undeclared names belong to the sources in turn.
"""

import itertools
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct, json

from joblens.model.errors import InputError
from joblens.model.jobs.job import Requirements, RetryLost
from joblens.model.runs.plan import Plan, PlannedJob

_SOURCES = (":::", ":::+", "::::", "::::+")
_REFERENCE = re.compile(r"(?<!\$)\{(\d+|[A-Za-z_]\w*)?\}")
_UNSAFE = re.compile(r"[^\w.+=,@-]+")
_NAME_MOST = 48


class Source(Struct, frozen=True):
    values: tuple[str, ...]
    is_linked: bool = False  # zipped with the one before it
    name: str = ""  # of a parameter; '': by position


class MappedJob(Struct, frozen=True):
    name: str
    command: str


def refuse_misplaced(words: Sequence[str], options: Collection[str]) -> None:
    """Rejects an option behind the values, which would become a value, and a job."""
    index = next((at for at, word in enumerate(words) if word in _SOURCES), len(words))
    for word in words[index:]:
        if word.partition("=")[0] in options:
            raise InputError(
                f"{word} is among the values",
                hint="options of map go before the command; as a value give it with --param",
            )


def split_words(
    words: Sequence[str], lines_of: Callable[[str], Sequence[str]]
) -> tuple[tuple[str, ...], list[Source]]:
    """-> the command, and the sources behind it. `lines_of` reads a file."""
    index = next((at for at, word in enumerate(words) if word in _SOURCES), len(words))
    command, rest = tuple(words[:index]), words[index:]
    sources: list[Source] = []
    for mark, values in _parts(rest):
        if mark.startswith("::::"):
            for position, path in enumerate(values):
                sources.append(Source(tuple(lines_of(path)), is_linked=mark[-1] == "+" and position == 0))
        else:
            sources.append(Source(tuple(values), is_linked=mark[-1] == "+"))
    if sources and sources[0].is_linked:
        raise InputError("the first source has nothing to go along with", hint="write ::: or ::::")
    if not command:
        raise InputError("no command was given", hint="joblens map 'echo {}' ::: 1 2 3")
    return command, sources


def _parts(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    parts: list[tuple[str, list[str]]] = []
    for word in words:
        if word in _SOURCES:
            parts.append((word, []))
        else:
            parts[-1][1].append(word)
    for mark, values in parts:
        if not values:
            what = "a file" if mark.startswith("::::") else "values"
            raise InputError(f"{mark} has nothing behind it", hint=f"write {what} there: {mark} a b")
    return parts


def combine(sources: Sequence[Source]) -> list[tuple[str, ...]]:
    """One value of each source, every combination; linked ones go together. The last changes fastest."""
    groups: list[list[Source]] = []
    for source in sources:
        if source.is_linked:
            groups[-1].append(source)
        else:
            groups.append([source])
    rows: list[list[tuple[str, ...]]] = []
    for group in groups:
        counts = {len(source.values) for source in group}
        if len(counts) > 1:
            lengths = " and ".join(str(len(source.values)) for source in group)
            raise InputError(f"values that go together must be equally many, not {lengths}")
        rows.append(list(zip(*(source.values for source in group), strict=True)))
    return [tuple(itertools.chain.from_iterable(parts)) for parts in itertools.product(*rows)]


def mapped_jobs(command: Sequence[str], sources: Sequence[Source]) -> list[MappedJob]:
    """Builds the jobs. A single word is a shell line: values are quoted into it.

    Several words are a command: values become part of its words. A line of only `{}` runs the values
    themselves as shell lines.
    """
    if not sources:
        raise InputError(
            "there are no values",
            hint="write ::: a b c after the command, or --param x=1:10 before it",
        )
    is_line = len(command) == 1
    words = list(command)
    names = _bind(words, sources)
    if not any(_is_used(word, names, len(sources)) for word in words):
        words = [f"{words[0]} {{}}"] if is_line else [*words, "{}"]
    rows = combine(sources)
    if not rows:
        raise InputError("there are no values: a source is empty")
    if words == ["{}"]:
        return _commands(rows)
    jobs = []
    for row, name in zip(rows, _job_names(words[0], rows), strict=True):
        put = _Putting(row, names, quotes=is_line)
        line = put.into(words[0]) if is_line else shlex.join(put.into(word) for word in words)
        jobs.append(MappedJob(name, line))
    return jobs


def _commands(rows: Sequence[tuple[str, ...]]) -> list[MappedJob]:
    """Comments and blank lines are none."""
    lines = [" ".join(row).strip() for row in rows]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise InputError("there are no commands: all lines are blank or comments")
    names = _job_names("{}", [(line,) for line in lines])
    return [MappedJob(name, line) for name, line in zip(names, lines, strict=True)]


def _job_names(first_word: str, rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Returns the program and the values; with a number if these are not unique."""
    path = next(iter(first_word.split()), "")
    program = _UNSAFE.sub("_", path.rpartition("/")[2]).strip("_")
    begin = f"{program or 'job'}_"  # a bare value could be mistaken for the number of a job
    slugs = [_UNSAFE.sub("_", "_".join(row)).strip("_")[:_NAME_MOST] for row in rows]
    if all(slugs) and len(set(slugs)) == len(slugs):
        return [f"{begin}{slug}" for slug in slugs]
    digits = len(str(len(rows)))
    return [f"{begin}{number:0{digits}d}_{slug}".rstrip("_") for number, slug in enumerate(slugs, 1)]


def _bind(words: Sequence[str], sources: Sequence[Source]) -> dict[str, int]:
    """Binds names to sources. Undeclared names count only if there is one for each unnamed source

    and no other notation is used: in `awk '{print}' {}` print is not a name.
    """
    names = {source.name: index for index, source in enumerate(sources) if source.name}
    found = [match[1] for word in words for match in _REFERENCE.finditer(word)]
    unnamed = [index for index, source in enumerate(sources) if not source.name]
    unknown = list(dict.fromkeys(name for name in found if name and not name.isdigit() and name not in names))
    by_index = any(not name or name.isdigit() for name in found)
    if not by_index and len(unknown) == len(unnamed):
        names |= dict(zip(unknown, unnamed, strict=True))
    return names


def _is_used(word: str, names: Mapping[str, int], count: int) -> bool:
    return any(_stands_for_something(match[1], names, count) for match in _REFERENCE.finditer(word))


def _stands_for_something(name: str | None, names: Mapping[str, int], count: int) -> bool:
    if not name:
        return True
    return 1 <= int(name) <= count if name.isdigit() else name in names


class _Putting:
    def __init__(self, row: tuple[str, ...], names: Mapping[str, int], *, quotes: bool) -> None:
        self._row = row
        self._names = names
        self._quote = shlex.quote if quotes else str

    def into(self, word: str) -> str:
        return _REFERENCE.sub(self._value, word)

    def _value(self, match: re.Match[str]) -> str:
        name = match[1]
        if not _stands_for_something(name, self._names, len(self._row)):
            return match[0]
        if not name:
            return " ".join(self._quote(value) for value in self._row)
        return self._quote(self._row[int(name) - 1 if name.isdigit() else self._names[name]])


PLAN_NAME = "commands"
_NEVER_RUN = "exit 125"  # the ticket has the real command; a plan needs one


class CommandSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Text of the run (`Run.spec_text`), as JSON."""

    name: str  # of the job
    requirements: Requirements = Requirements()
    retry_lost: RetryLost | None = None


def text_of_command(spec: CommandSpec) -> str:
    return json.encode(spec).decode()


def plan_of_command(text: str) -> Plan:
    spec = json.decode(text, type=CommandSpec)
    job = PlannedJob(
        name=spec.name, command=_NEVER_RUN, requirements=spec.requirements, retry_lost=spec.retry_lost
    )
    return Plan(name=PLAN_NAME, jobs=(job,))
