"""The last words about a run."""

import shlex
from collections.abc import Iterable

from joblens.analysis.runs.ending import FailedAction, FailedJob, RunEnding
from joblens.model.runs.run import RunStatus
from joblens.model.values.units import format_duration
from joblens.views.text.style import PLAIN, Palette, clean, wrap

_STYLES = {RunStatus.COMPLETED: "green", RunStatus.FAILED: "red", RunStatus.STOPPED: "yellow"}


def render_ending(ending: RunEnding, *, width: int, paint: Palette = PLAIN) -> list[str]:
    status = paint.paint(str(ending.status), _STYLES.get(ending.status, "bold"))
    counts = ", ".join(f"{count:,} {state.label}" for state, count in ending.counts.items())
    took = format_duration(ending.wall_s)
    lines = [f"Run {ending.label} of {clean(ending.name)} {status} in {took}: {counts}"]
    for alike in _alike(ending.failures):
        lines += _failure(alike, width)
    if ending.more_failures:
        lines.append(f"  … and {ending.more_failures:,} more")
    lines += render_actions(ending.actions, width=width)
    lines += render_failed_datasets(ending.datasets, width=width)
    return [*lines, *_hints(ending)]


def render_actions(actions: Iterable[FailedAction], *, width: int) -> list[str]:
    """Commands beside the jobs that failed, each with where it printed."""
    lines = []
    for action in actions:
        command = f": {clean(action.command)}" if action.command else ""
        text = f"{clean(action.name)} failed ({clean(action.why)}){command}"
        first, *rest = wrap(text, max(40, width), "    ")
        lines += [first[2:], *rest]
        if action.logs_dir:
            lines.append(f"    {clean(action.logs_dir)}")
    return lines


def render_failed_datasets(datasets: Iterable[tuple[str, str]], *, width: int) -> list[str]:
    """`datasets`: the name of each, and why it could not be finalized."""
    lines = []
    for name, error in datasets:
        text = f"dataset {clean(name)} could not be finalized: {clean(error)}"
        first, *rest = wrap(text, max(40, width), "    ")
        lines += [first[2:], *rest]
    return lines


def _alike(failures: Iterable[FailedJob]) -> list[list[FailedJob]]:
    """Jobs that never began, and all for the same reason, are told of together."""
    found: dict[tuple[object, ...], list[FailedJob]] = {}
    for place, one in enumerate(failures):
        is_alone = bool(one.logs_dir) or not one.why
        found.setdefault((one.state, one.why, place if is_alone else -1), []).append(one)
    return list(found.values())


def _failure(alike: list[FailedJob], width: int) -> list[str]:
    failure = alike[0]
    why = f": {clean(failure.why)}" if failure.why else ""
    names = ", ".join(clean(one.name) for one in alike)
    first, *rest = wrap(f"{names} {failure.state.label}{why}", max(40, width), "    ")
    lines = [first[2:], *rest]  # whole: a pipe has no width, and the end of a reason may be what to do
    if failure.logs_dir:
        command = "" if failure.number is None else f"joblens logs {failure.number} · "
        lines.append(f"    {command}{clean(failure.logs_dir)}")
    return lines


def _hints(ending: RunEnding) -> list[str]:
    label = ending.label
    hints = [f"joblens results {label}", f"joblens check {label}"]
    has_only_datasets = bool(ending.datasets) and not ending.failures  # a rerun would do nothing for them
    if ending.status is RunStatus.STOPPED or has_only_datasets:
        hints.insert(0, f"joblens resume {label}")
    elif ending.status is RunStatus.FAILED and ending.has_too_small:
        hints.insert(0, f"joblens recover {label}")
    elif ending.status is RunStatus.FAILED:
        hints.insert(0, f"joblens rerun {label} --failed")
    return [*_steps_to_grow(ending), "  " + " · ".join(hints)]


def _has_to_grow(ending: RunEnding) -> bool:
    """A rerun takes the file as it was: what ran out of memory or time would do so again."""
    return ending.status is RunStatus.FAILED and ending.has_too_small and bool(ending.file)


def _steps_to_grow(ending: RunEnding) -> list[str]:
    if not _has_to_grow(ending):
        return []
    file = shlex.quote(clean(ending.file))
    return [f"  joblens rightsize {ending.label} --write, then joblens run {file} --rerun-changed"]
