"""Git repository of a folder: its commit, read from files, and whether tracked files were changed."""

import contextlib
import os
import re
import select
import signal
import time
from collections.abc import Iterator

from msgspec import Struct

from joblens.model.values.ids import blake2b
from joblens.probes.provenance.program_files import Mark, find_program

_MOST_BYTES = 1 << 22  # of a list of packed references
_DIGITS = (40, 64)  # of a commit
# Filters are programs that git runs on files; included configuration may define some, too.
_RUNS_PROGRAMS = r"(?im)^\s*\[\s*(?:filter|include|includeif)\b"
_MOST_STEPS = 8  # from one symbolic reference to the next


class Repository(Struct, frozen=True, kw_only=True):
    root: str  # of the working tree
    git_dir: str  # of this working tree
    common_dir: str  # with files that all working trees share
    commit: str = ""  # '': none yet, or it cannot be read
    branch: str = ""
    remote: str = ""  # as configured; may hold a password
    runs_programs: bool = False  # by its configuration, when git scans its files

    @property
    def files(self) -> tuple[str, ...]:
        """Returns files that change with its commit and index."""
        reference = os.path.join(self.common_dir, "refs", "heads", self.branch) if self.branch else ""
        packed, index = os.path.join(self.common_dir, "packed-refs"), os.path.join(self.git_dir, "index")
        return (os.path.join(self.git_dir, "HEAD"), *filter(None, (reference,)), packed, index)


def find_repository(folder: str) -> Repository | None:
    """The one around `folder`; None: it is in none."""
    for root in _upwards(folder):
        git_dir = _git_dir(root)
        if git_dir is not None:
            return _read(root, git_dir)
    return None


def _upwards(folder: str) -> Iterator[str]:
    folder = os.path.abspath(folder)
    while True:
        yield folder
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def _git_dir(root: str) -> str | None:
    """`.git` is a folder; in a submodule or another working tree it is a file with its path."""
    path = os.path.join(root, ".git")
    if os.path.isfile(os.path.join(path, "HEAD")):
        return path
    text_found = _text(path) if os.path.isfile(path) else None
    if text_found is None or not text_found.startswith("gitdir:"):
        return None
    named = os.path.join(root, text_found.removeprefix("gitdir:").strip())
    return named if os.path.isfile(os.path.join(named, "HEAD")) else None


def _read(root: str, git_dir: str) -> Repository:
    shared = (_text(os.path.join(git_dir, "commondir")) or "").strip()
    common_dir = os.path.normpath(os.path.join(git_dir, shared)) if shared else git_dir
    commit, branch = _head(git_dir, common_dir)
    config = _text(os.path.join(common_dir, "config")) or ""
    own_config = _text(os.path.join(git_dir, "config.worktree")) or ""
    return Repository(
        root=root,
        git_dir=git_dir,
        common_dir=common_dir,
        commit=commit,
        branch=branch,
        remote=parse_remote(config, branch),
        runs_programs=_runs_programs(f"{config}\n{own_config}"),
    )


def _runs_programs(config: str) -> bool:
    lower = config.lower()  # most have neither word: no pattern is compiled
    return ("filter" in lower or "include" in lower) and re.search(_RUNS_PROGRAMS, config) is not None


def _head(git_dir: str, common_dir: str) -> tuple[str, str]:
    """-> commit, branch"""
    branch = ""
    reference = "HEAD"
    for _ in range(_MOST_STEPS):
        text_found = _reference(reference, git_dir, common_dir)
        if not text_found.startswith("ref:"):
            is_commit = len(text_found) in _DIGITS and not text_found.strip("0123456789abcdef")
            return (text_found if is_commit else ""), branch
        reference = text_found.removeprefix("ref:").strip()
        if not branch:
            branch = reference.removeprefix("refs/heads/")
    return "", branch


def _reference(name: str, git_dir: str, common_dir: str) -> str:
    for folder in dict.fromkeys((git_dir, common_dir)):
        text_found = _text(os.path.join(folder, name))
        if text_found is not None:
            return text_found.strip()
    return parse_packed(_text(os.path.join(common_dir, "packed-refs")) or "", name)


def _text(path: str) -> str | None:
    """Returns None if the file does not exist or is not readable."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(_MOST_BYTES)
    except (OSError, ValueError):
        return None


def parse_packed(text: str, name: str) -> str:
    """'': it is not there"""
    for line in text.splitlines():
        commit, _, reference = line.partition(" ")
        if reference == name:
            return commit
    return ""


def parse_remote(config: str, branch: str) -> str:
    """The address of the branch's remote, else of 'origin', else of the only one."""
    urls: dict[str, str] = {}
    remote, section, name = "", "", ""
    for line in map(str.strip, config.splitlines()):
        if line.startswith("["):
            section, _, rest = line.strip("[]").partition(" ")
            name = rest.strip().strip('"')
            continue
        key, _, value = line.partition("=")
        if section == "remote" and key.strip().lower() == "url":
            urls.setdefault(name, value.strip())
        elif section == "branch" and name == branch and key.strip().lower() == "remote":
            remote = value.strip()
    only = next(iter(urls.values())) if len(urls) == 1 else ""
    return urls.get(remote) or urls.get("origin") or only


