"""Rows of one partition that were left out, from its first operator to its last."""

from collections.abc import Sequence

from joblens.data.base.job_folder import JobFolder
from joblens.data.files.rejects import Reject, line_of, reasons_in, unread_in, write_rejects
from joblens.data.partition import checkpoints
from joblens.data.partition.checkpoints import RejectsSoFar
from joblens.data.partition.report import PartitionReport
from joblens.model.recipes.recipe import OperatorCall


class RejectsOfPartition:
    """Kept with each checkpoint, so that a resumed partition tells of each row once: events of rejected rows
    are held back until what was done is kept. People get the file when the partition is through."""

    def __init__(self, folder: JobFolder, partition_id: int, report: PartitionReport) -> None:
        self._folder = folder
        self._id = partition_id
        self._report = report
        self._lines: list[bytes] = []  # all that is kept, since the partition was read
        self._unsaved: list[bytes] = []  # since the last checkpoint
        self._untold: list[tuple[int, str, OperatorCall | None]] = []

    def begin(self, lines: Sequence[bytes]) -> None:
        self._lines, self._unsaved, self._untold = list(lines), [], []

    def read(self, bad: Sequence[Reject]) -> None:
        """Reading finds them again every time; they were told when something was kept since."""
        if bad:
            self._untold.append((len(bad), bad[0].reason, None))

    def add(self, rejects: Sequence[Reject], call: OperatorCall) -> None:
        self._unsaved += [line_of(reject) for reject in rejects]
        self._untold.append((len(rejects), rejects[0].reason, call))

    def keep_unsaved(self, path: str) -> RejectsSoFar:
        """Those since the last checkpoint, beside this one."""
        new, self._unsaved = self._unsaved, []
        self._lines += new
        return _kept(path, new)

    def keep_all(self, path: str) -> RejectsSoFar:
        self._lines += self._unsaved
        self._unsaved = []
        return _kept(path, self._lines)

    def tell(self) -> None:
        """What is kept now."""
        for count, reason, call in self._untold:
            self._report.rejected(count, reason, self._folder.rejects_of(self._id), call)
        self._untold = []

    def publish(self) -> None:
        """In place of what an earlier attempt left."""
        write_rejects(self._folder.rejects_of(self._id), self._lines)


def _kept(path: str, lines: Sequence[bytes]) -> RejectsSoFar:
    if not lines:
        return RejectsSoFar()
    file = checkpoints.keep_bytes(path, b"".join(lines))
    return RejectsSoFar(count=len(lines), unread=unread_in(lines), file=file, reasons=reasons_in(lines))
