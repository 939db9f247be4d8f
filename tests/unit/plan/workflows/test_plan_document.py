"""plan.json says exactly what was planned."""

import math
from typing import Any

import msgspec
import pytest

from joblens.model.recipes.recipe import OperatorCall, Recipe, RecipePlan
from joblens.plan.workflows.plan_document import is_kept_exactly, plan_from_json, plan_to_json, shown_params


def _plan(**params: Any) -> RecipePlan:
    call = OperatorCall(index=0, name="text_length_filter", params=params)
    recipe = Recipe(dataset_path=("/d.jsonl",), export_path="/x.jsonl", work_dir="/w", process=(call,))
    return RecipePlan(
        job_id="j",
        job_dir="/w/j",
        recipe=recipe,
        recipe_text="",
        stages=(),
        partitions=(),
        inputs=(),
        columns=(),
        checkpoint_after=(),
        workers=1,
        budget_bytes=1,
    )


def test_infinity_comes_back_as_infinity() -> None:
    plan = _plan(max_ratio=math.inf, ranges=[1, -math.inf, {"most": math.inf}], none=None, text="inf")
    assert plan_from_json(plan_to_json(plan)) == plan


def test_what_others_read_is_valid_json_without_made_up_nulls() -> None:
    assert msgspec.json.decode(msgspec.json.encode(shown_params({"max": math.inf, "least": 1}))) == {
        "max": "inf",
        "least": 1,
    }


def test_what_others_read_has_no_secrets() -> None:
    assert shown_params({"api_key": "x1x1", "ask": {"auth": ["y1y1"]}}) == {
        "api_key": "***",
        "ask": {"auth": ["***"]},
    }


@pytest.mark.parametrize("value", [math.nan, [1.0, math.nan], 10**30, {"__number__": "inf"}, "\ud800"])
def test_what_would_come_back_as_something_else_is_known(value: Any) -> None:
    assert not is_kept_exactly(value)


@pytest.mark.parametrize("value", [math.inf, 2**63 - 1, 1.5, "a", None, True, [1, "a"], {"a": {"b": 1}}])
def test_what_comes_back_as_it_was_is_kept(value: Any) -> None:
    assert is_kept_exactly(value)
