"""Values of joblens as messages and back, by the names of fields."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from google.protobuf import message_factory, unknown_fields
from google.protobuf.message import DecodeError

from joblens.model.errors import InputError

T = TypeVar("T")
_HINT = "joblens.proto describes every field: joblens schema --grpc"


def to_message(kind: Any, values: Mapping[str, Any]) -> Any:
    """Returns a message from plain values, as `msgspec.to_builtins` returns them. None: not set."""
    converters = _converters(kind)
    return kind(
        **{
            name: value if (convert := converters[name]) is None else convert(value)
            for name, value in values.items()
            if value is not None
        }
    )


def decode(kind: Any, data: bytes) -> Any:
    """Returns a message from bytes. Raises InputError."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InputError("the request is not a message of this method", hint=_HINT) from error


def plain_values(message: Any) -> dict[str, Any]:
    """Returns the fields that are set. Raises InputError for fields that this server does not know: a filter
    of a newer client would otherwise return everything."""
    unknown = unknown_fields.UnknownFieldSet(message)
    if len(unknown):
        raise InputError(
            f"this server does not know field {unknown[0].field_number} of {message.DESCRIPTOR.name}",
            hint="the client is newer than the server; generate it from this server's joblens.proto",
        )
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.enum_type is not None:
            found[field.name] = _each(value, functools.partial(_enum_text, field))
        elif isinstance(value, str | int | float | bool | bytes):
            found[field.name] = value
        else:
            found[field.name] = dict(value) if hasattr(value, "items") else list(value)
        if any("\0" in text for text in _texts(found[field.name])):
            raise InputError(f"{field.name} has a NUL character, which no store can hold")
    return found


def to_value(values: Mapping[str, Any], kind: type[T]) -> T:
    """Raises InputError that names the field."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"the request: {error}", hint=_HINT) from error


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (*value, *value.values())
    elif isinstance(value, list):
        yield from value


def _each(value: Any, convert: Callable[[int], str]) -> Any:
    return convert(value) if isinstance(value, int) else [convert(each) for each in value]


def _enum_text(field: Any, number: int) -> str:
    found = field.enum_type.values_by_number.get(number)
    if found is None:
        raise InputError(f"{field.name}: {field.enum_type.name} has no value {number}", hint=_HINT)
    return str(found.name).removeprefix(_prefix(field.enum_type)).lower()


def _prefix(enum: Any) -> str:
    """Every value of an enum begins with its name: STATUS_QUEUED."""
    return str(enum.values[0].name).removesuffix("UNSPECIFIED")


@functools.cache
def _converters(kind: Any) -> dict[str, Callable[[Any], Any] | None]:
    return {field.name: _converter(field) for field in kind.DESCRIPTOR.fields}


def _converter(field: Any) -> Callable[[Any], Any] | None:
    """Returns how a plain value of a field becomes its value in a message; None: as it is."""
    if field.enum_type is not None:
        numbers = {each.name: each.number for each in field.enum_type.values}
        prefix = _prefix(field.enum_type)
        return lambda text: numbers[prefix + text.upper()]
    if field.message_type is None:
        return None
    if field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name["value"]
        if entry.message_type is None:
            return None
        make = _maker(entry.message_type)
        return lambda table: {key: make(value) for key, value in table.items()}
    make = _maker(field.message_type)
    return (lambda values: [make(each) for each in values]) if field.is_repeated else make


def _maker(descriptor: Any) -> Callable[[Mapping[str, Any]], Any]:
    kind = message_factory.GetMessageClass(descriptor)
    return lambda values: to_message(kind, values)
