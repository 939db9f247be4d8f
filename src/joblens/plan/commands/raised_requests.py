"""Requests that were raised after a plan was made: more memory or time for single jobs of one run."""

from collections.abc import Iterable

from msgspec.structs import replace

from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import RaisedRequest
from joblens.model.values.units import format_bytes, format_duration


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
    """For a new run: one request for each job, the newest."""
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
    """'memory raised to 90.0 MiB after attempt 1', for each of the job's. `before_attempt`: only those that
    hold for that attempt."""
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
    """Without those of jobs whose name or request the file has changed since. `before`: the plan of the file
    as it was when they were raised."""
    return tuple(one for one in raised if _asks_the_same(one.index, before, now))


def _asks_the_same(index: int, before: Plan, now: Plan) -> bool:
    if index >= len(before.jobs) or index >= len(now.jobs):
        return False
    then, new = before.jobs[index], now.jobs[index]
    return then.name == new.name and then.requirements == new.requirements
