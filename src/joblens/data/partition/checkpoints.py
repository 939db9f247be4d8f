"""Checkpoints of a partition: finished work on disk, verified by the content of its arrays.

A *delta* records what operators changed since the previous checkpoint: the remaining rows, and new values of
changed rows. Deltas form a chain from the source; each names its predecessor, so that one that does not fit
is never applied. A *whole* state is written where partitions meet.
"""

import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from joblens.data.base.manifests import digest_of, digest_of_all
from joblens.data.base.op_usage import note_mapped
from joblens.data.files.parquet_schema import PartManifest
from joblens.data.rows.batch import LINE, Rows
from joblens.data.rows.partition import PartitionState, joined_in_place
from joblens.files.atomic import atomic_file, write_atomically
from joblens.files.private import make_private_folder
from joblens.model.jobs.details import RejectReason
from joblens.model.recipes.recipe import OperatorCall


def content_of(array: Any) -> Iterator[Any]:
    """Yields buffers to hash in order.

    Their sizes follow from the type and earlier buffers, so that different values never give the same bytes.
    """
    yield len(array).to_bytes(8, "little")
    yield array.null_count.to_bytes(8, "little")
    if array.null_count:
        yield _values(pc.is_valid(array).cast(pa.uint8()), 1)
        try:
            array = array.drop_null()
        except pa.ArrowNotImplementedError:
            yield _slowly(array)
            return
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        yield from content_of(array.storage)
    elif pa.types.is_dictionary(kind):
        yield from content_of(array.dictionary_decode())
    elif pa.types.is_struct(kind):
        for field in array.flatten():
            yield from content_of(field)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        yield from _content_of_lists(array)
    elif _is_bytes(kind):
        yield from _content_of_bytes(array)
    elif pa.types.is_boolean(kind):
        yield _values(array.cast(pa.uint8()), 1)
    elif pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        yield _values(array, kind.bit_width // 8)
    else:
        yield _slowly(array)


def _slowly(array: Any) -> bytes:
    """Returns the bytes of rare types, by a slow path."""
    return repr(array.to_pylist()).encode(errors="surrogatepass")


def _is_bytes(kind: Any) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )


def _values(array: Any, width: int) -> Any:
    buffer = array.buffers()[1]
    return b"" if buffer is None else buffer.slice(array.offset * width, len(array) * width)


def _content_of_bytes(array: Any) -> Iterator[Any]:
    if not len(array):
        return
    is_large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    width = np.int64 if is_large else np.int32
    offsets = np.frombuffer(array.buffers()[1], width)[array.offset : array.offset + len(array) + 1]
    yield np.diff(offsets).tobytes()
    data = array.buffers()[2]
    if data is not None:
        yield data.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _content_of_lists(array: Any) -> Iterator[Any]:
    """Hashes lists without nulls: all lengths, then all values."""
    if not len(array):
        return
    if pa.types.is_map(array.type):
        offsets = np.asarray(array.offsets)[: len(array) + 1]
        yield np.diff(offsets).tobytes()
        for values in (array.keys, array.items):
            yield from content_of(values.slice(int(offsets[0]), int(offsets[-1] - offsets[0])))
        return
    yield from content_of(pc.list_value_length(array))
    yield from content_of(array.flatten())


_ALIVE = "alive"
_IDS = "__ids__"
_CHANGED = "__changed__"


class VerifiedFile(Struct, frozen=True, kw_only=True):
    """File with size and digest, which detect a torn one."""

    path: str  # relative to the folder of its manifest
    size_bytes: int
    digest: str


class RejectsSoFar(Struct, frozen=True, kw_only=True):
    count: int = 0
    unread: int = 0  # unreadable rows among them
    file: VerifiedFile | None = None
    reasons: tuple[RejectReason, ...] = ()


class PartitionLife(Struct, frozen=True, kw_only=True):
    """Facts about a partition for the job's report."""

    checksum: str = ""  # of its rows as read
    started_at: float | None = None  # of the successful attempt; seconds since 1970
    ended_at: float | None = None
    retries: int = 0


