"""Selection of jobs to run: by name, glob, label or regex, and by changes since they last ran."""

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import translate
from hashlib import blake2b
from typing import Any

from msgspec import Struct, json

from joblens.model.jobs.job import FileStamp
from joblens.model.runs.plan import Plan, PlannedDataset, PlannedJob
from joblens.model.runs.workflow_spec import HashMode
from joblens.plan.commands.names import search_of
from joblens.plan.workflows.graph import Graph
from joblens.plan.workflows.problems import did_you_mean

_LABEL = "label:"
_REGEX = "regex:"
_GLOB = frozenset("*?[")


class Selection(Struct, frozen=True):
    """Indexes of the jobs to run, ascending. `problems`: words that match no job."""

    indexes: tuple[int, ...]
    problems: tuple[str, ...] = ()


def select(plan: Plan, only: Sequence[str], skip: Sequence[str], until: Sequence[str]) -> Selection:
    """Selects jobs: `until` selects jobs with their dependencies, `only` exactly the matched ones, `skip`
    excludes jobs with their dependents. Jobs that a job of the run has added are never excluded."""
    indexes = set(range(len(plan.jobs)))
    if not (only or skip or until):
        return Selection(tuple(range(len(plan.jobs))))
    graph = Graph(plan)
    finder = _Finder(plan)
    if until:
        indexes &= graph.needed_by(finder.find("--until", until))
    if only:
        indexes &= set(finder.find("--only", only))
    if skip:
        indexes -= graph.behind(finder.find("--skip", skip))
    indexes |= {index for index, job in enumerate(plan.jobs) if job.spawned_by >= 0}
    if not indexes and not finder.problems:
        finder.problems.append("no jobs to run: --only, --skip and --until exclude every job")
    return Selection(tuple(sorted(indexes)), tuple(finder.problems))


def find_jobs(plan: Plan, option: str, words: Sequence[str]) -> Selection:
    """Returns exactly the jobs that the words match."""
    finder = _Finder(plan)
    indexes = finder.find(option, words)
    return Selection(tuple(sorted(set(indexes))), tuple(finder.problems))


class _Finder:
    def __init__(self, plan: Plan) -> None:
        self.problems: list[str] = []
        self._indexes = {job.name: index for index, job in enumerate(plan.jobs)}
        self._labels: dict[str, list[int]] = {}
        for index, job in enumerate(plan.jobs):
            if job.label:
                self._labels.setdefault(job.label, []).append(index)

    def find(self, option: str, words: Sequence[str]) -> list[int]:
        found: list[int] = []
        for word in words:
            found += self._indexes_of(option, word)
        return found

    def _indexes_of(self, option: str, word: str) -> list[int]:
        if word in self._indexes:
            return [self._indexes[word]]
        if word.startswith(_LABEL):
            label = word.removeprefix(_LABEL)
            names = _matching(label, self._labels)
            if not names:
                self.problems.append(
                    f"{option}: no job has the label '{label}'{did_you_mean(label, self._labels)}"
                )
            return [index for name in names for index in self._labels[name]]
        if word.startswith(_REGEX):
            return self._matching_regex(option, word)
        names = _matching(word, self._indexes)
        if not names and _GLOB & set(word):
            self.problems.append(f"{option}: no job's name matches '{word}'")
        elif not names:
            self.problems.append(f"{option}: there is no job '{word}'{did_you_mean(word, self._indexes)}")
        return [self._indexes[name] for name in names]

    def _matching_regex(self, option: str, word: str) -> list[int]:
        """Returns jobs with a match anywhere in the name, as for `depends_on_regexes`."""
        try:
            search = search_of(word.removeprefix(_REGEX))
        except re.error as error:
            self.problems.append(f"{option}: '{word}' is not a valid regular expression: {error}")
            return []
        indexes = [index for name, index in self._indexes.items() if search(name)]
        if not indexes:
            self.problems.append(f"{option}: no job's name matches '{word}'")
        return indexes


def _matching(word: str, known: Mapping[str, object]) -> list[str]:
    if word in known:
        return [word]
    if not _GLOB & set(word):
        return []
    matches = re.compile(translate(word)).match
    return [name for name in known if matches(name)]


class LastSuccess(Struct, frozen=True):
    """Digest and inputs of a job's last success, from its record."""

    command_digest: str
    inputs: tuple[FileStamp, ...] = ()


class FilesNow:
    """Current state of files. `digest_of` is called only if the time stamp has changed. `dataset_of`: returns
    the stamp of a dataset, without `files` if it is unreadable."""

    def __init__(
        self,
        stamp_of: Callable[[str], FileStamp],
        digest_of: Callable[[str], str | None],
        dataset_of: Callable[[PlannedDataset], FileStamp] = lambda dataset: FileStamp(dataset.path),
    ) -> None:
        self.stamp_of = stamp_of
        self.digest_of = digest_of
        self.dataset_of = dataset_of


