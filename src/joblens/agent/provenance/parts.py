"""Parts of provenance: the machine, the code, the packages and the files that a command reads and writes."""

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.jobs.details import CodeVersion, Program, Provenance
from joblens.model.jobs.job import FileStamp, Job, is_of_workflow
from joblens.model.redaction.names import is_lasting_env
from joblens.model.redaction.secrets import recorded_env, redact_address
from joblens.probes.host.machine_load import HostFacts, read_hardware, system_name
from joblens.probes.proc.kernel_files import read_text
from joblens.probes.provenance.program_files import (
    CommandKind,
    Mark,
    as_text,
    is_python,
    is_script,
    mark_of,
    marks_of,
    package_folders,
    packages_in,
    program_paths,
    python_path_folders,
    python_version,
    remembered_path,
    sha256_of,
    starting_words,
    version_of,
)
from joblens.probes.provenance.repository import AskedChanges, Changes, Repository, find_repository

MOST_FILES = 200
_MOST_NAMED = 50
_LONGEST_ARGUMENT = 1024
_MAGIC = "*?["  # special characters of a pattern
_CLOCK_SLACK_NS = 20_000_000  # a file system's clock is up to one kernel tick behind
_MOST_READ = 4  # times the largest file that is read at all, because the outcome waits for it


def named_inputs(argv: Sequence[str], cwd: str, *, is_shell: bool) -> list[str]:
    """Returns arguments of a command that are plain files now, also as `--option=FILE`. The program
    itself is not included."""
    found: dict[str, None] = {}
    started = starting_words(argv, is_shell=is_shell)
    for argument in _path_arguments(argv, is_shell=is_shell):
        if argument not in started and _plain(remembered_path(argument, cwd)) is not None:
            found.setdefault(argument)
            if len(found) == _MOST_NAMED:
                break
    return list(found)


def expanded(patterns: Iterable[str], cwd: str) -> list[str]:
    """Returns files that match the patterns, relative to `cwd` if they are inside; a name without special
    characters matches itself, whether it exists or not, and so does a file that has such characters in
    its name."""
    found: dict[str, None] = {}
    for pattern in patterns:
        if not any(sign in pattern for sign in _MAGIC) or os.path.lexists(remembered_path(pattern, cwd)):
            found.setdefault(pattern)
            continue
        import glob  # seldom needed, and imports others

        for path in sorted(glob.iglob(pattern, root_dir=cwd or None, recursive=True)):
            if os.path.isfile(os.path.join(cwd, path)):
                found.setdefault(path)
    return list(found)[:MOST_FILES]


def stamp(path: str, cwd: str) -> FileStamp:
    """Returns the stamp without a digest. Of a folder, only its existence is recorded."""
    name = as_text(path)
    try:
        found = os.stat(remembered_path(path, cwd))
    except (OSError, ValueError):
        return FileStamp(name)
    if stat.S_ISREG(found.st_mode):
        return FileStamp(name, found.st_size, found.st_mtime_ns)
    return FileStamp(name, None, found.st_mtime_ns if stat.S_ISDIR(found.st_mode) else None)


def with_digest(before: FileStamp, cwd: str, largest: int) -> FileStamp:
    """Adds a digest of the content, if it is still the file that was stamped."""
    path = remembered_path(before.path, cwd)
    found = _plain(path)
    if found is None or (found.st_size, found.st_mtime_ns) != (before.size, before.mtime_ns):
        return before
    digest, _ = sha256_of(path, largest)
    return replace(before, digest=digest or None)


def outputs_of(job: Job, cwd: str, started_at_us: int, largest: int) -> tuple[FileStamp, ...]:
    """Returns the present outputs: declared ones, whether they exist or not; for patterns and for names
    in a command outside workflows, the files that are newer than its start."""
    newest_before_ns = started_at_us * 1000 - _CLOCK_SLACK_NS
    paths: dict[str, None] = {}
    for pattern in job.outputs:
        for path in expanded((pattern,), cwd):
            found = _plain(remembered_path(path, cwd))
            if path == pattern or (found is not None and found.st_mtime_ns >= newest_before_ns):
                paths.setdefault(path)
    if not is_of_workflow(job) and not job.attached and job.container is None:
        for argument in _path_arguments(job.argv, is_shell=job.is_shell):
            found = _plain(remembered_path(argument, cwd)) if argument not in paths else None
            if found is not None and found.st_mtime_ns >= newest_before_ns and len(paths) < MOST_FILES:
                paths.setdefault(argument)
    stamps = []
    left = largest // _MOST_READ if is_of_workflow(job) else largest * _MOST_READ  # other jobs wait for it
    for path in paths:
        one = stamp(path, cwd)
        if one.size is not None and one.size <= min(left, largest):
            one = with_digest(one, cwd, largest)
            left -= one.size or 0
        stamps.append(one)
    return tuple(stamps)


def _path_arguments(argv: Sequence[str], *, is_shell: bool) -> Iterator[str]:
    """Returns arguments that could be names of files. The first one is the program."""
    arguments: Sequence[str] = argv
    if is_shell:
        arguments = argv[0].split() if argv and not any(sign in argv[0] for sign in "'\"\\") else ()
    for argument in arguments[1:]:
        name, equals, value = argument.partition("=")
        path = argument
        if argument.startswith("-"):
            path = value if equals and name.startswith("--") else ""
        if path and len(path) <= _LONGEST_ARGUMENT and "\n" not in path and "\0" not in path:
            yield path


def _plain(path: str) -> os.stat_result | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


_GIT_TIMEOUT_S = 5.0
_CHANGES_HOLD_S = 2.0  # how long git is not asked again, unless the commit or the index changes
_LEAST_PAUSE = 20  # times the duration of the last answer: large repositories are asked less often
LARGEST_HASHED = 64 << 20
TOO_MANY = "one process started too many kinds of commands to distinguish them"
FILTERS = "the repository configures filters, or includes configuration that may: git would run these"
NOT_ASKED = "git is not started within other programs"
NOT_ANSWERED = "git had not answered yet when the job ended"
_LIMITS = {
    "stack": "RLIMIT_STACK",
    "open files": "RLIMIT_NOFILE",
    "processes": "RLIMIT_NPROC",
    "address space": "RLIMIT_AS",
    "locked memory": "RLIMIT_MEMLOCK",
    "core files": "RLIMIT_CORE",
}
_FileKey = tuple[str, int, int, int]


