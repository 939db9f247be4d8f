"""Sample tables of an SQLite store: one row per sample while they come in, blocks of many later."""

from collections.abc import Callable, Iterator

import apsw

from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.sample import Sample
from joblens.stores.samples.blocks import encode_block, runs_of_indexes
from joblens.stores.samples.rows import decode_samples, encode_row
from joblens.stores.sql.batch import JobChange
from joblens.stores.sqlite.sql import QUERIES

# A running job's tail becomes a block at this length; small blocks are put together to one large one, which
# compresses better, when so many have gathered and when the job ends.
BLOCK_SAMPLES = 240
_LARGE_BLOCK = 1920
_SMALL_BLOCKS = 8
_INDEX_BITS = 32
_LAST_INDEX = (1 << _INDEX_BITS) - 1

_Block = tuple[int, int, bytes]  # first index, count, data


def key_of(number: int, index: int) -> int:
    return number << _INDEX_BITS | index


def keys_of(number: int) -> tuple[int, int]:
    """The first and the last key that a sample of the job can have."""
    return key_of(number, 0), key_of(number, _LAST_INDEX)


class SampleTables:
    """The samples of one batch of writes, gathered over its jobs."""

    def __init__(self, compression_level: int) -> None:
        self._level = compression_level
        self._encoded: dict[str, list[_Block]] = {}
        self._blocks: list[_Block] = []
        self._tails: list[tuple[int, bytes]] = []
        self._grown: list[tuple[int, int]] = []

    def encode_ahead(self, change: JobChange) -> None:
        """For a job that ends in this batch: if it is new, these blocks are all its samples."""
        self._encoded[change.uuid] = list(self._encode(change.samples))

    def add(
        self, connection: apsw.Connection, number: int, change: JobChange, *, is_over: bool, is_new: bool
    ) -> None:
        if is_new and is_over:
            self._add_blocks(number, self._encoded[change.uuid])
            return
        samples = change.samples if is_new else _unseen(connection, number, change.samples)
        if is_over:
            self._settle(connection, number, samples, self._encoded.get(change.uuid))
            return
        self._tails += [(key_of(number, index), encode_row(sample)) for index, sample in samples.items()]
        if samples and max(samples) + 1 - _end_of_blocks(connection, number) >= BLOCK_SAMPLES:
            self.flush(connection)
            together = _take_tail(connection, number)
            blocks = _small_blocks(connection, number)
            if len(blocks) + 1 >= _SMALL_BLOCKS:
                self._take_blocks(connection, number, blocks, together)
            self._add_blocks(number, self._encode(together))

    def flush(self, connection: apsw.Connection) -> None:
        for name, rows in (
            ("insert_tail", self._tails),
            ("insert_block", self._blocks),
            ("add_sample_bytes", self._grown),
        ):
            if rows:
                connection.executemany(QUERIES[name], rows)
        self._tails, self._blocks, self._grown = [], [], []

    def _settle(
        self,
        connection: apsw.Connection,
        number: int,
        samples: dict[int, Sample],
        encoded: list[_Block] | None,
    ) -> None:
        """No more are to come: everything that is not in a large block yet becomes as few as possible."""
        together = _take_tail(connection, number)
        blocks = _small_blocks(connection, number) if samples or together else []
        if not together and not blocks and encoded and sum(count for _, count, _ in encoded) == len(samples):
            self._add_blocks(number, encoded)
            return
        for index, sample in samples.items():
            together.setdefault(index, sample)
        self._take_blocks(connection, number, blocks, together)
        self._add_blocks(number, self._encode(together))

    def _take_blocks(
        self, connection: apsw.Connection, number: int, blocks: list[_Block], together: dict[int, Sample]
    ) -> None:
        """Out of the table and into `together`; one that cannot be read is left where it is."""
        for key, _, data in blocks:
            try:
                samples = decode_samples(data)
            except StoreCorrupt:
                continue
            together.update(enumerate(samples, key & _LAST_INDEX))
            connection.execute(QUERIES["delete_block"], (key,))
            self._grown.append((-len(data), number))

    def _add_blocks(self, number: int, blocks: Iterator[_Block] | list[_Block]) -> None:
        size = 0
        for first, count, data in blocks:
            self._blocks.append((key_of(number, first), count, data))
            size += len(data)
        if size:
            self._grown.append((size, number))

    def _encode(self, samples: dict[int, Sample]) -> Iterator[_Block]:
        for run in runs_of_indexes(sorted(samples), _LARGE_BLOCK):
            yield run[0], len(run), encode_block([samples[index] for index in run], self._level)


def read_samples(
    connection: apsw.Connection, number: int, after: int, warn: Callable[[str], None]
) -> list[tuple[int, Sample]]:
    found: list[tuple[int, Sample]] = []
    last = after
    parameters = (*keys_of(number), key_of(number, 0) + after + 1)
    for key, data in connection.execute(QUERIES["samples"], parameters):
        index = key & _LAST_INDEX
        try:
            samples = decode_samples(data)
        except StoreCorrupt as error:
            warn(f"samples of job {number} from index {index} on are lost: {error}")
            continue
        for place, sample in enumerate(samples, index):
            if place > last:
                found.append((place, sample))
                last = place
    return found


def _end_of_blocks(connection: apsw.Connection, number: int) -> int:
    for key, count in connection.execute(QUERIES["last_block"], keys_of(number)):
        return int(key & _LAST_INDEX) + int(count)
    return 0


def _take_tail(connection: apsw.Connection, number: int) -> dict[int, Sample]:
    """Out of the table; a row that cannot be read is left where it is."""
    taken: dict[int, Sample] = {}
    damaged = False
    for key, data in list(connection.execute(QUERIES["tail_of"], keys_of(number))):
        try:
            (taken[key & _LAST_INDEX],) = decode_samples(data)
        except StoreCorrupt:
            damaged = True
    if damaged:
        for index in taken:
            connection.execute(QUERIES["delete_tail"], (key_of(number, index),) * 2)
    elif taken:
        connection.execute(QUERIES["delete_tail"], keys_of(number))
    return taken


def _small_blocks(connection: apsw.Connection, number: int) -> list[_Block]:
    parameters = (*keys_of(number), _LARGE_BLOCK)
    return [
        (key, count, data) for key, count, data in connection.execute(QUERIES["small_blocks_of"], parameters)
    ]


def _unseen(connection: apsw.Connection, number: int, samples: dict[int, Sample]) -> dict[int, Sample]:
    """Those that no block holds yet; one that waits in the tail is left alone by the insert."""
    if not samples or min(samples) >= _end_of_blocks(connection, number):
        return samples
    seen: set[int] = set()
    for key, count in connection.execute(QUERIES["blocks_of"], keys_of(number)):
        first = key & _LAST_INDEX
        seen.update(range(first, first + count))
    return {index: sample for index, sample in samples.items() if index not in seen}
