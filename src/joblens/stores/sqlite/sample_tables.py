"""Sample tables of an SQLite store: one row per sample at first, compressed into blocks later."""

from collections.abc import Callable, Iterator

import apsw

from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.sample import Sample
from joblens.stores.samples.blocks import encode_block, runs_of_indexes
from joblens.stores.sql.batch import JobChange
from joblens.stores.sqlite.sql import QUERIES

# A running job's tail becomes a block at this length. Small blocks are merged into a large one, which
# compresses better, when this many have accumulated and when the job ends.
BLOCK_SAMPLES = 240
_LARGE_BLOCK = 1920
_SMALL_BLOCKS = 8
_INDEX_BITS = 32
_LAST_INDEX = (1 << _INDEX_BITS) - 1

_Block = tuple[int, int, bytes]  # first index, count, data


def key_of(number: int, index: int) -> int:
    return number << _INDEX_BITS | index


def keys_of(number: int) -> tuple[int, int]:
    """Returns the first and the last possible key of a job's samples."""
    return key_of(number, 0), key_of(number, _LAST_INDEX)


def _decoded(data: bytes) -> list[Sample]:
    from joblens.stores.samples.rows import decode_samples  # a short job has no rows to read

    return decode_samples(data)


class SampleTables:
    """Samples of one batch of writes, by job."""

    def __init__(self, compression_level: int) -> None:
        self._level = compression_level
        self._encoded: dict[str, list[_Block]] = {}
        self._blocks: list[_Block] = []
        self._tails: list[tuple[int, bytes]] = []
        self._grown: list[tuple[int, int]] = []

    def encode_ahead(self, change: JobChange) -> None:
        """Encodes blocks for a job that ends in this batch; if it is new, they are all its samples."""
        self._encoded[change.uuid] = list(self._encode(change.samples))

    def add(
        self, connection: apsw.Connection, number: int, change: JobChange, *, is_over: bool, is_new: bool
    ) -> None:
        if is_new and is_over:
            self._add_blocks(number, self._encoded[change.uuid])
            return
        samples = change.samples if is_new else _not_in_blocks(connection, number, change.samples)
        if is_over:
            self._compress(connection, number, samples, self._encoded.get(change.uuid))
            return
        if samples:
            from joblens.stores.samples.rows import encode_row

            self._tails += [(key_of(number, index), encode_row(one)) for index, one in samples.items()]
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

    def _compress(
        self,
        connection: apsw.Connection,
        number: int,
        samples: dict[int, Sample],
        encoded: list[_Block] | None,
    ) -> None:
        """Compresses all samples of an ended job into as few blocks as possible."""
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
        """Moves blocks from the table to `together`; unreadable ones stay."""
        for key, _, data in blocks:
            try:
                samples = _decoded(data)
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
    connection: apsw.Connection,
    number: int,
    after: int,
    warn: Callable[[str], None],
    most: int | None = None,
) -> list[tuple[int, Sample]]:
    found: list[tuple[int, Sample]] = []
    last = after
    parameters = (*keys_of(number), key_of(number, 0) + after + 1)
    for key, data in connection.execute(QUERIES["samples"], parameters):
        index = key & _LAST_INDEX
        if most is not None and len(found) >= most and index > last:
            break
        try:
            samples = _decoded(data)
        except StoreCorrupt as error:
            warn(f"samples of job {number} from index {index} on are lost: {error}")
            continue
        for position, sample in enumerate(samples, index):
            if position > last:
                found.append((position, sample))
                last = position
    return found[:most]


def parts_of(connection: apsw.Connection, number: int) -> Iterator[tuple[int, bytes]]:
    """(index of the first sample, encoded) of blocks and single samples, in order."""
    first, last = keys_of(number)
    for key, data in connection.execute(QUERIES["samples"], (first, last, first)):
        yield key & _LAST_INDEX, data


def read_tail(
    connection: apsw.Connection, number: int, after: int, most: int, warn: Callable[[str], None]
) -> list[tuple[int, Sample]]:
    """The last `most` after that index; blocks of a long job before them are not decoded."""
    for (last_key,) in connection.execute(QUERIES["last_sample"], keys_of(number)):
        if last_key:
            after = max(after, (int(last_key) & _LAST_INDEX) - most)
    return read_samples(connection, number, after, warn)[-most:]


def _end_of_blocks(connection: apsw.Connection, number: int) -> int:
    for key, count in connection.execute(QUERIES["last_block"], keys_of(number)):
        return int(key & _LAST_INDEX) + int(count)
    return 0


def _take_tail(connection: apsw.Connection, number: int) -> dict[int, Sample]:
    """Removes the tail from the table and returns it; unreadable rows stay."""
    tail: dict[int, Sample] = {}
    damaged = False
    for key, data in list(connection.execute(QUERIES["tail_of"], keys_of(number))):
        try:
            (tail[key & _LAST_INDEX],) = _decoded(data)
        except StoreCorrupt:
            damaged = True
    if damaged:
        for index in tail:
            connection.execute(QUERIES["delete_tail"], (key_of(number, index),) * 2)
    elif tail:
        connection.execute(QUERIES["delete_tail"], keys_of(number))
    return tail


def _small_blocks(connection: apsw.Connection, number: int) -> list[_Block]:
    parameters = (*keys_of(number), _LARGE_BLOCK)
    return [
        (key, count, data) for key, count, data in connection.execute(QUERIES["small_blocks_of"], parameters)
    ]


def _not_in_blocks(connection: apsw.Connection, number: int, samples: dict[int, Sample]) -> dict[int, Sample]:
    """Returns samples that are in no block yet; the insert ignores those already in the tail."""
    if not samples or min(samples) >= _end_of_blocks(connection, number):
        return samples
    stored: set[int] = set()
    for key, count in connection.execute(QUERIES["blocks_of"], keys_of(number)):
        first = key & _LAST_INDEX
        stored.update(range(first, first + count))
    return {index: sample for index, sample in samples.items() if index not in stored}
