"""Detection of changed inputs."""

import os
from collections.abc import Sequence

import xxhash

from joblens.model.recipes.recipe import InputFile

_SAMPLES = 16
_SAMPLE_BYTES = 1 << 16


def stamp_inputs(paths: Sequence[str]) -> tuple[InputFile, ...]:
    """Returns size, time and a digest of samples spread over each file.

    Finds large changes that keep size and time, at the same cost for every file size.
    """
    return tuple(_stamp(path) for path in paths)


def _stamp(path: str) -> InputFile:
    digest = xxhash.xxh3_128()
    with open(path, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        last = max(0, status.st_size - _SAMPLE_BYTES)
        for offset in sorted({last * number // (_SAMPLES - 1) for number in range(_SAMPLES)}):
            digest.update(os.pread(file.fileno(), _SAMPLE_BYTES, offset))
    return InputFile(
        path=path, size=status.st_size, modified_ns=status.st_mtime_ns, digest=digest.hexdigest()
    )


def changed_since(before: Sequence[InputFile]) -> list[str]:
    """Returns the same as `changed_inputs`, for repeated checks while a job runs. Compares content only if
    size or time differ, so that checking many files costs little."""
    changes: list[str] = []
    for old in before:
        try:
            status = os.stat(old.path)
            if (status.st_size, status.st_mtime_ns) != (old.size, old.modified_ns):
                changes += changed_inputs([old], [_stamp(old.path)])
        except FileNotFoundError:
            changes.append(f"{old.path} no longer exists")
        except OSError as error:
            changes.append(f"{old.path} can no longer be read: {error.strerror}")
    return changes


def changed_inputs(before: Sequence[InputFile], now: Sequence[InputFile]) -> list[str]:
    """Returns one sentence per file that is missing, new or changed.

    A small file that was only touched counts as unchanged; large files are compared in part, so their time
    counts.
    """
    is_now = {file.path: file for file in now}
    known = {file.path for file in before}
    changes: list[str] = []
    for old in before:
        new = is_now.get(old.path)
        if new is None:
            changes.append(f"{old.path} is no longer an input")
        elif new.size != old.size:
            changes.append(f"{old.path} has {new.size} bytes, had {old.size}")
        elif new.digest != old.digest:
            changes.append(f"{old.path} has different content")
        elif new.modified_ns != old.modified_ns and new.size > _SAMPLES * _SAMPLE_BYTES:
            changes.append(f"{old.path} was modified since")
    changes += [f"{file.path} is new" for file in now if file.path not in known]
    if not changes and [file.path for file in before] != [file.path for file in now]:
        changes.append("the order of the inputs changed")
    return changes
