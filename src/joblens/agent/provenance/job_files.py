"""Files that a single command reads and leaves: those it was said to, and those it names."""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from joblens.model.jobs.job import Job, is_of_workflow
from joblens.model.jobs.run_link import FileStamp
from joblens.probes.provenance.file_names import as_text, remembered_path
from joblens.probes.provenance.program_files import sha256_of, starting_words

MOST_FILES = 200
_MOST_NAMED = 50
_LONGEST_WORD = 1024
_MAGIC = "*?["  # signs of a pattern
_CLOCK_SLACK_NS = 20_000_000  # a file system's clock lags behind by a tick of the kernel
_MOST_READ = 4  # times the largest file that is read at all: whoever waits for the outcome waits for that


def named_inputs(argv: Sequence[str], cwd: str, *, is_shell: bool) -> list[str]:
    """Words of a command that are plain files now, or `--option=FILE`. What is started is not among them."""
    found: dict[str, None] = {}
    started = starting_words(argv, is_shell=is_shell)
    for word in _path_words(argv, is_shell=is_shell):
        if word not in started and _plain(remembered_path(word, cwd)) is not None:
            found.setdefault(word)
            if len(found) == _MOST_NAMED:
                break
    return list(found)


def expanded(patterns: Iterable[str], cwd: str) -> list[str]:
    """Files that the patterns stand for, relative to `cwd` where they are; a name without a sign of a
    pattern stands for itself, there or not, and so does one of a file that has such signs in its name."""
    found: dict[str, None] = {}
    for pattern in patterns:
        if not any(sign in pattern for sign in _MAGIC) or os.path.lexists(remembered_path(pattern, cwd)):
            found.setdefault(pattern)
            continue
        import glob  # seldom needed, and it brings others along

        for path in sorted(glob.iglob(pattern, root_dir=cwd or None, recursive=True)):
            if os.path.isfile(os.path.join(cwd, path)):
                found.setdefault(path)
    return list(found)[:MOST_FILES]


def stamp(path: str, cwd: str) -> FileStamp:
    """Without its content. Of a folder it is known that it was there."""
    name = as_text(path)
    try:
        found = os.stat(remembered_path(path, cwd))
    except (OSError, ValueError):
        return FileStamp(name)
    if stat.S_ISREG(found.st_mode):
        return FileStamp(name, found.st_size, found.st_mtime_ns)
    return FileStamp(name, None, found.st_mtime_ns if stat.S_ISDIR(found.st_mode) else None)


def with_digest(before: FileStamp, cwd: str, largest: int) -> FileStamp:
    """With a digest of the content, as long as it is still the file that was stamped."""
    path = remembered_path(before.path, cwd)
    found = _plain(path)
    if found is None or (found.st_size, found.st_mtime_ns) != (before.size, before.mtime_ns):
        return before
    digest, _ = sha256_of(path, largest)
    return replace(before, digest=digest or None)


def outputs_of(job: Job, cwd: str, started_at_us: int, largest: int) -> tuple[FileStamp, ...]:
    """As they are now: those it was said to make, there or not; of those that match a pattern, or that a
    command outside of workflows names, the ones that are newer than its start."""
    newest_before_ns = started_at_us * 1000 - _CLOCK_SLACK_NS
    paths: dict[str, None] = {}
    for asked in job.outputs:
        for path in expanded((asked,), cwd):
            found = _plain(remembered_path(path, cwd))
            if path == asked or (found is not None and found.st_mtime_ns >= newest_before_ns):
                paths.setdefault(path)
    if not is_of_workflow(job) and not job.attached and job.container is None:
        for word in _path_words(job.argv, is_shell=job.is_shell):
            found = _plain(remembered_path(word, cwd)) if word not in paths else None
            if found is not None and found.st_mtime_ns >= newest_before_ns and len(paths) < MOST_FILES:
                paths.setdefault(word)
    stamps = []
    left = largest // _MOST_READ if is_of_workflow(job) else largest * _MOST_READ  # others wait behind it
    for path in paths:
        one = stamp(path, cwd)
        if one.size is not None and one.size <= min(left, largest):
            one = with_digest(one, cwd, largest)
            left -= one.size or 0
        stamps.append(one)
    return tuple(stamps)


def _path_words(argv: Sequence[str], *, is_shell: bool) -> Iterator[str]:
    """Those that could be names of files. The first one is what is started."""
    words: Sequence[str] = argv
    if is_shell:
        words = argv[0].split() if argv and not any(sign in argv[0] for sign in "'\"\\") else ()
    for word in words[1:]:
        name, equals, value = word.partition("=")
        path = word
        if word.startswith("-"):
            path = value if equals and name.startswith("--") else ""
        if path and len(path) <= _LONGEST_WORD and "\n" not in path and "\0" not in path:
            yield path


def _plain(path: str) -> os.stat_result | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None
