"""Which commit a folder has, read from the files that git keeps. No git is started for it."""

import os
import re
from collections.abc import Iterator

from msgspec import Struct

_MOST_BYTES = 1 << 22  # of a list of packed references
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# Filters are programs that git runs on files; what is included may name some, too.
_RUNS_PROGRAMS = re.compile(r"^\s*\[\s*(?:filter|include|includeif)\b", re.IGNORECASE | re.MULTILINE)
_MOST_STEPS = 8  # from one symbolic reference to the next


class Repository(Struct, frozen=True, kw_only=True):
    root: str  # of the working tree
    git_dir: str  # of this working tree
    common_dir: str  # with what all working trees share
    commit: str = ""  # '': none yet, or it cannot be read
    branch: str = ""
    remote: str = ""  # as configured; may hold a password
    runs_programs: bool = False  # by its configuration, when git looks at its files

    @property
    def files(self) -> tuple[str, ...]:
        """That change with its commit, and with what is about to be committed."""
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
    """`.git` is a folder; of a submodule or a further working tree it is a file that says where that lies."""
    path = os.path.join(root, ".git")
    if os.path.isfile(os.path.join(path, "HEAD")):
        return path
    told = _text(path) if os.path.isfile(path) else None
    if told is None or not told.startswith("gitdir:"):
        return None
    named = os.path.join(root, told.removeprefix("gitdir:").strip())
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
        runs_programs=_RUNS_PROGRAMS.search(f"{config}\n{own_config}") is not None,
    )


def _head(git_dir: str, common_dir: str) -> tuple[str, str]:
    """-> commit, branch"""
    branch = ""
    reference = "HEAD"
    for _ in range(_MOST_STEPS):
        told = _reference(reference, git_dir, common_dir)
        if not told.startswith("ref:"):
            return (told if _COMMIT.fullmatch(told) else ""), branch
        reference = told.removeprefix("ref:").strip()
        if not branch:
            branch = reference.removeprefix("refs/heads/")
    return "", branch


def _reference(name: str, git_dir: str, common_dir: str) -> str:
    for folder in dict.fromkeys((git_dir, common_dir)):
        told = _text(os.path.join(folder, name))
        if told is not None:
            return told.strip()
    return parse_packed(_text(os.path.join(common_dir, "packed-refs")) or "", name)


def _text(path: str) -> str | None:
    """None: there is no such file, or it may not be read."""
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
    wanted, section, name = "", "", ""
    for line in map(str.strip, config.splitlines()):
        if line.startswith("["):
            section, _, rest = line.strip("[]").partition(" ")
            name = rest.strip().strip('"')
            continue
        key, _, value = line.partition("=")
        if section == "remote" and key.strip().lower() == "url":
            urls.setdefault(name, value.strip())
        elif section == "branch" and name == branch and key.strip().lower() == "remote":
            wanted = value.strip()
    only = next(iter(urls.values())) if len(urls) == 1 else ""
    return urls.get(wanted) or urls.get("origin") or only