# joblens was only started in this repository: it runs no program that the repository configures, and writes
# nothing there. Repositories with filters (Repository.runs_programs) are not queried.
_QUESTION = (
    *("git", "--no-optional-locks", "-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null"),
    *("status", "--porcelain=v1", "-z", "--untracked-files=no", "--ignore-submodules=dirty", "--no-renames"),
)
_NOT_PASSED_ON = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"),
    *("GIT_COMMON_DIR", "GIT_TRACE", "GIT_EXTERNAL_DIFF", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"),
)
_MOST_OUTPUT = 1 << 20
_MOST_FILES = 200  # included in the digest of changes by content
_LARGEST_FILE = 8 << 20


class Changes(Struct, frozen=True):
    is_dirty: bool | None = None  # None: not known
    digest: str = ""
    why: str = ""  # nothing is known


class AskedChanges:
    """A running git query; `answer` waits for its result."""

    def __init__(self, root: str, index: Mark = None) -> None:
        """`index`: of the repository, before git was started."""
        self.index = index
        self.asked_s = time.monotonic()
        self._root = root
        self._pid = 0
        self._why = ""
        self._streams: tuple[int, int] = (-1, -1)
        git = find_program("git", "", os.environ.get("PATH", os.defpath))
        if git is None:
            self._why = "git is not installed, so changed files are unknown"
            return
        try:
            self._ask(git)
        except OSError as error:
            self._why = f"git could not be started: {error.strerror}"

    def _ask(self, git: str) -> None:
        env = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
        env |= {
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "LC_ALL": "C",
        }
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        dup2 = os.POSIX_SPAWN_DUP2
        try:
            self._pid = os.posix_spawn(
                git,
                (_QUESTION[0], "-C", self._root, *_QUESTION[1:]),
                env,
                file_actions=[(dup2, null, 0), (dup2, out_write, 1), (dup2, err_write, 2)],
                setpgroup=0,  # a Ctrl-C is not for it
                setsigmask=(),
            )
        except BaseException:
            os.close(out_read)
            os.close(err_read)
            raise
        finally:
            for descriptor in (out_write, err_write, null):
                os.close(descriptor)
        self._streams = out_read, err_read

    def answer(self, timeout_s: float) -> Changes:
        """To be called once. Takes as long as git takes, and no longer than `timeout_s`."""
        if not self._pid:
            return Changes(why=self._why)
        try:
            (text_found, complaint), is_late = _read_all(self._streams, timeout_s)
        finally:
            for descriptor in self._streams:
                os.close(descriptor)
        if is_late:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)  # not waited for yet, so the number is its own
        try:
            _, status = os.waitpid(self._pid, 0)
        except ChildProcessError:  # a host program must wait for all children
            status = 0
        if is_late:
            return Changes(why=f"git did not list changed files within {timeout_s:g}s")
        code = os.waitstatus_to_exitcode(status)
        if code != 0:
            return Changes(why=f"git status: {_first_line(complaint) or f'exit code {code}'}")
        return Changes(False) if not text_found else Changes(True, _digest(self._root, text_found))


def _read_all(descriptors: tuple[int, int], timeout_s: float) -> tuple[tuple[bytes, bytes], bool]:
    """Returns the output of each, and whether it timed out."""
    until_s = time.monotonic() + timeout_s
    texts = dict.fromkeys(descriptors, b"")
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    open_count = len(descriptors)
    while open_count:
        ready = poll.poll(max(0.0, until_s - time.monotonic()) * 1000)
        if not ready:
            return (texts[descriptors[0]], texts[descriptors[1]]), True
        for descriptor, _ in ready:
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                poll.unregister(descriptor)
                open_count -= 1
            elif len(texts[descriptor]) < _MOST_OUTPUT:
                texts[descriptor] += piece
    return (texts[descriptors[0]], texts[descriptors[1]]), False


def _digest(root: str, text_found: bytes) -> str:
    """Returns a digest of the changes: equal for equal changes."""
    digest = blake2b(text_found, 16)
    for entry in text_found.split(b"\0")[:_MOST_FILES]:
        path = os.path.join(os.fsencode(root), entry[3:])
        try:
            if entry[3:] and os.path.isfile(path) and os.path.getsize(path) <= _LARGEST_FILE:
                with open(path, "rb") as file:
                    digest.update(blake2b(file.read(), 16).digest())
        except OSError:
            continue
    return digest.hexdigest()


def _first_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[0].strip() if lines else ""
