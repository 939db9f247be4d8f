"""Output folders: their owners, and the folder for the output of a run's jobs.

Names such as `job_output/1_1` come from small numbers, and every store has a run 1.1. So each folder has one
owner, named by a mark in it that is created atomically; any other owner uses a folder with a suffix."""

import hashlib
import os

from joblens.files.private import create_with, make_private_folder, open_plain_file

MARK = ".joblens-owner"
_LONGEST_MARK = 8192


def owner_suffix(owner: str) -> str:
    return hashlib.blake2b(owner.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()


def claim_folder(path: str, owner: str, *, is_known: bool) -> str:
    """Returns the folder that `owner` may use: `path`, or `path` with a suffix if it belongs to another
    owner. Creates it if it does not exist. `is_known`: content without a mark belongs to the owner, because
    versions without marks wrote it. Raises OSError."""
    if _take(path, owner, is_known=is_known):
        return path
    own = f"{path}-{owner_suffix(owner)}"
    _take(own, owner, is_known=True)
    return own


def _take(path: str, owner: str, *, is_known: bool) -> bool:
    make_private_folder(path)
    mark = _mark_of(path)
    if mark is not None:
        return mark == owner
    if not is_known and os.listdir(path):
        return _mark_of(path) == owner  # output of another run; or the mark of a process that was faster
    try:
        os.close(create_with(os.path.join(path, MARK), owner.encode("utf-8", "surrogateescape")))
    except FileExistsError:
        return _mark_of(path) == owner
    return True


def _mark_of(path: str) -> str | None:
    """Returns the mark of a folder, None without one, '' if it cannot be read."""
    try:
        with open_plain_file(os.path.join(path, MARK)) as file:
            return file.read(_LONGEST_MARK).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError:
        return ""


def claim_for_run(path: str, run_uuid: str) -> str:
    """Returns the folder that a worker uses. The driver has claimed it for the run; if the worker's machine
    does not share it, runs of other drivers may have the same path. Raises OSError."""
    mark = _mark_of(path)
    if mark is not None and mark.split(" ", 1)[0] == run_uuid:
        return path
    return claim_folder(path, run_uuid, is_known=True)


class RunFolder:
    def __init__(self, path: str) -> None:
        self._path = path
        self._is_reported = False

    def make(self) -> None:
        """Creates the folder. If that fails, the first job reports it."""
        try:
            make_private_folder(self._path)
        except OSError:
            self._is_reported = True

    def check(self) -> str:
        """Recreates the folder if it was removed. Returns the message about it, once."""
        if self._is_reported or os.path.isdir(self._path):
            return ""
        self._is_reported = True
        gone = f"{self._path} was removed during the run: the output of earlier jobs is lost"
        try:
            make_private_folder(self._path)
        except OSError as error:
            return f"{gone}, and later output too: it cannot be created again ({error.strerror})"
        return f"{gone}; it was created again for later jobs"
