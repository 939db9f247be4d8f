"""Command lines as plans: one command, or a sweep `cmd {x}` with one job per combination.

`::: a b` gives values, a second `:::` makes all pairs, `:::+` is zipped with the values before it, and `::::
file` takes the lines of a file. `{}` is all values, `{1}` the value of the first source, `{name}` that of a
parameter; undeclared names are bound to the sources in order.
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
    is_linked: bool = False  # zipped with the previous one
    name: str = ""  # of a parameter; '': by position


class MappedJob(Struct, frozen=True):
    name: str
    command: str


def refuse_misplaced(words: Sequence[str], options: Collection[str]) -> None:
    """Rejects an option after the values, which would become a value and start a job."""
    index = next((at for at, word in enumerate(words) if word in _SOURCES), len(words))
    for word in words[index:]:
        if word.partition("=")[0] in options:
            raise InputError(
                f"{word} is among the values",
                hint="put options of map before the command; pass it as a value with --param",
            )


def split_words(
    words: Sequence[str], lines_of: Callable[[str], Sequence[str]]
) -> tuple[tuple[str, ...], list[Source]]:
    """Returns (command, sources after it). `lines_of` reads a file."""
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
        raise InputError("the first source cannot be linked: no source precedes it", hint="write ::: or ::::")
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
            raise InputError(f"{mark} is followed by nothing", hint=f"write {what}: {mark} a b")
    return parts


def combine(sources: Sequence[Source]) -> list[tuple[str, ...]]:
    """Returns all combinations of one value per source; linked sources are zipped. The last varies
    fastest."""
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
            raise InputError(f"linked sources must have equally many values, not {lengths}")
        rows.append(list(zip(*(source.values for source in group), strict=True)))
    return [tuple(itertools.chain.from_iterable(parts)) for parts in itertools.product(*rows)]


def mapped_jobs(command: Sequence[str], sources: Sequence[Source]) -> list[MappedJob]:
    """Builds the jobs. A single word is a shell line, into which values are quoted. Several words are a
    command, and values become part of its words. A line of only `{}` runs the values as shell lines."""
    if not sources:
        if any(word.partition("=")[0] == "--param" for word in command[1:]):
            raise InputError(
                "no values: --param after the command is part of the command",
                hint="write --param x=1:10 before it",
            )
        raise InputError(
            "no values",
            hint="write ::: a b c after the command, or --param x=1:10 before it",
        )
    is_line = len(command) == 1
    words = list(command)
    names = _bind(words, sources)
    if not any(_is_used(word, names, len(sources)) for word in words):
        words = [f"{words[0]} {{}}"] if is_line else [*words, "{}"]
    rows = combine(sources)
    if not rows:
        raise InputError("no values: a source is empty")
    if words == ["{}"]:
        return _commands(rows)
    jobs = []
    for row, name in zip(rows, _job_names(words[0], rows), strict=True):
        filler = _Filler(row, names, quotes=is_line)
        line = filler.fill(words[0]) if is_line else shlex.join(map(filler.fill, words))
        jobs.append(MappedJob(name, line))
    return jobs


def _commands(rows: Sequence[tuple[str, ...]]) -> list[MappedJob]:
    """Builds jobs from shell lines, without comments and blank lines."""
    lines = [" ".join(row).strip() for row in rows]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise InputError("no commands: all lines are blank or comments")
    names = _job_names("{}", [(line,) for line in lines])
    return [MappedJob(name, line) for name, line in zip(names, lines, strict=True)]


def _job_names(first_word: str, rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Returns names made of the program and the values, with a number if these are not unique."""
    path = next(iter(first_word.split()), "")
    program = _UNSAFE.sub("_", path.rpartition("/")[2]).strip("_")
    begin = f"{program or 'job'}_"  # a bare value could look like the number of a job
    slugs = [_UNSAFE.sub("_", "_".join(row)).strip("_")[:_NAME_MOST] for row in rows]
    if all(slugs) and len(set(slugs)) == len(slugs):
        return [f"{begin}{slug}" for slug in slugs]
    digits = len(str(len(rows)))
    return [f"{begin}{number:0{digits}d}_{slug}".rstrip("_") for number, slug in enumerate(slugs, 1)]


def _bind(words: Sequence[str], sources: Sequence[Source]) -> dict[str, int]:
    """Binds names to sources. Undeclared names count only if there is one per unnamed source and no other
    notation is used: in `awk '{print}' {}`, print is not a name."""
    names = {source.name: index for index, source in enumerate(sources) if source.name}
    found = [match[1] for word in words for match in _REFERENCE.finditer(word)]
    unnamed = [index for index, source in enumerate(sources) if not source.name]
    unknown = list(dict.fromkeys(name for name in found if name and not name.isdigit() and name not in names))
    by_index = any(not name or name.isdigit() for name in found)
    if not by_index and len(unknown) == len(unnamed):
        names |= dict(zip(unknown, unnamed, strict=True))
    return names


def _is_used(word: str, names: Mapping[str, int], count: int) -> bool:
    return any(_is_placeholder(match[1], names, count) for match in _REFERENCE.finditer(word))


def _is_placeholder(name: str | None, names: Mapping[str, int], count: int) -> bool:
    if not name:
        return True
    return 1 <= int(name) <= count if name.isdigit() else name in names


class _Filler:
    def __init__(self, row: tuple[str, ...], names: Mapping[str, int], *, quotes: bool) -> None:
        self._row = row
        self._names = names
        self._quote = shlex.quote if quotes else str

    def fill(self, word: str) -> str:
        return _REFERENCE.sub(self._value, word)

    def _value(self, match: re.Match[str]) -> str:
        name = match[1]
        if not _is_placeholder(name, self._names, len(self._row)):
            return match[0]
        if not name:
            return " ".join(self._quote(value) for value in self._row)
        return self._quote(self._row[int(name) - 1 if name.isdigit() else self._names[name]])


PLAN_NAME = "commands"
_NEVER_RUN = "exit 125"  # placeholder: the ticket has the real command


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
