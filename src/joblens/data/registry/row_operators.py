"""Row functions as operators on batches."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from joblens.data.base.operator import Filter, Mapper, Operator, RowErrors
from joblens.data.base.reasons import OF_AN_OPERATOR, reason_with_line
from joblens.data.rows.batch import LINE, Change, Row, decoded_rows, put_back, snapshot, thawed
from joblens.model.errors import RecipeError

_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)


def row_operator(written: Any, name: str, kind: str | None, fields: tuple[str, ...] | None) -> type[Operator]:
    """Wraps a function or class as an operator class.

    Its parameters are those after the row, or of the class.

    Raises RecipeError if it is neither.
    """
    called = written.__call__ if inspect.isclass(written) else written
    _check_it_takes_a_row(called, name, is_method=inspect.isclass(written))
    base = RowFilter if (kind or _kind_of(called, name)) == "filter" else RowMapper
    parameters = list(_signature(written, name).parameters.values())
    if not inspect.isclass(written):
        parameters = parameters[1:]  # the first is the row

    def __init__(self: Any, **given: Any) -> None:  # noqa: N807
        self.function = written(**given) if inspect.isclass(written) else functools.partial(written, **given)
        self.fields = fields

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    keyword = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in parameters
        if _is_named(parameter)
    ]
    __init__.__signature__ = inspect.Signature([own, *keyword])  # type: ignore[attr-defined]
    members = {
        "name": name,
        "__init__": __init__,
        "__doc__": inspect.getdoc(written),
        "__module__": written.__module__,
    }
    return type(name, (base,), members)


class RowMapper(Mapper):
    function: Callable[[Row], Row | None]
    fields: tuple[str, ...] | None

    def columns(self) -> tuple[str, ...]:
        return ()  # reads its fields from the row itself, whatever their types

    def map(self, batch: Any) -> Any:
        is_json = LINE in batch.schema.names
        changes: dict[int, Change] = {}
        wrong = _Wrong()
        for index, row in enumerate(decoded_rows(batch, self.fields)):
            try:
                before = snapshot(row, is_json=is_json)
                given_back = self.function(row)
                after = _checked(row if given_back is None else given_back, self.fields)
                if (frozen := snapshot(after, is_json=is_json)) != before:
                    changes[index] = Change(thawed(before), thawed(frozen))
            except OF_AN_OPERATOR as error:  # user code: any error is attributed to the row
                wrong.add(index, error)
        wrong.raise_errors(batch.num_rows)
        return batch if is_json and not changes else put_back(batch, changes)


class RowFilter(Filter):
    function: Callable[[Row], bool]
    fields: tuple[str, ...] | None

    def columns(self) -> tuple[str, ...]:
        return ()  # reads its fields from the row itself, whatever their types

    def stats(self, batch: Any) -> dict[str, Any]:
        stays: list[bool] = []
        wrong = _Wrong()
        for index, row in enumerate(decoded_rows(batch, self.fields)):
            try:
                stays.append(bool(self.function(row)))
            except OF_AN_OPERATOR as error:
                wrong.add(index, error)
        wrong.raise_errors(batch.num_rows)
        return {self.name: pa.array(stays, pa.bool_())}

    def keep(self, stats: dict[str, Any]) -> Any:
        return stats[self.name]


class _Wrong:
    """Rows on which a function failed."""

    def __init__(self) -> None:
        self._reasons: dict[int, str] = {}
        self._of_system: list[OSError] = []

    def add(self, index: int, error: BaseException) -> None:
        if isinstance(error, MemoryError):
            raise error  # not the fault of a row
        self._reasons[index] = reason_with_line(error)
        if isinstance(error, OSError):
            self._of_system.append(error.with_traceback(None))

    def raise_errors(self, rows: int) -> None:
        """Raises the collected errors.

        If no row could reach a file or a service, the error is not about rows.
        """
        if 1 < rows == len(self._of_system):
            raise self._of_system[0]
        if self._reasons:
            raise RowErrors(self._reasons)


def _is_named(parameter: inspect.Parameter) -> bool:
    return parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def _kind_of(called: Any, name: str) -> str:
    says_bool = _signature(called, name).return_annotation in (bool, "bool")
    return "filter" if says_bool or name.endswith("_filter") else "mapper"


def _signature(written: Any, name: str) -> inspect.Signature:
    try:
        return inspect.signature(written, eval_str=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise RecipeError(f"operator '{name}': invalid parameter types: {error}") from error


def _check_it_takes_a_row(called: Any, name: str, *, is_method: bool) -> None:
    if inspect.iscoroutinefunction(called) or inspect.isgeneratorfunction(called):
        kind = "async" if inspect.iscoroutinefunction(called) else "a generator"
        raise RecipeError(f"operator '{name}' is {kind}; it must be a plain function")
    parameters = list(_signature(called, name).parameters.values())[is_method:]
    if not parameters or parameters[0].kind not in _POSITIONAL:
        raise RecipeError(f"operator '{name}' takes no row; its first parameter must be the row")


def _checked(row: Any, fields: tuple[str, ...] | None) -> Row:
    if not isinstance(row, dict):
        hint = " (annotate a filter to return bool, or name it …_filter)" if isinstance(row, bool) else ""
        raise TypeError(f"a mapper must return a dict, not {type(row).__name__}{hint}")
    if fields is not None and not row.keys() <= set(fields):
        raise TypeError(f"unexpected fields: {', '.join(row.keys() - set(fields))}")
    return row
