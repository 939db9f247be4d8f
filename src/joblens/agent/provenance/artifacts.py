"""Files that a job leaves behind, found by its patterns when it has ended."""

import glob
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence

from joblens.model.jobs.job import Artifact

MOST_FILES = 1000
_LARGEST_READ = 64 << 20  # of one file: more is not read for its digest
_MOST_READ = 256 << 20  # of all: whoever waits for the outcome is not to wait for long
_CLOCK_SLACK_NS = 20_000_000  # a file system's clock lags behind by a tick of the kernel


def collect_artifacts(folder: str, patterns: Sequence[str], started_at_us: int) -> tuple[Artifact, ...]:
    """Regular files below `folder` that match and were changed since the start, by their names. `**` goes
    through folders; what lies elsewhere, or is reached through a link that leads out, is not looked at."""
    if not patterns or not folder:
        return ()
    root = os.path.realpath(folder)
    newest_before_ns = started_at_us * 1000 - _CLOCK_SLACK_NS
    found: dict[str, Artifact] = {}
    left_to_read = _MOST_READ
    for path in _matching(root, patterns):
        name = os.path.relpath(path, root)
        if name in found or not _is_inside(path, root):
            continue
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode) or status.st_mtime_ns < newest_before_ns:
                continue
            is_read = status.st_size <= min(_LARGEST_READ, left_to_read)
            digest = _digest(path) if is_read else ""
        except OSError:
            continue  # it has gone, or is not ours to read
        left_to_read -= status.st_size if is_read else 0
        found[name] = Artifact(_as_text(name), status.st_size, digest)
        if len(found) == MOST_FILES:
            break
    return tuple(found[name] for name in sorted(found))


def _matching(root: str, patterns: Sequence[str]) -> Iterator[str]:
    for pattern in patterns:
        if not os.path.isabs(pattern):
            yield from glob.iglob(os.path.join(glob.escape(root), pattern), recursive=True)


def _is_inside(path: str, root: str) -> bool:
    return os.path.realpath(path).startswith(root.rstrip("/") + "/")


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _as_text(name: str) -> str:
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")
