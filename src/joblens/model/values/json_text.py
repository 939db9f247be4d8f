"""JSON from outside, decoded with a bound on its depth, so that later code may recurse."""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

MOST_DEPTH = 100
_TOO_DEEP = f"nested more than {MOST_DEPTH} levels deep"


def decode_json(data: bytes | str, kind: Any = Any) -> Any:
    """Decodes with msgspec. Raises DecodeError, also for JSON that is too deep."""
    try:
        value = msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise msgspec.DecodeError(_TOO_DEEP) from None
    opening = ("[", "{") if isinstance(data, str) else (b"[", b"{")
    # Counting brackets is fast, and most texts have fewer than the allowed levels.
    if sum(map(data.count, opening)) > MOST_DEPTH and _is_too_deep(value):  # type: ignore[arg-type]
        raise msgspec.DecodeError(_TOO_DEEP)
    return value


def decode_json_lines(data: bytes, decoder: msgspec.json.Decoder[T]) -> list[T]:
    """Decodes lines of JSON without counting levels: there may be millions of lines, and decoding itself has
    a bound."""
    try:
        return decoder.decode_lines(data)
    except RecursionError:
        raise msgspec.DecodeError(_TOO_DEEP) from None


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    return value if isinstance(value, list | tuple) else ()