class DeltaManifest(Struct, frozen=True, kw_only=True):
    partition_id: int
    index: int  # index of the last operator included
    base: str
    chain: str
    source_rows: int
    rows: int
    columns: tuple[str, ...]
    file: VerifiedFile
    rejects: RejectsSoFar = RejectsSoFar()  # since the base


class StageManifest(Struct, frozen=True, kw_only=True):
    """Partition that has reached a global operator."""

    partition_id: int
    stage: int
    origin: str  # identity of the stage's start
    source_rows: int
    rows: int
    changed: tuple[str, ...]
    whole: VerifiedFile
    signatures: VerifiedFile
    usage: dict[str, Any] = {}  # cost of the signatures and of saving this
    rejects: RejectsSoFar = RejectsSoFar()  # since the partition was read
    life: PartitionLife = PartitionLife()

    @property
    def chain(self) -> str:
        return digest_of(self.origin, self.whole.digest)


class FinishedPart(Struct, frozen=True, kw_only=True):
    """Partition that has passed all operators and is ready for export."""

    partition_id: int
    origin: str  # identity of the last stage's start
    source_rows: int
    part: PartManifest
    rejects: RejectsSoFar = RejectsSoFar()
    life: PartitionLife = PartitionLife()


class MaskOfPart(Struct, frozen=True, kw_only=True):
    partition_id: int
    chain: str  # identity of the state it was made for
    rows: int
    kept: int
    offset: int  # offset in the file of all masks
    digest: str
    first_number: int | None = None  # number of its first row, from an operator that numbers rows

    @property
    def size_bytes(self) -> int:
        return (self.rows + 7) // 8

    @property
    def next_chain(self) -> str:
        """Returns the identity of the state without the dropped rows."""
        number = () if self.first_number is None else (str(self.first_number),)
        return digest_of(self.chain, self.digest, *number)


class MasksManifest(Struct, frozen=True, kw_only=True):
    index: int  # of the global operator
    file: VerifiedFile
    parts: tuple[MaskOfPart, ...]


def source_chain(rows: Rows) -> str:
    """Returns the identity of a partition as read: bytes of lines, or all values of all columns of tables."""
    names = rows.batch.schema.names
    columns = [rows.batch.column(name) for name in ([LINE] if LINE in names else names)]
    contents = itertools.chain.from_iterable(map(content_of, columns))  # everything else is in the line
    return digest_of_all(itertools.chain([str(rows.count), str(rows.batch.schema)], contents))


def next_chain(base: str, calls: tuple[OperatorCall, ...], file: VerifiedFile) -> str:
    return digest_of(base, msgspec.json.encode(calls, order="deterministic"), file.digest)


def keep_bytes(path: str, data: Any) -> VerifiedFile:
    write_atomically(path, data)
    return VerifiedFile(path=os.path.basename(path), size_bytes=len(data), digest=digest_of(data))


def load_verified(folder: str, file: VerifiedFile) -> Any:
    """Maps the file; None: it was changed."""
    path = os.path.join(folder, file.path)
    try:
        if os.path.getsize(path) != file.size_bytes:
            return None
        if not file.size_bytes:
            return pa.py_buffer(b"")
        with pa.memory_map(path) as mapped:
            buffer = mapped.read_buffer()
    except OSError:
        return None
    note_mapped(file.size_bytes)
    return buffer if digest_of(buffer) == file.digest else None


# Deltas


