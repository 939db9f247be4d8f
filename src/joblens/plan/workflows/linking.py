"""Linking: resolves names to indexes for the dependencies, inputs and outputs of each expanded job."""

import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from posixpath import normpath

from msgspec import Struct

from joblens.model.runs.workflow_spec import JobSpec
from joblens.plan.commands.names import NameIndex
from joblens.plan.commands.references import KINDS, check_user_data, resolve_paths
from joblens.plan.workflows.problems import Path, Problems
from joblens.plan.workflows.sweeps import Expanded

Indexes = tuple[int, ...]
_NO_JOBS: list[int] = []
_LONG = 100  # longer tuples are not searched for equal ones


class Links(Struct, frozen=True, gc=False):
    """Inputs and outputs of a job, as indexes. `command` and `script`: with paths filled in."""

    command: str
    script: str = ""
    input_files: Indexes = ()
    output_files: Indexes = ()
    input_user_data: Indexes = ()
    output_user_data: Indexes = ()
    input_datasets: Indexes = ()
    output_datasets: Indexes = ()


# Kind and direction of a job's lists, in the order of the fields of Links.
_LISTS = tuple((kind, way) for kind in KINDS for way in ("input", "output"))


class Things:
    """Files, user data or datasets of a workflow, with the jobs that make them."""

    def __init__(self, kind: str, index: NameIndex, paths: list[str] | None = None) -> None:
        self.kind = kind  # in messages
        self.index = index
        self.paths = paths or []  # as written; user data has none
        # Two names of one path are one file, with the same maker.
        self.identities = index.names if paths is None else [normpath(path) for path in paths]
        self.makers: dict[str, list[int]] = {}  # of a dataset there may be several

    def makers_of(self, job_index: int) -> list[int]:
        """Returns the makers, ascending."""
        return self.makers.get(self.identities[job_index], _NO_JOBS)

    def maker_of(self, job_index: int) -> int:
        """Returns the maker; -1: none."""
        makers = self.makers_of(job_index)
        return makers[0] if makers else -1


