"""Ends of jobs that the store gets and the history file has yet to get, in a file of the spool directory:
when this process is killed in between, the next one writes the missing lines."""

import contextlib
import os
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from joblens.agent.runtime.owners import is_gone
from joblens.files.private import create_with
from joblens.model.jobs.job import Owner
from joblens.model.values.ids import new_uuid
from joblens.probes.host.machine_load import HostFacts

_SUFFIX = ".ends"


class _Ends(Struct, frozen=True):
    owner: Owner
    jobs: tuple[str, ...]


class PendingEnds:
    """Of one process, which has the file while it lives: one that is left also says that it was killed. Jobs
    run without it where it cannot be made."""

    def __init__(self, spool_dir: str, owner: Owner) -> None:
        self._path = os.path.join(spool_dir, new_uuid() + _SUFFIX)
        self._owner = owner
        self._file = -1
        with contextlib.suppress(OSError):
            self._file = create_with(self._path, self._line(()))

    @contextlib.contextmanager
    def around(self, uuids: Sequence[str]) -> Iterator[None]:
        """Entered before the store gets the ends, left when all sinks have them."""
        if not uuids:
            yield
            return
        self._write(uuids)
        yield
        self._write(())

    def _write(self, uuids: Sequence[str]) -> None:
        """The first line counts; a longer one before it may leave its rest behind."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.pwrite(self._file, self._line(uuids), 0)

    def _line(self, uuids: Sequence[str]) -> bytes:
        return msgspec.json.encode(_Ends(self._owner, tuple(uuids))) + b"\n"

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            with contextlib.suppress(OSError):
                os.unlink(self._path)


def pending_ends(spool_dir: str, host: HostFacts) -> dict[str, tuple[str, ...]]:
    """Files of processes that are gone, and the jobs in them."""
    try:
        names = os.listdir(spool_dir)
    except OSError:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        if name.endswith(_SUFFIX):
            path = os.path.join(spool_dir, name)
            ends = _read(path)
            if ends is not None and is_gone(ends.owner, host):
                found[path] = ends.jobs
    return found


def _read(path: str) -> _Ends | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return msgspec.json.decode(file.read().partition(b"\n")[0], type=_Ends)
    except (OSError, msgspec.MsgspecError):
        return None


def forget_ends(path: str, host: HostFacts) -> None:
    """Once their lines are written; what else the process left is found by the file."""
    ends = _read(path)
    if ends is not None and is_gone(ends.owner, host):
        with contextlib.suppress(OSError), open(path, "r+b", buffering=0) as file:
            file.write(msgspec.json.encode(_Ends(ends.owner, ())) + b"\n")