def delta_of(state: PartitionState) -> Any:
    """Builds a delta as one row of lists, because the columns differ in length."""
    names: list[str] = []
    arrays: list[Any] = []
    if LINE in state.changed_rows:
        state.compact()  # the same effect as removing the lines, but before any computation
    if state.has_dropped:
        bits = np.zeros(state.source_rows, dtype=bool)
        bits[state.alive_ids] = True
        names.append(_ALIVE)
        arrays.append(pa.array([np.packbits(bits).tobytes()], pa.large_binary()))
    for name, changed in state.changed_rows.items():
        if not state.has_column(name):  # removed below
            continue
        mask = changed[state.ids] if state.alive is None else changed[state.ids] & state.alive
        values = state.column(name).filter(pa.array(mask))
        names += [f"ids:{name}", f"values:{name}"]
        arrays += [_one_list(pa.array(state.ids[mask])), _one_list(values)]
    if not arrays:  # an operator that changed nothing
        return pa.RecordBatch.from_arrays([pa.array([True])], names=["nothing"])
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _one_list(values: Any) -> Any:
    return pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)


def apply_delta(state: PartitionState, buffer: Any) -> None:
    """Applies a delta to the state that it belongs to."""
    batch = pa.ipc.open_file(buffer).get_batch(0)
    names = batch.schema.names
    if _ALIVE in names:
        packed = np.frombuffer(batch.column(_ALIVE)[0].as_buffer(), np.uint8)
        bits = np.unpackbits(packed, count=state.source_rows).astype(bool)
        state.drop(bits[state.ids])
    state.compact()
    for name in names:
        if name.startswith("ids:"):
            column = name.removeprefix("ids:")
            ids = np.asarray(batch.column(name).values)
            _put_values(state, column, ids, batch.column(f"values:{column}").values)
            state.note_changed(column, ids)


def _put_values(state: PartitionState, column: str, ids: Any, values: Any) -> None:
    if len(ids) == len(state.ids):  # all rows, possibly of another type or a new column
        state.put(column, values)
        return
    mask = np.zeros(len(state.ids), dtype=bool)
    mask[np.searchsorted(state.ids, ids)] = True
    old = state.column(column)
    try:
        state.put(column, pc.replace_with_mask(old, pa.array(mask), values))
    except pa.ArrowNotImplementedError:  # nested columns
        indexes = np.arange(len(mask))
        indexes[mask] = len(old) + np.arange(len(values))
        state.put(column, pa.concat_arrays([old, values]).take(pa.array(indexes)))


def serialized(batch: Any) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


# Whole states, with signatures


def write_batch(path: str, batch: Any) -> VerifiedFile:
    return write_batches(path, [batch])


def write_batches(path: str, batches: Iterable[Any]) -> VerifiedFile:
    """Writes batches with equal columns, at least one, atomically."""
    make_private_folder(os.path.dirname(path))
    following = iter(batches)
    first = next(following)
    with atomic_file(path) as being_written:
        with pa.OSFile(being_written, "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
            for batch in itertools.chain([first], following):
                writer.write_batch(batch)
        with pa.memory_map(being_written) as mapped:
            buffer = mapped.read_buffer()
        return VerifiedFile(path=os.path.basename(path), size_bytes=buffer.size, digest=digest_of(buffer))


def whole_batches(state: PartitionState) -> Iterator[Any]:
    for piece in state.pieces():
        ids = np.asarray(piece.ids)
        yield piece.batch.append_column(_IDS, piece.ids).append_column(
            _CHANGED, pa.array(state.ever_changed[ids])
        )


def whole_state(buffer: Any, manifest: StageManifest, keep: Any) -> PartitionState:
    """Returns the rows that are true in `keep`."""
    file = pa.ipc.open_file(buffer)
    batches = [file.get_batch(number) for number in range(file.num_record_batches)]
    if len(batches) == 1 and keep.all():
        batch = batches[0]
    else:
        batch = joined_in_place(
            batches, lambda first, each: each.filter(pa.array(keep[first : first + each.num_rows]))
        )
    rows = Rows(batch.drop_columns([_IDS, _CHANGED]), batch.column(_IDS))
    state = PartitionState(rows, source_rows=manifest.source_rows, chain=manifest.chain)
    state.changed_columns = set(manifest.changed)
    state.ever_changed[state.ids] = np.asarray(batch.column(_CHANGED))
    return state


def batch_in(buffer: Any) -> Any:
    return pa.ipc.open_file(buffer).get_batch(0)
