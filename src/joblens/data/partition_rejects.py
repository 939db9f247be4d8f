"""Rows of one partition that were left out, from its first operator to its last."""

import os
from collections.abc import Sequence

from joblens.data import checkpoints
from joblens.data.checkpoints import RejectsSoFar
from joblens.data.job_folder import JobFolder
from joblens.data.rejects import Reject, line_of
from joblens.stores.private_files import make_private_folder


class RejectsOfPartition:
    """Kept with each checkpoint, so that a resumed partition tells of each row once; shown to people when the
    partition is through."""

    def __init__(self, folder: JobFolder, partition_id: int) -> None:
        self._folder = folder
        self._id = partition_id
        self._lines: list[bytes] = []  # all of them, since the partition was read
        self._unsaved: list[bytes] = []  # not in `_lines` yet: since the last checkpoint

    def begin(self, lines: Sequence[bytes]) -> None:
        self._lines, self._unsaved = list(lines), []

    def add(self, reject: Reject) -> None:
        self._unsaved.append(line_of(reject))

    def keep_unsaved(self, path: str) -> RejectsSoFar:
        """Those since the last checkpoint, beside this one."""
        if not self._unsaved:
            return RejectsSoFar()
        kept = RejectsSoFar(
            count=len(self._unsaved), file=checkpoints.keep_bytes(path, b"".join(self._unsaved))
        )
        self._lines += self._unsaved
        self._unsaved = []
        return kept

    def keep_all(self, path: str) -> RejectsSoFar:
        self._lines += self._unsaved
        self._unsaved = []
        if not self._lines:
            return RejectsSoFar()
        return RejectsSoFar(count=len(self._lines), file=checkpoints.keep_bytes(path, b"".join(self._lines)))

    def publish(self) -> None:
        """In place of what an earlier attempt left."""
        path = self._folder.rejects_of(self._id)
        if self._lines:
            make_private_folder(self._folder.rejects)
            checkpoints.keep_bytes(path, b"".join(self._lines))
        elif os.path.exists(path):
            os.unlink(path)
