"""User operators: registered by `@joblens.operator`, found by path or by entry point."""

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, overload

from joblens.data.base.operator import Operator
from joblens.model.errors import RecipeError

ENTRY_POINTS = "joblens.operators"

Written = TypeVar("Written", bound=Callable[..., Any])

_registered: dict[str, type[Operator]] = {}
_sources: dict[str, str] = {}  # operator -> its file


class _Loaded(NamedTuple):
    stamp: tuple[int, ...]
    operators: frozenset[str]
    modules: frozenset[str]


_loaded: dict[str, _Loaded] = {}  # files and folders, by their real path


@overload
def operator(written: Written, /) -> Written: ...


@overload
def operator(
    *, name: str = "", kind: Literal["mapper", "filter"] | None = None, fields: Sequence[str] | None = None
) -> Callable[[Written], Written]: ...


def operator(
    written: Written | None = None,
    /,
    *,
    name: str = "",
    kind: Literal["mapper", "filter"] | None = None,
    fields: Sequence[str] | None = None,
) -> Written | Callable[[Written], Written]:
    """Registers a function as an operator that recipes can name. It receives one row at a time, as a dict.

    A mapper returns the changed row (or None if it changed its argument), a filter returns whether to keep
    the row. Further parameters of the function are parameters of the operator. With `fields`, rows have only
    these fields, which is faster. A class with `__call__(row)` is created from its parameters once per
    worker; one that derives from Mapper or Filter works on whole Arrow batches.

    Without `kind`, a function annotated to return bool, or named …_filter, is a filter.
    """

    def register(thing: Written) -> Written:
        _register(name or _name_of(thing), _operator_class(thing, name, kind, fields), thing)
        return thing

    return register if written is None else register(written)


def registered(name: str) -> type[Operator] | None:
    return _registered.get(name)


def registered_names() -> list[str]:
    return list(_registered)


def source_of(name: str) -> str:
    """Returns the file of a user operator; "" if unknown."""
    return _sources.get(name, "")


def entry_point_names() -> list[str]:
    return [point.name for point in _entry_points()]


def from_entry_point(name: str) -> type[Operator] | None:
    """Loads an operator of an installed package. Raises RecipeError if it cannot be imported."""
    for point in _entry_points():
        if point.name == name:
            try:
                thing = point.load()
            except Exception as error:
                raise RecipeError(
                    f"the operator '{name}' of {point.value} cannot be imported: {_describe(error)}"
                ) from error
            if name not in _registered:  # a decorated function has registered itself, maybe by this name
                _register(name, _operator_class(thing, name, None, None), thing)
            return _registered[name]
    return None


def load(paths: Sequence[str], *, reserved: Container[str]) -> None:
    """Runs each file, and again only if it has changed. `reserved`: reserved names.

    The files of a folder form one package, so they can import each other. Removes operators of files that an
    earlier recipe named: a program may run several recipes.
    """
    requested = {os.path.realpath(os.path.expanduser(path)): path for path in paths}
    for real in list(_loaded):
        if real not in requested or _loaded[real].stamp != _stamp(real):
            _forget(_loaded.pop(real))
    for real, path in requested.items():
        if real not in _loaded:
            _loaded[real] = _load(path, real, reserved)


def _load(path: str, real: str, reserved: Container[str]) -> _Loaded:
    stamp, operators, modules = _stamp(real), set(_registered), set(sys.modules)
    # Python takes bytecode for current when the source has the same size and the same second, so a file that
    # is changed and run again at once would run as it was.
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        for module in _modules(path, real):
            _register_classes(module)
        for name in sorted(set(_registered) - operators):
            if name in reserved:
                raise RecipeError(f"{path}: operator '{name}' already exists; rename yours")
    except BaseException:
        _forget(_new(stamp, operators, modules, real))
        raise
    finally:
        sys.dont_write_bytecode = writes_none
    return _new(stamp, operators, modules, real)


def _new(stamp: tuple[int, ...], operators: set[str], modules: set[str], real: str) -> _Loaded:
    own = _module_name(real)
    run = {name for name in set(sys.modules) - modules if name == own or name.startswith(f"{own}.")}
    return _Loaded(stamp, frozenset(set(_registered) - operators), frozenset(run))


def _forget(loaded: _Loaded) -> None:
    for name in loaded.operators:
        del _registered[name], _sources[name]
    for name in loaded.modules:
        sys.modules.pop(name, None)