class Linker:
    def __init__(
        self, jobs: list[Expanded], index: NameIndex, things: Mapping[str, Things], problems: Problems
    ) -> None:
        """`things`: by kind (KINDS)."""
        self._jobs = jobs
        self._index = index
        self._things = things
        self._problems = problems
        self._shared: dict[Indexes, Indexes] = {}

    # ---- inputs and outputs ------------------------------------------------------------------------------

    def links(self) -> list[Links]:
        """Returns the links of every job, and records makers in `Things`."""
        return [self._links_of(job_index, each) for job_index, each in enumerate(self._jobs)]

    def _links_of(self, job_index: int, expanded: Expanded) -> Links:
        job: JobSpec = expanded.value
        path: Path = ("jobs", expanded.entry)
        if "${" not in job.command and "${" not in (job.invocation_script or ""):
            links = Links(job.command, job.invocation_script or "", *self._written(job, path))
        else:
            links = self._with_references(job, path)
        if links.output_files or links.output_user_data or links.output_datasets:
            self._note_makers(job_index, path, links)
        return links

    def _written(self, job: JobSpec, path: Path) -> list[Indexes]:
        """Returns the names in the job's lists, in the order of _LISTS."""
        files, data, sets = (self._things[kind] for kind in KINDS)
        return [
            self._listed(files, job.input_files, job.input_file_regexes, path, "input_file"),
            self._listed(files, job.output_files, job.output_file_regexes, path, "output_file"),
            self._listed(data, job.input_user_data, job.input_user_data_regexes, path, "input_user_data"),
            self._listed(data, job.output_user_data, job.output_user_data_regexes, path, "output_user_data"),
            self._listed(sets, job.input_datasets, (), path, "input_dataset"),
            self._listed(sets, job.output_datasets, (), path, "output_dataset"),
        ]

    def _listed(
        self, things: Things, names: tuple[str, ...], regexes: tuple[str, ...], path: Path, key: str
    ) -> Indexes:
        if not names and not regexes:
            return ()
        list_key = key if key.endswith("user_data") else f"{key}s"
        found = self._named(things.index, names, things.kind, (*path, list_key))
        found += self._matched(things.index, regexes, things.kind, (*path, f"{key}_regexes"))
        return self._share(tuple(dict.fromkeys(found)))

    def _with_references(self, job: JobSpec, path: Path) -> Links:
        """Adds references in texts to the names in lists."""
        lists = self._written(job, path)
        texts = []
        for key, text in (("command", job.command), ("invocation_script", job.invocation_script or "")):
            found = resolve_paths(text, self._path_of)
            texts.append(found.text)
            for which, inside in enumerate(found.unclear):
                message = f"'${{{inside}}}' is not a valid reference; write it as ${{files.input.NAME}}"
                self._problems.note((*path, key), message, f"unclear {which}")
            for which, (kind, way) in enumerate(_LISTS):
                if names := found.names.get((kind, way)):
                    things = self._things[kind]
                    indexes = self._named(things.index, names, things.kind, (*path, key), None)
                    lists[which] = self._share(tuple(dict.fromkeys([*lists[which], *indexes])))
        line = f"{texts[1]} {texts[0]}" if texts[1] else texts[0]
        unclear = check_user_data(line)
        if unclear is not None:
            reference, why = unclear
            key = "command" if reference in texts[0] else "invocation_script"
            self._problems.note((*path, key), f"{reference} {why}", "unclear user data")
        return Links(texts[0], texts[1], *lists)

    def _path_of(self, kind: str, name: str) -> str | None:
        things = self._things[kind]
        job_index = things.index.indexes.get(name) if things.paths else None
        return None if job_index is None else things.paths[job_index]

    def _note_makers(self, job_index: int, path: Path, links: Links) -> None:
        for kind in KINDS:
            things, key = self._things[kind], f"output_{kind}"
            inputs, outputs = getattr(links, f"input_{kind}"), getattr(links, key)
            read = {things.identities[one] for one in inputs}
            for which, one in enumerate(outputs):
                identity, name = things.identities[one], things.index.names[one]
                makers = things.makers.setdefault(identity, [])
                if job_index not in makers[-1:]:
                    makers.append(job_index)
                this = self._name(job_index)
                if makers[0] != job_index and kind != "datasets":
                    message = f"{things.kind} '{name}' is made by both '{self._name(makers[0])}' and '{this}'"
                    self._problems.note((*path, self._key_with(job_index, key, name)), message, which)
                if identity in read:
                    message = f"job '{this}' both reads and makes {things.kind} '{name}'"
                    self._problems.note(
                        (*path, self._key_with(job_index, key, name)), message, f"itself {which}"
                    )

    def _key_with(self, job_index: int, key: str, name: str) -> str:
        """Returns the key that has the name: the list, a regex, or the command."""
        job = self._jobs[job_index].value
        if name in getattr(job, key):
            return key
        regexes = key.removesuffix("s") + "_regexes"
        if getattr(job, regexes, ()):
            return regexes
        script = job.invocation_script or ""
        return (
            "invocation_script" if f".{name}}}" in script and f".{name}}}" not in job.command else "command"
        )

    # ---- dependencies ------------------------------------------------------------------------------------

    def depends_on(self, job_index: int, links: Links) -> Indexes:
        """Returns all dependencies, ascending, without duplicates."""
        expanded = self._jobs[job_index]
        job: JobSpec = expanded.value
        path: Path = ("jobs", expanded.entry)
        groups: list[Indexes] = []
        if job.depends_on:
            named = self._named(self._index, job.depends_on, "job", (*path, "depends_on"))
            if job_index in named:
                self._problems.note((*path, "depends_on"), f"job '{job.name}' depends on itself")
            groups.append(_ascending(named))
        for which, regex in enumerate(job.depends_on_regexes):
            found = self._match(self._index, regex, "job", (*path, "depends_on_regexes", which))
            if _has(found, job_index):
                message = f"regex '{regex}' matches job '{job.name}' itself; anchor it with ^ or $"
                self._problems.note((*path, "depends_on_regexes", which), message)
            groups.append(found)
        for kind in KINDS:
            inputs: Indexes = getattr(links, f"input_{kind}")
            if inputs:
                things = self._things[kind]
                groups.append(_ascending([maker for one in inputs for maker in things.makers_of(one)]))
        groups = [group for group in groups if group]
        if not groups:
            return ()
        if len(groups) == 1 and not _has(groups[0], job_index):
            # Matches of a regex share one tuple.
            return groups[0] if len(groups[0]) > _LONG else self._share(groups[0])
        united = set().union(*groups)
        united.discard(job_index)  # already reported
        return self._share(tuple(sorted(united)))

    # ---- names and regexes -------------------------------------------------------------------------------

    def jobs_named(self, names: tuple[str, ...], regexes: tuple[str, ...], path: Path) -> Indexes:
        """Returns the jobs of an action."""
        found = self._named(self._index, names, "job", (*path, "jobs"))
        where: Path = (*path, "job_name_regexes")
        by_regex = [self._find(self._index, regex, (*where, which)) for which, regex in enumerate(regexes)]
        found += [job_index for indexes in by_regex for job_index in indexes or ()]
        for which, indexes in enumerate(by_regex):
            if indexes == () and self._index.is_complete:
                message = f"regex '{regexes[which]}' matches no job{_some_of(self._index.indexes)}"
                # If others match, it may be for jobs of another day.
                (self._problems.warn if found else self._problems.note)((*where, which), message)
        return tuple(sorted(set(found)))

    def _named(
        self, index: NameIndex, names: tuple[str, ...], kind: str, path: Path, first: int | None = 0
    ) -> list[int]:
        """Resolves names. `first`: index of the first one in the list at `path`; None: they are in a text."""
        found = []
        for which, name in enumerate(names):
            job_index = index.indexes.get(name)
            if job_index is None and index.might_have(name):
                continue
            if job_index is None:
                where = path if first is None else (*path, first + which)
                self._problems.unknown(where, kind, name, index.indexes, part=f"{kind} {which}")
            else:
                found.append(job_index)
        return found

    def _matched(self, index: NameIndex, regexes: tuple[str, ...], kind: str, path: Path) -> list[int]:
        found: list[int] = []
        for which, regex in enumerate(regexes):
            found += self._match(index, regex, kind, (*path, which))
        return found

    def _find(self, index: NameIndex, regex: str, path: Path) -> Indexes | None:
        """Returns the matches; None: not a valid regex, which is reported."""
        try:
            return index.matching(regex)
        except re.error as error:
            self._problems.note(path, f"'{regex}' is not a regex: {error}")
            return None

    def _match(self, index: NameIndex, regex: str, kind: str, path: Path) -> Indexes:
        found = self._find(index, regex, path)
        if found is None:
            return ()
        if not found and index.is_complete:
            self._problems.note(path, f"regex '{regex}' matches no {kind}{_some_of(index.indexes)}")
        return found

    def _name(self, job_index: int) -> str:
        return str(self._jobs[job_index].value.name)

    def _share(self, indexes: Indexes) -> Indexes:
        return self._shared.setdefault(indexes, indexes)


def index_of(
    kind: str,
    section: str,
    entries: list[Expanded],
    not_made: Sequence[re.Pattern[str]],
    problems: Problems,
) -> NameIndex:
    """Builds an index; reports duplicate names."""
    index = NameIndex([each.value.name for each in entries], not_made)
    if len(index.indexes) < len(entries):
        _note_duplicates(kind, section, entries, index, problems)
    return index


def _note_duplicates(
    kind: str, section: str, entries: list[Expanded], index: NameIndex, problems: Problems
) -> None:
    for job_index, each in enumerate(entries):
        first = index.indexes[each.value.name]
        if first == job_index or not each.value.name:
            continue
        if not index.is_complete and not each.names and "{" in each.value.name:
            continue  # unexpanded: its names are unknown
        message = f"duplicate {kind} '{each.value.name}'"
        if entries[first].entry == each.entry:
            message += f"; use every parameter in the name: {{{'}, {'.join(each.names)}}}"
        problems.note((section, each.entry, "name"), message)


def _some_of(names: Collection[str]) -> str:
    if not names:
        return "; the workflow has none"
    shown = [name for name, _ in zip(names, range(3), strict=False)]
    return f"; names are, for example, {', '.join(repr(name) for name in shown)}"


def _ascending(indexes: list[int]) -> Indexes:
    return tuple(sorted(set(indexes))) if len(indexes) > 1 else tuple(indexes)


def _has(ascending: Indexes, job_index: int) -> bool:
    at = bisect_left(ascending, job_index)
    return at < len(ascending) and ascending[at] == job_index