def command_digest(plan: Plan, job: PlannedJob) -> str:
    """Returns a digest of everything that determines the job's result: command, script, environment,
    container, user data of the spec."""
    inputs = [plan.user_data[index] for index in job.input_user_data]
    given = [(data.name, data.data) for data in inputs if data.producer < 0]
    content: tuple[Any, ...] = (job.command, job.invocation_script, sorted(job.env.items()), given)
    if job.container is not None:
        content += (job.container,)
    return blake2b(json.encode(content), digest_size=16).hexdigest()


def jobs_to_run_again(
    plan: Plan,
    last: Mapping[int, LastSuccess],
    files: FilesNow,
    *,
    without_success: Callable[[int], str] = lambda _: "has not succeeded yet",
    shown: Callable[[str], str] = str,
) -> dict[int, str]:
    """Returns index -> reason of jobs that must run, in topological order: jobs without a last success
    (`without_success`: the reason), changed ones, and all their dependents. `shown`: formats a path as in
    records."""
    cache = _FileCache(plan, files, shown)
    reasons: dict[int, str] = {}
    for index in Graph(plan).order():
        job = plan.jobs[index]
        earlier = next((one for one in job.depends_on if one in reasons), None)
        if index not in last:
            reasons[index] = without_success(index)
        elif last[index].command_digest != command_digest(plan, job):
            parts = "script or environment" if job.container is None else "script, environment or container"
            reasons[index] = f"its command, {parts} has changed"
        elif earlier is not None:
            reasons[index] = f"needs '{plan.jobs[earlier].name}', which runs again"
        else:
            reason = (
                cache.changed_input(job, last[index])
                or cache.missing_output(job)
                or cache.changed_dataset(job, last[index])
            )
            if reason:
                reasons[index] = reason
    return reasons


class _FileCache:
    """Caches files: each is checked once, however many jobs read it."""

    def __init__(self, plan: Plan, files: FilesNow, shown: Callable[[str], str]) -> None:
        self._plan = plan
        self._shown = shown
        self._files = files
        self._stamps: dict[str, FileStamp] = {}
        self._digests: dict[str, str | None] = {}
        self._datasets: dict[int, FileStamp] = {}

    def changed_input(self, job: PlannedJob, last: LastSuccess) -> str:
        before = {stamp.path: stamp for stamp in last.inputs}
        for index in job.input_files:
            path = self._plan.files[index].path
            then, now = before.get(self._shown(path)), self._stamp(path)
            if then is None:
                return f"input '{path}' is new"
            if now.mtime_ns is None:
                return f"input '{path}' is missing"
            if then.mtime_ns is None:
                return f"input '{path}' was missing"
            if self._differs(path, then, now):
                return f"input '{path}' has changed"
        return ""

    def missing_output(self, job: PlannedJob) -> str:
        for index in job.output_files:
            path = self._plan.files[index].path
            if self._stamp(path).mtime_ns is None:
                return f"output '{path}' is missing"
        for index in job.output_datasets:
            dataset = self._plan.datasets[index]
            if self._stamp(dataset.path).mtime_ns is None:
                return f"dataset '{dataset.name}' is missing"
        return ""

    def changed_dataset(self, job: PlannedJob, last: LastSuccess) -> str:
        """Compares datasets, last because reading them may take long."""
        before = {stamp.path: stamp for stamp in last.inputs if stamp.files is not None}
        for index in job.input_datasets:
            dataset = self._plan.datasets[index]
            name, then = dataset.name, before.get(self._shown(dataset.path))
            if then is None:
                return f"dataset '{name}' is new"
            if then.hash_mode != dataset.hash_mode:
                return f"the hash mode of dataset '{name}' has changed"
            if self._stamp(dataset.path).mtime_ns is None:
                return f"dataset '{name}' is missing"
        for index in job.input_datasets:
            dataset = self._plan.datasets[index]
            then = before[self._shown(dataset.path)]
            if dataset.hash_mode is not HashMode.NONE and then.digest != self._dataset(index).digest:
                return f"dataset '{dataset.name}' has changed"
        return ""

    def _dataset(self, index: int) -> FileStamp:
        if index not in self._datasets:
            self._datasets[index] = self._files.dataset_of(self._plan.datasets[index])
        return self._datasets[index]

    def _differs(self, path: str, then: FileStamp, now: FileStamp) -> bool:
        if then.mtime_ns == now.mtime_ns and then.size == now.size:
            return False
        if then.size != now.size or then.digest is None:
            return True
        if path not in self._digests:
            self._digests[path] = self._files.digest_of(path)
        return self._digests[path] != then.digest

    def _stamp(self, path: str) -> FileStamp:
        if path not in self._stamps:
            self._stamps[path] = self._files.stamp_of(path)
        return self._stamps[path]