def _stamp(real: str) -> tuple[int, ...]:
    """Returns when the file, or a file in the folder, was last modified."""
    inside = sorted(os.listdir(real)) if os.path.isdir(real) else []
    files = [real, *(os.path.join(real, name) for name in inside if name.endswith(".py"))]
    try:
        return tuple(os.stat(file).st_mtime_ns for file in files)
    except OSError:
        return ()


def _entry_points() -> Sequence[Any]:
    from importlib.metadata import entry_points

    return list(entry_points(group=ENTRY_POINTS))


def _modules(path: str, real: str) -> Iterator[Any]:
    if os.path.isfile(real):
        yield _run(path, real, _module_name(real))
    elif os.path.isdir(real):
        files = sorted(name for name in os.listdir(real) if name.endswith(".py") and name != "__init__.py")
        start = os.path.join(real, "__init__.py")
        if not files and not os.path.exists(start):
            raise RecipeError(f"no Python files in {path}")
        package = _module_name(real)
        yield _run_package(path, real, package, start)
        for name in files:
            module = f"{package}.{name[:-3]}"
            # the package itself may have imported it already
            yield sys.modules.get(module) or _run(os.path.join(path, name), os.path.join(real, name), module)
    else:
        raise RecipeError(f"no such file or directory: {path}")


def _module_name(real: str) -> str:
    import hashlib

    mark = hashlib.sha256(real.encode(errors="surrogateescape")).hexdigest()[:8]
    stem = os.path.splitext(os.path.basename(real))[0]
    return f"joblens_own_{mark}_{stem if stem.isidentifier() else 'operators'}"


def _run(path: str, real: str, name: str) -> Any:
    return _executed(path, name, importlib.util.spec_from_file_location(name, real))


def _run_package(path: str, real: str, name: str, start: str) -> Any:
    if os.path.exists(start):
        spec = importlib.util.spec_from_file_location(name, start, submodule_search_locations=[real])
        return _executed(path, name, spec)
    import types

    package = types.ModuleType(name)
    package.__path__ = [real]
    sys.modules[name] = package
    return package


def _executed(path: str, name: str, spec: Any) -> Any:
    if spec is None or spec.loader is None:
        raise RecipeError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        if isinstance(error, RecipeError):
            raise RecipeError(f"{path}: {error}") from error
        raise RecipeError(f"{path} cannot be run: {_describe(error)}") from error
    return module


def _register_classes(module: Any) -> None:
    """Registers operator classes with a name of their own; they need no decorator."""
    for thing in list(vars(module).values()):
        if isinstance(thing, type) and issubclass(thing, Operator) and thing.__module__ == module.__name__:
            name = thing.__dict__.get("name", "")
            if name and _registered.get(name) is not thing:
                _register(name, thing, thing)


def _register(name: str, kind: type[Operator], thing: Any) -> None:
    source = getattr(sys.modules.get(thing.__module__), "__file__", None) or thing.__module__
    if name in _registered and _sources[name] != source:
        raise RecipeError(f"two files define the operator '{name}': {_sources[name]} and {source}")
    _registered[name] = kind
    _sources[name] = source


def _operator_class(thing: Any, name: str, kind: str | None, fields: Sequence[str] | None) -> type[Operator]:
    if isinstance(thing, type) and issubclass(thing, Operator):
        if not thing.__dict__.get("name"):
            thing.name = name or _name_of(thing)
        return thing
    if not callable(thing):
        raise RecipeError(f"an operator must be a function or a class, not {type(thing).__name__}")
    if kind not in (None, "mapper", "filter"):
        raise RecipeError(
            f"operator '{name or _name_of(thing)}': kind must be 'mapper' or 'filter', not '{kind}'"
        )
    if isinstance(fields, str):
        raise RecipeError(
            f"operator '{name or _name_of(thing)}': fields must be a list, such as ['{fields}']"
        )
    from joblens.data.registry.row_operators import row_operator

    return row_operator(thing, name or _name_of(thing), kind, None if fields is None else tuple(fields))


def _name_of(thing: Any) -> str:
    """Returns a function's name, or a class's name in snake case: WordsFilter -> words_filter."""
    own = thing.__dict__.get("name", "") if isinstance(thing, type) else ""
    if own:
        return str(own)
    written = str(thing.__name__)
    if not inspect.isclass(thing):
        return written
    letters = (f"_{letter.lower()}" if letter.isupper() else letter for letter in written)
    return "".join(letters).lstrip("_")


def _describe(error: BaseException) -> str:
    """Describes the error with its line in the user's file."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "importlib" not in frame.filename and __file__ != frame.filename]
    where = f" (line {own[-1].lineno} of {own[-1].filename})" if own else ""
    return f"{type(error).__name__}: {error}{where}"
