"""The partitions of a recipe's job, in columns."""

from array import array

from joblens.analysis.recipes.columns import BROKEN, DONE, RUNNING, STATUS_OF_CODE, UNKNOWN_TIME, UNSEEN
from joblens.model.recipes.snapshot import ProcessingStatus


class PartitionRows:
    """`number` is the row of a partition, wherever partitions stand in rows."""

    def __init__(self) -> None:
        self.ids = array("q")
        self.number: dict[int | None, int] = {}  # of None there is none
        self.codes = bytearray()
        self.counts = [0, 0, 0, 0, 0]
        self.creation_starts = array("d")
        self.creation_ends = array("d")
        self.starts = array("d")
        self.ends = array("d")
        self.sample_counts: dict[int, int] = {}
        self.errors: dict[int, str] = {}
        self.retries: dict[int, int] = {}
        self.rejected: dict[int, int] = {}

    def add(self, partition_id: int) -> int:
        row = self.number[partition_id] = len(self.ids)
        self.ids.append(partition_id)
        self.codes.append(UNSEEN)
        self.counts[UNSEEN] += 1
        for times in (self.creation_starts, self.creation_ends, self.starts, self.ends):
            times.append(UNKNOWN_TIME)
        return row

    def _turn(self, row: int, code: int) -> None:
        self.counts[self.codes[row]] -= 1
        self.counts[code] += 1
        self.codes[row] = code

    def start(self, row: int, at: float) -> None:
        """The first start counts, also when the partition is come back to."""
        if self.codes[row] != RUNNING:
            self._turn(row, RUNNING)
            self.errors.pop(row, None)
        if self.starts[row] != self.starts[row]:  # never started before
            self.starts[row] = at
        self.ends[row] = UNKNOWN_TIME

    def complete(self, row: int, at: float) -> None:
        self._turn(row, DONE)
        self.errors.pop(row, None)
        self.ends[row] = at

    def fail(self, row: int, at: float, message: str) -> None:
        self._turn(row, BROKEN)
        self.ends[row] = at
        self.errors[row] = message

    def retry(self, row: int) -> None:
        self.retries[row] = self.retries.get(row, 0) + 1
        self.reset(row)

    def reset(self, row: int) -> None:
        self._turn(row, UNSEEN)
        self.errors.pop(row, None)
        self.rejected.pop(row, None)
        self.ends[row] = UNKNOWN_TIME

    def frozen(self) -> "PartitionRows":
        """As it is now; `number` is shared, since rows are only ever added."""
        copy = PartitionRows()
        copy.ids, copy.number = self.ids[:], self.number
        copy.codes, copy.counts = bytearray(self.codes), list(self.counts)
        copy.creation_starts, copy.creation_ends = self.creation_starts[:], self.creation_ends[:]
        copy.starts, copy.ends = self.starts[:], self.ends[:]
        copy.sample_counts, copy.errors = dict(self.sample_counts), dict(self.errors)
        copy.retries, copy.rejected = dict(self.retries), dict(self.rejected)
        return copy

    def status(self, row: int, running: ProcessingStatus) -> ProcessingStatus:
        code = self.codes[row]
        return running if code == RUNNING else STATUS_OF_CODE[code]
