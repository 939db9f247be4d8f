"""A plan as the bytes of `metadata/plan.json`, and back again, exactly."""

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from joblens.model.recipes.recipe import OperatorCall, RecipePlan
from joblens.model.redaction.secrets import redact_params
from joblens.model.values.json_text import decode_json

_NUMBER = "__number__"  # JSON has no word for infinity: {"__number__": "inf"} stands for it


def plan_to_json(plan: RecipePlan) -> bytes:
    return msgspec.json.encode(_with_params(plan, written_value))


def plan_digest(plan: RecipePlan) -> str:
    """The same for the same plan, in every process."""
    return hashlib.sha256(plan_to_json(plan)).hexdigest()[:32]


def plan_from_json(data: bytes) -> RecipePlan:
    """Raises msgspec.MsgspecError for what is no plan."""
    return _with_params(decode_json(data, RecipePlan), read_value)


def is_kept_exactly(value: Any) -> bool:
    """Whether a parameter is the same after it was written and read again."""
    try:
        again = read_value(msgspec.json.decode(msgspec.json.encode(written_value(value))))
        msgspec.msgpack.encode(value)  # so it travels to workers
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return False
    return bool(again == value) and type(again) is type(value)


def written_value(value: Any) -> Any:
    """The same without any number that JSON cannot write."""
    if isinstance(value, float) and math.isinf(value):
        return {_NUMBER: str(value)}
    return _inside(value, written_value)


def read_value(value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1 and value.get(_NUMBER) in ("inf", "-inf"):
        return float(value[_NUMBER])
    return _inside(value, read_value)


def shown_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an operator's parameters for events and reports: without secrets, infinity as a word."""
    return {name: _shown(value) for name, value in redact_params(params).items()}


def _shown(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else _inside(value, _shown)


def _inside(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {name: change(each) for name, each in value.items()}
    if isinstance(value, list):
        return [change(each) for each in value]
    return value


def _with_params(plan: RecipePlan, change: Callable[[Any], Any]) -> RecipePlan:
    def changed(call: OperatorCall) -> OperatorCall:
        return replace(call, params={name: change(each) for name, each in call.params.items()})

    return replace(plan, recipe=replace(plan.recipe, process=tuple(map(changed, plan.recipe.process))))
