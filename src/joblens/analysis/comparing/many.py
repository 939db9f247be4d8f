"""Comparison of many jobs or runs with the first: numbers, differing facts, and axes of parameters and
measurements."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.analysis.comparing.job_diff import NUMBERS, numbers_of
from joblens.analysis.comparing.job_differences import (
    GROUPS,
    JobView,
    Noise,
    change_percent,
    facts_of,
    has_changed,
)

_MOST_CATEGORIES = 20  # an axis with more texts is unreadable


class NumberRow(Struct, frozen=True, kw_only=True):
    """One number of each subject. `verdicts` compare with the first: up, down, same, unknown; the first has
    'baseline'. `usual_percent`: usual difference of earlier runs; None: too few of them."""

    key: str
    title: str
    unit: str
    values: tuple[float | None, ...]
    percents: tuple[float | None, ...]
    verdicts: tuple[str, ...]
    usual_percent: float | None = None
    earlier_runs: int = 0


class FactRow(Struct, frozen=True, kw_only=True):
    """One fact that differs; None: absent."""

    group: str
    name: str
    values: tuple[str | None, ...]


class Axis(Struct, frozen=True, kw_only=True):
    """One axis of parallel coordinates. Values are numbers, or texts of a category."""

    key: str
    title: str
    kind: str  # parameter, measurement
    unit: str = ""
    is_category: bool = False
    values: tuple[float | str | None, ...]


class Facts(Struct, frozen=True, kw_only=True):
    rows: tuple[FactRow, ...]
    same: tuple[str, ...]  # groups without a difference
    unknown: tuple[str, ...]  # groups that are unknown for at least one subject


def number_row(
    key: str, title: str, unit: str, values: Sequence[float | None], noise: Noise | None = None
) -> NumberRow:
    first = values[0]
    verdicts = ["baseline"]
    for value in values[1:]:
        if first is None or value is None:
            verdicts.append("unknown")
        elif has_changed(first, value, unit, noise):
            verdicts.append("up" if value > first else "down")
        else:
            verdicts.append("same")
    return NumberRow(
        key=key,
        title=title,
        unit=unit,
        values=tuple(values),
        percents=(None, *(change_percent(first, value) for value in values[1:])),
        verdicts=tuple(verdicts),
        usual_percent=None if noise is None else 100 * noise.between_two,
        earlier_runs=0 if noise is None else noise.runs,
    )


def compared_with(row: NumberRow, baseline: int) -> NumberRow:
    """Returns the same numbers in the same order, compared with the subject `baseline`."""
    others = [index for index in range(len(row.values)) if index != baseline]
    noise = None if row.usual_percent is None else Noise.of_usual(row.usual_percent / 100, row.earlier_runs)
    order = [baseline, *others]
    found = number_row(row.key, row.title, row.unit, [row.values[index] for index in order], noise)
    position_of = {index: position for position, index in enumerate(order)}
    return replace(
        row,
        percents=tuple(found.percents[position_of[index]] for index in range(len(order))),
        verdicts=tuple(found.verdicts[position_of[index]] for index in range(len(order))),
    )


def job_numbers(views: Sequence[JobView], noises: Mapping[str, Noise]) -> tuple[NumberRow, ...]:
    found = [numbers_of(view.record) for view in views]
    rows = []
    for key, number in NUMBERS.items():
        values = [numbers.get(key) for numbers in found]
        if any(value is not None for value in values):
            rows.append(number_row(key, number.title, number.unit, values, noises.get(key)))
    return tuple(rows)


def job_facts(views: Sequence[JobView]) -> Facts:
    found = [facts_of(view) for view in views]
    rows: list[FactRow] = []
    same: list[str] = []
    unknown: list[str] = []
    for group in GROUPS:
        facts = [each[group] for each in found]
        if any(each is None for each in facts):
            unknown.append(group)
        known = [each or {} for each in facts]
        names = dict.fromkeys(name for each in known for name in each)
        differing = [
            FactRow(group=group, name=name, values=tuple(each.get(name) for each in known))
            for name in names
            if len({each.get(name) for each, was in zip(known, facts, strict=True) if was is not None}) > 1
        ]
        rows += differing
        if names and not differing and group not in unknown:
            same.append(group)
    return Facts(rows=tuple(rows), same=tuple(same), unknown=tuple(unknown))


def axes_of(parameters: Sequence[Mapping[str, object]], numbers: Sequence[NumberRow]) -> tuple[Axis, ...]:
    """Returns axes for differing parameters, then for differing numbers. Texts become categories."""
    axes: list[Axis] = []
    for name in dict.fromkeys(name for each in parameters for name in each):
        values = [each.get(name) for each in parameters]
        if len({repr(value) for value in values}) < 2:
            continue
        axis = _parameter_axis(name, values)
        if axis is not None:
            axes.append(axis)
    differing = [row for row in numbers if len({value for value in row.values if value is not None}) > 1]
    axes += (
        Axis(key=row.key, title=row.title, kind="measurement", unit=row.unit, values=row.values)
        for row in differing
    )
    return tuple(axes)


def _parameter_axis(name: str, values: Sequence[object]) -> Axis | None:
    numbers = [_number(value) for value in values]
    if all(number is not None or value is None for number, value in zip(numbers, values, strict=True)):
        return Axis(key=f"parameter:{name}", title=name, kind="parameter", values=tuple(numbers))
    texts = tuple(None if value is None else str(value)[:200] for value in values)
    if len(set(texts)) > _MOST_CATEGORIES:
        return None
    return Axis(key=f"parameter:{name}", title=name, kind="parameter", is_category=True, values=texts)


def _number(value: object) -> float | None:
    import math

    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
