"""Sample tables of a PostgreSQL store: pieces as written, merged while small, then compressed into blocks.

A block takes a quarter of the space and ten times as long to write.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.sample import Sample
from joblens.stores.postgres.connection import Connection, Database
from joblens.stores.postgres.sql import encoded_queries
from joblens.stores.samples.blocks import encode_block, runs_of_indexes
from joblens.stores.samples.rows import decode_samples, encode_piece, is_piece, joined_pieces

_Q = encoded_queries("writing.sql")

# Pieces below this size are merged when this many have accumulated.
SMALL_PIECE = 16
MANY_PIECES = 64
_LARGE_BLOCK = 1920
# An ended job with fewer bytes of samples is not worth compressing.
_FEW_PIECES = 4
_FEW_SAMPLES = 32

Piece = tuple[int, int, int, int, bytes]  # job number, fencing token, first index, count, data
_Row = tuple[int, int, bytes]  # first index, count, data


def pieces_of(number: int, fence: int, samples: dict[int, Sample]) -> Iterator[Piece]:
    for run in runs_of_indexes(sorted(samples), _LARGE_BLOCK):
        yield number, fence, run[0], len(run), encode_piece(samples[index] for index in run)


def insert_pieces(connection: Connection, pieces: Iterable[Piece]) -> None:
    """Inserts pieces, except those of jobs that are now under another fencing token."""
    columns = columns_of(pieces)
    if columns["job_ids"]:
        connection.execute(
            _Q["take_news"], {**columns, "detail_ids": [], "detail_fences": [], "md5s": [], "details": []}
        )


def columns_of(pieces: Iterable[Piece]) -> dict[str, list[int] | list[bytes]]:
    # Sorted, so that two writers of the same rows cannot deadlock.
    rows = sorted(pieces, key=lambda piece: piece[:4])
    names = ("job_ids", "fences", "firsts", "counts", "data")
    columns = map(list, zip(*rows, strict=True)) if rows else ([] for _ in names)
    return dict(zip(names, columns, strict=True))


def measure(connection: Connection, numbers: Sequence[int]) -> list[int]:
    """Records how many bytes the samples of ended jobs take. Returns the jobs worth compressing."""
    rows = connection.execute(_Q["measure_samples"], (list(numbers),)).fetchall()
    return [number for number, pieces, samples in rows if pieces > _FEW_PIECES or samples >= _FEW_SAMPLES]


def join_small(connection: Connection, number: int) -> None:
    """Merges the small pieces of a running job into one. Call inside a transaction."""
    fence, _ = _locked(connection, number)
    for rows in _following(_small_pieces(connection, number, fence, SMALL_PIECE)):
        if len(rows) > 1:
            try:
                data = joined_pieces([data for _, _, data in rows])
            except StoreCorrupt:
                continue  # stays where it is; reading it reports the damage
            if data is not None:
                _replace(connection, number, fence, rows, [(rows[0][0], sum(row[1] for row in rows), data)])


def compress(connection: Connection, number: int, level: int) -> None:
    """Compresses all samples of an ended job into as few blocks as possible. Call inside a transaction."""
    fence, has_ended = _locked(connection, number)
    if not has_ended:
        return  # the job is running again
    rows = _small_pieces(connection, number, fence, _LARGE_BLOCK)
    readable: list[_Row] = []
    blocks = list(_blocks(_readable(rows, readable), level))
    if any(is_piece(data) for _, _, data in readable) or len(blocks) < len(readable):
        _replace(connection, number, fence, readable, blocks)
    measure(connection, [number])


def _readable(rows: Sequence[_Row], readable: list[_Row]) -> Iterator[tuple[int, list[Sample]]]:
    """Yields (first index, samples) of readable rows and adds them to `readable`; the others stay stored."""
    for row in rows:
        try:
            samples = decode_samples(row[2])
        except StoreCorrupt:
            continue
        readable.append(row)
        yield row[0], samples


def _blocks(parts: Iterable[tuple[int, list[Sample]]], level: int) -> Iterator[_Row]:
    """Yields blocks of parts in order of their first index, keeping only a few parts in memory."""
    waiting: dict[int, Sample] = {}
    for first, samples in parts:
        if len(waiting) >= _LARGE_BLOCK:
            *whole, rest = runs_of_indexes(sorted(index for index in waiting if index < first), _LARGE_BLOCK)
            for run in whole if len(rest) < _LARGE_BLOCK else [*whole, rest]:
                yield _block([(index, waiting.pop(index)) for index in run], level)
        waiting.update(enumerate(samples, first))
    for run in runs_of_indexes(sorted(waiting), _LARGE_BLOCK):
        yield _block([(index, waiting[index]) for index in run], level)


def _block(samples: Sequence[tuple[int, Sample]], level: int) -> _Row:
    return samples[0][0], len(samples), encode_block([sample for _, sample in samples], level)


def compress_all(database: Database, level: int) -> int:
    """Compresses samples that killed or failed writers left uncompressed. Returns the number of jobs."""
    database.write(lambda connection: connection.execute(_Q["drop_old_pieces"]))
    with database.use() as connection:
        numbers = [
            int(number)
            for (number,) in connection.execute(_Q["unsettled_jobs"], (_FEW_PIECES, _FEW_SAMPLES)).fetchall()
        ]
    for number in numbers:
        compress_job(database, number, level)
    return len(numbers)


def compress_job(database: Database, number: int, level: int) -> None:
    database.write(lambda connection: compress(connection, number, level))


def read_samples(
    connection: Connection, uuid: str, after: int, warn: Callable[[str], None], most: int | None = None
) -> list[tuple[int, Sample]]:
    found: dict[int, Sample] = {}
    for first, data in connection.execute(_Q["samples"], (uuid, after + 1), binary=True).fetchall():
        if most is not None and len(found) >= most and first > max(found):
            break
        _take(found, uuid, first, data, after, warn)
    return sorted(found.items(), key=lambda item: item[0])[:most]


def parts_of(connection: Connection, uuid: str) -> list[tuple[int, bytes]]:
    """(index of the first sample, encoded), in order; they may overlap."""
    return connection.execute(_Q["samples"], (uuid, 0), binary=True).fetchall()


def read_tails(
    connection: Connection, after: Mapping[str, int], most: int, warn: Callable[[str], None]
) -> dict[str, list[tuple[int, Sample]]]:
    limits = list(after), [last + 1 for last in after.values()]
    found: dict[str, dict[int, Sample]] = {}
    for uuid, first, data in connection.execute(_Q["tails"], (*limits, most), binary=True).fetchall():
        _take(found.setdefault(uuid, {}), uuid, first, data, after[uuid], warn)
    return {uuid: sorted(samples.items())[-most:] for uuid, samples in found.items() if samples}


def _take(
    found: dict[int, Sample], uuid: str, first: int, data: bytes, after: int, warn: Callable[[str], None]
) -> None:
    try:
        samples = decode_samples(data)
    except StoreCorrupt as error:
        warn(f"samples of job {uuid} from index {first} on are lost: {error}")
        return
    for index, sample in enumerate(samples, first):
        if index > after:
            found.setdefault(index, sample)


def _locked(connection: Connection, number: int) -> tuple[int, bool]:
    row = connection.execute(_Q["lock_job"], (number,)).fetchone()
    return (0, False) if row is None else (int(row[0]), bool(row[1]))


def _small_pieces(connection: Connection, number: int, fence: int, below: int) -> list[_Row]:
    return connection.execute(_Q["small_pieces"], (number, fence, below), binary=True).fetchall()


def _following(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    """Groups rows into runs without gaps."""
    run: list[_Row] = []
    for row in rows:
        if run and row[0] != run[-1][0] + run[-1][1]:
            yield run
            run = []
        run.append(row)
    if run:
        yield run


def _replace(
    connection: Connection, number: int, fence: int, old: Sequence[_Row], new: Sequence[_Row]
) -> None:
    keys = [row[0] for row in old], [row[1] for row in old]
    others = [list(column) for column in zip(*new, strict=True)] if new else [[], [], []]
    connection.execute(_Q["replace_pieces"], (number, fence, *keys, *others))
