"""The operators that recipes can use."""

from collections.abc import Sequence

from joblens.model.errors import RecipeError
from joblens.model.recipes.operator_info import OperatorInfo


def list_operators(custom_paths: Sequence[str] = ()) -> list[OperatorInfo]:
    """All of them by name, those of these files and folders too."""
    from joblens.data.registry.info import describe
    from joblens.data.registry.lookup import names

    _load(custom_paths)
    return [describe(name) for name in names()]


def describe_operator(name: str, custom_paths: Sequence[str] = ()) -> OperatorInfo:
    """Raises UnknownOperator with the nearest name."""
    from joblens.data.registry.info import describe

    _load(custom_paths)
    return describe(name)


def _load(custom_paths: Sequence[str]) -> None:
    from joblens.data.registry.lookup import load_custom

    try:
        load_custom(custom_paths)
    except RecipeError as error:
        raise RecipeError(f"--path: {error}", hint=error.hint) from error
