"""Fast imports: joblens' own modules straight from their compiled files, and msgspec without the modules
that it imports and joblens does not use.

Python tries every form of a file that a module can have. A start imports more than a hundred:
their names say where they are, which saves 4 of its 60 ms. Without the other modules, importing msgspec
takes 20 ms instead of 33: 7 for typing_extensions and datetime, 2 each for the other two groups. Its one
forward reference, made to see whether Python knows a parameter, would start the compiler: another 2 ms."""

import marshal
import os
import sys
from _frozen_importlib_external import MAGIC_NUMBER  # importlib.util imports more than it saves here
from importlib.machinery import ModuleSpec, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

_COMPILED = f".{sys.implementation.cache_tag}.pyc"
_HEAD = MAGIC_NUMBER + bytes(4)  # of a file that is valid for one time and size of its source; these follow
_CODE_AT = len(_HEAD) + 8
_MOST_BYTES = 1 << 16


def import_quickly() -> None:
    """Takes effect from now on. A module whose compiled file is elsewhere, or old, is imported as usual."""
    if not sys.flags.optimize and sys.pycache_prefix is None:
        sys.meta_path.insert(0, CompiledModules())


class CompiledModules:
    """Finder of modules of joblens."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None", _target: "ModuleType | None" = None
    ) -> ModuleSpec | None:
        if not path or not name.startswith("joblens."):
            return None
        folder, own_name = path[0], name.rpartition(".")[2]
        return _spec(name, folder, own_name) or _spec(name, f"{folder}/{own_name}", "__init__")


def _spec(name: str, folder: str, file_name: str) -> ModuleSpec | None:
    source, compiled = f"{folder}/{file_name}.py", f"{folder}/__pycache__/{file_name}{_COMPILED}"
    try:
        descriptor = os.open(compiled, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = os.read(descriptor, _MOST_BYTES)
        finally:
            os.close(descriptor)
        found = os.stat(source)
    except OSError:
        return None
    validity = b"".join(
        (number & 0xFFFFFFFF).to_bytes(4, "little") for number in (int(found.st_mtime), found.st_size)
    )
    if content[:_CODE_AT] != _HEAD + validity or len(content) == _MOST_BYTES:
        return None
    code: CodeType = marshal.loads(memoryview(content)[_CODE_AT:])  # noqa: S302 - as Python does
    if code.co_filename != source:  # the folder was moved: tracebacks would name other files
        return None
    spec = ModuleSpec(name, _Loader(name, source, code), origin=source, is_package=file_name == "__init__")
    if spec.submodule_search_locations is not None:
        spec.submodule_search_locations.append(folder)
    spec.cached, spec.has_location = compiled, True
    return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, code: "CodeType") -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> "CodeType":
        return self._code


def import_msgspec(*, runs_command: bool) -> None:
    """Imports msgspec with stand-ins for some modules, which others import as usual later."""
    if "msgspec" in sys.modules:
        return
    import typing

    stand_ins: dict[str, object] = {
        "typing_extensions": None,  # cannot be imported: `typing` has what msgspec needs
        "datetime": __import__("_datetime"),  # Python 3.11 defines all of it twice, first in Python
    }
    for name in ("platform", "textwrap", "msgspec.inspect", "msgspec.toml", "msgspec.yaml"):
        stand_ins[name] = _LazyModule(name)
    vars(stand_ins["platform"])["system"] = lambda: os.uname().sysname  # all that `uuid` needs of it
    if runs_command:  # it encodes no decimal numbers, UUIDs and JSON schemas
        for name in ("decimal", "uuid", "msgspec._json_schema"):
            stand_ins[name] = _EmptyModule(name)
    stand_ins = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(stand_ins)  # type: ignore[arg-type]  # None is allowed
    names = vars(typing)
    reference, names["ForwardRef"] = names["ForwardRef"], lambda *_values, **_options: None
    try:
        import msgspec  # noqa: F401
    except ImportError:
        pass  # this version needs one of them; the next import of msgspec finds it
    finally:
        names["ForwardRef"] = reference
        for name, module in stand_ins.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


class _LazyModule(type(sys)):  # type: ignore[misc]  # a module
    """Imports the module of its name when something of it is used."""

    def __getattr__(self, name: str) -> object:
        import importlib

        module = str(self.__name__)
        if sys.modules.get(module) is self:
            del sys.modules[module]
        return getattr(importlib.import_module(module), name)


class _EmptyModule(type(sys)):  # type: ignore[misc]  # a module
    """Has an empty class for each name that is imported from it."""

    def __getattr__(self, name: str) -> object:
        return type(name, (), {"unknown": None})