class ProvenanceParts:
    """Used on one thread."""

    def __init__(self, host: HostFacts, version: str, job_rlimits: tuple[tuple[int, int, int], ...]) -> None:
        self._host = host
        self._version = version
        self._job_rlimits = job_rlimits
        self._base: Provenance | None = None
        self._environment: dict[str, str] = {}
        self._changes: dict[str, _KnownChanges] = {}  # by root
        self._programs: dict[_FileKey, Program] = {}
        self._packages: dict[tuple[tuple[str, Mark], ...], dict[str, str]] = {}

    def collect(
        self,
        kind: CommandKind,
        *,
        asks_git: bool = True,
        started_at_ns: int | None = None,
        marks: dict[str, Mark] | None = None,
    ) -> tuple[Provenance, AskedChanges | None, str]:
        """Returns everything except git's answer, the question for git, and its root. `started_at_ns`:
        later changes are not what started. `marks` gets those of all files that it depends on, as they
        were before reading."""
        base = self._base = self._base or self._of_this_process()
        unknown = dict(base.unknown)
        marks = {} if marks is None else marks
        repository = find_repository(kind.cwd) if kind.cwd else None
        if repository is not None:
            marks |= marks_of(repository.files)
            repository = find_repository(kind.cwd)
        changes, question = None, None
        if repository is not None:
            changes = self._known_changes(repository) if asks_git else Changes(why=NOT_ASKED)
            if asks_git and repository.runs_programs:
                changes = Changes(why=FILTERS)
            if changes is None:
                question = AskedChanges(repository.root, _index_of(repository))
                changes = Changes(why=NOT_ANSWERED)
            if changes.why:
                unknown["changes"] = changes.why
        environment = self._environment if kind.environment is None else dict(kind.environment)
        python_path = environment.get("PYTHONPATH", "")
        programs, versions = self._read_programs(kind, python_path, unknown, started_at_ns, marks)
        found = Provenance(
            host=base.host,
            system=base.system,
            kernel=base.kernel,
            hardware=base.hardware,
            limits=base.limits,
            code=None if repository is None else _code(repository, changes or Changes()),
            programs=programs,
            versions={"joblens": self._version, **versions},
            environment=environment,
            unknown=unknown,
        )
        return found, question, "" if repository is None else repository.root

    def with_changes(self, found: Provenance, question: AskedChanges, root: str) -> Provenance:
        """Waits for git."""
        from msgspec.structs import replace

        assert found.code is not None
        changes = question.answer(_GIT_TIMEOUT_S)
        self._changes[root] = _KnownChanges(
            found.code.commit, question.index, question.asked_s, time.monotonic(), changes
        )
        unknown = {part: why for part, why in found.unknown.items() if part != "changes"}
        if changes.why:
            unknown["changes"] = _clean(changes.why)
        code = replace(found.code, is_dirty=changes.is_dirty, changes_digest=changes.digest)
        return replace(found, code=code, unknown=unknown)

    def forget_changes(self) -> None:
        """A file is known to have changed: git is asked again."""
        self._changes.clear()

    def _known_changes(self, repository: Repository) -> Changes | None:
        known = self._changes.get(repository.root)
        if known is None or known.commit != repository.commit or known.index_mark != _index_of(repository):
            return None
        hold_s = max(_CHANGES_HOLD_S, _LEAST_PAUSE * (known.answered_s - known.asked_s))
        return known.changes if time.monotonic() - known.asked_s < hold_s else None

    def _of_this_process(self) -> Provenance:
        self._environment = as_texts(recorded_env(os.environ, is_lasting_env))
        return Provenance(
            host=self._host.hostname,
            system=system_name(),
            kernel=self._host.kernel,
            hardware=read_hardware(self._host.memory_total_bytes),
            limits=_limits(self._job_rlimits),
        )

    # ---- programs ------------------------------------------------------------------------------------

    def _read_programs(
        self,
        kind: CommandKind,
        python_path: str,
        unknown: dict[str, str],
        started_at_ns: int | None,
        marks: dict[str, Mark],
    ) -> tuple[tuple[Program, ...], dict[str, str]]:
        paths = program_paths(kind.words, kind.cwd, kind.search)
        marks |= marks_of(paths)
        if kind.is_one_of_many:
            unknown["programs"] = TOO_MANY
        elif not paths and kind.words:
            unknown["programs"] = f"'{_clean(kind.words[0])}' was not found here"
        versions: dict[str, str] = {}
        for path in paths:
            if not is_python(path) or versions:
                continue
            if is_script(path):
                unknown["versions"] = f"{_clean(path)} is a script that starts some Python"
                continue
            options = [argument for argument in kind.words[1:] if argument.startswith("-")]
            more_folders = python_path_folders(python_path, kind.cwd, options)
            folders = marks_of((*more_folders, *package_folders(path)))
            marks |= folders
            versions = {"python": python_version(path), **self._packages_in(folders)}
        return tuple(self._program(path, unknown, started_at_ns) for path in paths), versions

    def _program(self, path: str, unknown: dict[str, str], started_at_ns: int | None) -> Program:
        try:
            found = os.stat(path)
        except OSError:
            return Program(path=_clean(path))
        if started_at_ns is not None and started_at_ns < found.st_mtime_ns <= time.time_ns():
            unknown["programs"] = f"{_clean(path)} was changed after the job had started"
            return Program(path=_clean(path))
        key = path, found.st_ino, found.st_size, found.st_mtime_ns
        known = self._programs.get(key)
        if known is None:
            digest, size = sha256_of(path, LARGEST_HASHED)
            version = "" if is_script(path) else version_of(path)
            known = self._programs[key] = Program(
                path=_clean(path), sha256=digest, bytes=size, version=version
            )
        return known

    def _packages_in(self, folders: dict[str, Mark]) -> dict[str, str]:
        """Reads them again after an installation."""
        key = tuple(folders.items())
        if key not in self._packages:
            self._packages[key] = packages_in(folders)
        return self._packages[key]


class _KnownChanges(Struct, frozen=True):
    commit: str
    index_mark: Mark
    asked_s: float
    answered_s: float
    changes: Changes


def _index_of(repository: Repository) -> Mark:
    return mark_of(os.path.join(repository.git_dir, "index"))


def _code(repository: Repository, changes: Changes) -> CodeVersion:
    return CodeVersion(
        commit=repository.commit,
        is_dirty=changes.is_dirty,
        branch=_clean(repository.branch),
        remote=redact_address(_clean(repository.remote)),
        root=_clean(repository.root),
        changes_digest=changes.digest,
    )


def _limits(job_rlimits: tuple[tuple[int, int, int], ...]) -> dict[str, str]:
    import resource

    changed = {number: soft for number, soft, _ in job_rlimits}
    notes: dict[str, str] = {}
    for name, constant in _LIMITS.items():
        number = getattr(resource, constant, None)
        if number is not None:
            soft = changed.get(number, resource.getrlimit(number)[0])
            notes[name] = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    for line in (read_text("/proc/self/status") or "").splitlines():
        if line.startswith("Umask:"):
            notes["umask"] = line.split()[1]
    return notes


def as_texts(env: Mapping[str, str]) -> dict[str, str]:
    return {_clean(name): _clean(value) for name, value in env.items()}


def _clean(text: str) -> str:
    """File names may contain bytes that are not text."""
    return text if text.isascii() else os.fsencode(text).decode("utf-8", "backslashreplace")
