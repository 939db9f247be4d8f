"""Message classes and methods of joblens.proto, made at start from the file itself.

The protobuf runtime cannot read .proto files, and the compiler (grpcio-tools) is larger than the server. Code
that it generates would be a second source, bound to one release of protobuf. The file uses few features of
the language and is read here; a test compares the result with the compiler's."""

import functools
import re
from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from joblens.web.rpc import PROTO_FILE

_TOKEN = re.compile(r'//[^\n]*|"(?P<text>[^"]*)"|(?P<token>[\w.]+|[{}()<>=,;])|\s+')
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "double": _Field.TYPE_DOUBLE,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
}


def parse_proto(text: str) -> Any:
    """Returns the FileDescriptorProto of a file with messages, enums and services. Raises ValueError."""
    return _Reader(text).file()


class Schema:
    """Message classes by name, and the methods of the service."""

    def __init__(self, text: str) -> None:
        file = parse_proto(text)
        self.pool = descriptor_pool.DescriptorPool()
        self.pool.Add(file)
        self._package = file.package
        (service,) = file.service
        self.service = f"{file.package}.{service.name}"
        self.methods = {each.name: each for each in service.method}

    @functools.cache  # noqa: B019 - one schema per process
    def message(self, name: str) -> Any:
        """Returns the class of a message of the file: `Job`, or `.joblens.v1.Job` as in a method."""
        full_name = name.removeprefix(".") if name.startswith(".") else f"{self._package}.{name}"
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(full_name))


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._place = 0
        self._file = descriptor_pb2.FileDescriptorProto(name=PROTO_FILE)

    def file(self) -> Any:
        while self._place < len(self._tokens):
            match self._next():
                case "syntax":
                    self._expect("=")
                    self._file.syntax = self._next()
                    self._expect(";")
                case "package":
                    self._file.package = self._next()
                    self._expect(";")
                case "message":
                    self._message()
                case "enum":
                    self._enum()
                case "service":
                    self._service()
                case other:
                    raise ValueError(f"'{other}' is not known here")
        self._resolve_types()
        return self._file

    def _message(self) -> None:
        message = self._file.message_type.add(name=self._next())
        for word in self._block():
            self._field(message, word)
        # The compiler, too, puts the one-field groups that carry presence behind all others.
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _field(self, message: Any, word: str) -> None:
        label, is_optional = _Field.LABEL_OPTIONAL, word == "optional"
        if word == "repeated":
            label = _Field.LABEL_REPEATED
        kind = self._next() if word in ("optional", "repeated") else word
        entry: tuple[str, str] | None = None
        if kind == "map":
            label, entry = _Field.LABEL_REPEATED, self._map_types()
        field = message.field.add(name=self._next(), label=label)
        self._expect("=")
        field.number = int(self._next())
        self._expect(";")
        if entry is not None:
            kind = self._map_entry(message, field.name, entry)
        if is_optional:
            field.proto3_optional = True
        _set_type(field, kind)

    def _map_types(self) -> tuple[str, str]:
        self._expect("<")
        key = self._next()
        self._expect(",")
        value = self._next()
        self._expect(">")
        return key, value

    def _map_entry(self, message: Any, name: str, types: tuple[str, str]) -> str:
        """A map is a repeated message with a key and a value."""
        entry = message.nested_type.add(name="".join(part.title() for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        for number, (part, kind) in enumerate(zip(("key", "value"), types, strict=True), 1):
            field = entry.field.add(name=part, number=number, label=_Field.LABEL_OPTIONAL)
            _set_type(field, kind)
        return f"{message.name}.{entry.name}"

    def _enum(self) -> None:
        enum = self._file.enum_type.add(name=self._next())
        for name in self._block():
            self._expect("=")
            enum.value.add(name=name, number=int(self._next()))
            self._expect(";")

    def _service(self) -> None:
        service = self._file.service.add(name=self._next())
        for word in self._block():
            if word != "rpc":
                raise ValueError(f"'{word}' is not known in a service")
            method = service.method.add(name=self._next())
            method.input_type, _ = self._method_type()
            self._expect("returns")
            method.output_type, is_stream = self._method_type()
            if is_stream:
                method.server_streaming = True
            self._expect(";")

    def _method_type(self) -> tuple[str, bool]:
        self._expect("(")
        name = self._next()
        is_stream = name == "stream"
        if is_stream:
            name = self._next()
        self._expect(")")
        return f".{self._file.package}.{name}", is_stream

    def _resolve_types(self) -> None:
        enums = {each.name for each in self._file.enum_type}
        for message in self._file.message_type:
            for each in (message, *message.nested_type):
                for field in each.field:
                    if field.type_name:
                        field.type = _Field.TYPE_ENUM if field.type_name in enums else _Field.TYPE_MESSAGE
                        field.type_name = f".{self._file.package}.{field.type_name}"

    def _block(self) -> Iterator[str]:
        """Yields the first word of each statement between braces."""
        self._expect("{")
        while (word := self._next()) != "}":
            yield word

    def _next(self) -> str:
        if self._place >= len(self._tokens):
            raise ValueError("the file ends too early")
        self._place += 1
        return self._tokens[self._place - 1]

    def _expect(self, expected: str) -> None:
        if (found := self._next()) != expected:
            raise ValueError(f"'{found}' in place of '{expected}'")


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"'{text[position]}' is not known here")
        position = found.end()
        if found["text"] is not None:
            yield found["text"]
        elif found["token"] is not None:
            yield found["token"]


def _set_type(field: Any, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind
