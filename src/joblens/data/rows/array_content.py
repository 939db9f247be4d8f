"""The content of an Arrow array as bytes: the same for equal values, wherever they lie and whatever is left
in the places of nulls."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def content_of(array: Any) -> Iterator[Any]:
    """Pieces to be hashed one after the other. Their sizes follow from the type and the pieces before, so
    that different values never give the same bytes."""
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
    """Of rare types."""
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
    """Without nulls: all lengths, then all values one behind the other."""
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
