"""Plan document: `metadata/plan.json` to a plan and back; compact plans; requests raised later.

Reading a file takes several times the memory of its plan, and leaves a fragmented heap. So a large plan is
packed, everything else is freed, and the plan is unpacked into contiguous memory.
"""

import hashlib
import math
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs
from msgspec.structs import replace

from joblens.model.jobs.job import Requirements
from joblens.model.recipes.recipe import OperatorCall, RecipePlan
from joblens.model.redaction.secrets import redact_params
from joblens.model.runs.plan import Plan, PlannedFile, PlannedJob
from joblens.model.runs.run import RaisedRequest
from joblens.model.values.json_text import decode_json
from joblens.model.values.units import format_bytes, format_duration

_NUMBER = "__number__"  # JSON has no infinity: {"__number__": "inf"} stands for it


def plan_to_json(plan: RecipePlan) -> bytes:
    return msgspec.json.encode(_with_params(plan, written_value))


def plan_digest(plan: RecipePlan) -> str:
    """Returns a digest that is equal for equal plans in every process."""
    return hashlib.sha256(plan_to_json(plan)).hexdigest()[:32]


def plan_from_json(data: bytes) -> RecipePlan:
    """Decodes a plan. Raises msgspec.MsgspecError."""
    return _with_params(decode_json(data, RecipePlan), read_value)


def is_kept_exactly(value: Any) -> bool:
    """Returns whether a parameter is unchanged after writing and reading."""
    try:
        again = read_value(msgspec.json.decode(msgspec.json.encode(written_value(value))))
        msgspec.msgpack.encode(value)  # the format for workers
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return False
    return bool(again == value) and type(again) is type(value)


def written_value(value: Any) -> Any:
    """Returns the value without numbers that JSON does not support."""
    if isinstance(value, float) and math.isinf(value):
        return {_NUMBER: str(value)}
    return _inside(value, written_value)


def read_value(value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1 and value.get(_NUMBER) in ("inf", "-inf"):
        return float(value[_NUMBER])
    return _inside(value, read_value)


def shown_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an operator's parameters for events and reports: without secrets, infinity as text."""
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


S = TypeVar("S", bound=Struct)

# With fewer jobs, fragmentation is small.
WORTH_PACKING = 2_000


class PackedPlan(Struct, frozen=True):
    """A plan packed by fields, so that values that jobs share are stored once and shared again."""

    rest: Plan
    jobs: tuple[bytes, ...]
    files: tuple[bytes, ...]


def pack_plan(plan: Plan) -> PackedPlan:
    return PackedPlan(
        structs.replace(plan, jobs=(), files=()),
        _columns(PlannedJob, plan.jobs),
        _columns(PlannedFile, plan.files),
    )


def unpack_plan(packed: PackedPlan) -> Plan:
    jobs, files = _rows(PlannedJob, packed.jobs), _rows(PlannedFile, packed.files)
    return structs.replace(packed.rest, jobs=jobs, files=files)


def _columns(kind: type[S], rows: Sequence[S]) -> tuple[bytes, ...]:
    # Not msgpack, which has no large integers, no lone surrogates, and no shared values.
    fields = kind.__struct_fields__ if rows else ()
    return tuple(pickle.dumps([getattr(row, field) for row in rows], protocol=5) for field in fields)


def _rows(kind: type[S], columns: tuple[bytes, ...]) -> tuple[S, ...]:
    fields = kind.__struct_fields__
    values: list[list[Any]] = [pickle.loads(column) for column in columns]  # noqa: S301 - packed above
    return tuple(kind(**dict(zip(fields, row, strict=True))) for row in zip(*values, strict=True))


def with_raised(plan: Plan, raised: Iterable[RaisedRequest]) -> Plan:
    """Returns the plan with the raised requests; a later one replaces an earlier one."""
    changed: dict[int, Requirements] = {}
    for one in raised:
        if one.index < len(plan.jobs):
            before = changed.get(one.index, plan.jobs[one.index].requirements)
            changed[one.index] = raised_to(before, one)
    if not changed:
        return plan
    jobs = list(plan.jobs)
    for index, requirements in changed.items():
        jobs[index] = replace(jobs[index], requirements=requirements)
    return replace(plan, jobs=tuple(jobs))


def raised_to(asked: Requirements, one: RaisedRequest | None) -> Requirements:
    if one is None:
        return asked
    return replace(
        asked,
        memory_bytes=asked.memory_bytes if one.memory_bytes is None else one.memory_bytes,
        timeout_s=asked.timeout_s if one.timeout_s is None else one.timeout_s,
    )


def from_the_first_attempt(raised: Iterable[RaisedRequest]) -> tuple[RaisedRequest, ...]:
    """Returns the newest request per job, valid from the first attempt of a new run."""
    last: dict[int, RaisedRequest] = {}
    for one in raised:
        before = last.get(one.index, one)
        last[one.index] = RaisedRequest(
            one.index,
            0,
            before.memory_bytes if one.memory_bytes is None else one.memory_bytes,
            before.timeout_s if one.timeout_s is None else one.timeout_s,
            one.why,
        )
    return tuple(last.values())


def describe_raised(
    raised: Iterable[RaisedRequest], index: int, before_attempt: int | None = None, *, with_why: bool = False
) -> str:
    """Returns 'memory raised to 90.0 MiB after attempt 1' for each request of the job. `before_attempt`: only
    requests valid for this attempt."""
    parts = []
    for one in raised:
        if one.index != index or (before_attempt is not None and one.attempt >= before_attempt):
            continue
        what = [] if one.memory_bytes is None else [f"memory raised to {format_bytes(one.memory_bytes)}"]
        what += [] if one.timeout_s is None else [f"time raised to {format_duration(one.timeout_s)}"]
        when = f" after attempt {one.attempt}" if one.attempt else " in an earlier run"
        parts.append(" and ".join(what) + when + (f" ({one.why})" if with_why and one.why else ""))
    return "; ".join(parts)


def still_valid(raised: Iterable[RaisedRequest], before: Plan, now: Plan) -> tuple[RaisedRequest, ...]:
    """Drops requests of jobs whose name or requirements have changed in the file. `before`: the plan when
    they were raised."""
    return tuple(one for one in raised if _asks_the_same(one.index, before, now))


def _asks_the_same(index: int, before: Plan, now: Plan) -> bool:
    if index >= len(before.jobs) or index >= len(now.jobs):
        return False
    then, new = before.jobs[index], now.jobs[index]
    return then.name == new.name and then.requirements == new.requirements
