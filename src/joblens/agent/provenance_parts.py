"""What a job runs in, put together from what the probes read: the machine and this process once, the code
and the programs of each kind of command."""

import os
import time
from collections.abc import Mapping

from joblens.agent.command_kind import CommandKind
from joblens.model.lasting_env import is_lasting_env
from joblens.model.provenance import CodeVersion, Program, Provenance
from joblens.model.secrets import redact_address, redact_env
from joblens.probes.hardware import read_hardware, system_name
from joblens.probes.host import HostFacts
from joblens.probes.kernel_files import read_text
from joblens.probes.program_files import program_paths, sha256_of
from joblens.probes.python_packages import is_python, package_folders, packages_of, python_version
from joblens.probes.repository import Repository, find_repository
from joblens.probes.repository_changes import AskedChanges, Changes

_GIT_PATIENCE_S = 5.0
_CHANGES_HOLD_S = 10.0  # so long nobody asks git again, unless the commit is another
LARGEST_HASHED = 64 << 20
TOO_MANY = "more kinds of commands were started by one process than are told apart"
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
        self._changes: dict[str, tuple[str, float, Changes]] = {}  # by root: commit, when, what
        self._programs: dict[_FileKey, Program] = {}
        self._packages: dict[tuple[tuple[str, int], ...], dict[str, str]] = {}

    def look(
        self, kind: CommandKind, *, asks_git: bool = True
    ) -> tuple[Provenance, AskedChanges | None, str]:
        """-> all but what git has to be asked for, the question, and the root it is about"""
        base = self._base = self._base or self._of_this_process()
        unknown = dict(base.unknown)
        repository = find_repository(kind.cwd) if kind.cwd else None
        changes, question = None, None
        if repository is not None:
            changes = self._known_changes(repository) if asks_git else Changes(why=NOT_ASKED)
            if changes is None:
                question = AskedChanges(repository.root)
                changes = Changes(why=NOT_ANSWERED)
            if changes.why:
                unknown["changes"] = changes.why
        programs, versions = self._look_at_programs(kind, unknown)
        environment = self._environment if kind.environment is None else dict(kind.environment)
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
        changes = question.answer(_GIT_PATIENCE_S)
        self._changes[root] = found.code.commit, time.monotonic(), changes
        unknown = {part: why for part, why in found.unknown.items() if part != "changes"}
        if changes.why:
            unknown["changes"] = _clean(changes.why)
        code = replace(found.code, is_dirty=changes.is_dirty, changes_digest=changes.digest)
        return replace(found, code=code, unknown=unknown)

    def _known_changes(self, repository: Repository) -> Changes | None:
        commit, at_s, changes = self._changes.get(repository.root, ("", 0.0, None))
        is_known = commit == repository.commit and time.monotonic() - at_s < _CHANGES_HOLD_S
        return changes if is_known else None

    def _of_this_process(self) -> Provenance:
        allowed = {name: value for name, value in os.environ.items() if is_lasting_env(name)}
        self._environment = as_texts(redact_env(allowed))
        return Provenance(
            host=self._host.hostname,
            system=system_name(),
            kernel=self._host.kernel,
            hardware=read_hardware(self._host.memory_total_bytes),
            limits=_limits(self._job_rlimits),
        )

    # ---- programs ------------------------------------------------------------------------------------

    def _look_at_programs(
        self, kind: CommandKind, unknown: dict[str, str]
    ) -> tuple[tuple[Program, ...], dict[str, str]]:
        paths = program_paths(kind.words, kind.cwd, kind.search)
        if kind.is_one_of_many:
            unknown["programs"] = TOO_MANY
        elif not paths and kind.words:
            unknown["programs"] = f"'{_clean(kind.words[0])}' was not found here"
        versions: dict[str, str] = {}
        for path in paths:
            if is_python(path) and not versions:
                versions = {"python": python_version(path), **self._packages_of(path)}
        return tuple(map(self._program, paths)), versions

    def _program(self, path: str) -> Program:
        try:
            found = os.stat(path)
        except OSError:
            return Program(path=_clean(path))
        key = path, found.st_ino, found.st_size, found.st_mtime_ns
        known = self._programs.get(key)
        if known is None:
            digest, size = sha256_of(path, LARGEST_HASHED)
            version = python_version(path) if is_python(path) else ""
            known = self._programs[key] = Program(
                path=_clean(path), sha256=digest, bytes=size, version=version
            )
        return known

    def _packages_of(self, path: str) -> dict[str, str]:
        """Read again when something was installed."""
        key = tuple((folder, _mtime_ns(folder)) for folder in package_folders(path))
        if key not in self._packages:
            self._packages[key] = packages_of(path)
        return self._packages[key]


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
    told: dict[str, str] = {}
    for name, constant in _LIMITS.items():
        number = getattr(resource, constant, None)
        if number is not None:
            soft = changed.get(number, resource.getrlimit(number)[0])
            told[name] = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    for line in (read_text("/proc/self/status") or "").splitlines():
        if line.startswith("Umask:"):
            told["umask"] = line.split()[1]
    return told


def _mtime_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def as_texts(env: Mapping[str, str]) -> dict[str, str]:
    return {_clean(name): _clean(value) for name, value in env.items()}


def _clean(text: str) -> str:
    """Names of files may hold bytes that are no text."""
    return text if text.isascii() else os.fsencode(text).decode("utf-8", "backslashreplace")
