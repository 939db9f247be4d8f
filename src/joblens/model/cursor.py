"""Cursor: position in a list of jobs, as opaque text for requests of the next page."""

import base64
import binascii

import msgspec
from msgspec import Struct

from joblens.model.errors import InputError
from joblens.model.history import SortKey


class Cursor(Struct, frozen=True, array_like=True):
    """The last job of a page: its sort key (None: unknown, such jobs come last) and its number."""

    sort: SortKey
    ascending: bool
    key: int | str | None
    number: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Cursor)


def encode_cursor(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(_encoder.encode(cursor)).rstrip(b"=").decode()


def decode_cursor(text: str, sort: SortKey, *, ascending: bool) -> Cursor:
    """Raises InputError if the text is not a cursor, or belongs to a list in another order."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        cursor = _decoder.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise InputError(
            f"cursor '{text[:80]}' is not one that a list returned",
            hint="use `next` of the previous page unchanged, or omit it to start again",
        ) from error
    is_text = sort is SortKey.NAME
    if (cursor.sort, cursor.ascending) != (sort, ascending) or (
        cursor.key is not None and isinstance(cursor.key, str) != is_text
    ):
        raise InputError(
            f"cursor '{text[:80]}' belongs to a list in another order",
            hint="keep sort and direction the same for all pages",
        )
    return cursor
