"""Jobs of a plan that only workers with a label run."""

import shlex
from collections.abc import Collection, Iterable

from joblens.model.errors import PlanError
from joblens.model.runs.plan import Plan

_SHOWN = 5


def jobs_elsewhere(
    plan: Plan, served: Collection[str], places: Iterable[int] | None = None
) -> frozenset[int]:
    """Places of the jobs whose label is none of those that the run's own workers serve. `places`: of the jobs
    that are to run; None: all."""
    chosen = range(len(plan.jobs)) if places is None else places
    return frozenset(
        place for place in chosen if plan.jobs[place].label and plan.jobs[place].label not in served
    )


def refuse_elsewhere(plan: Plan, served: Collection[str], places: Iterable[int]) -> None:
    """Raises PlanError where jobs need a label and nothing but this process runs jobs."""
    by_label: dict[str, list[str]] = {}
    for place in sorted(jobs_elsewhere(plan, served, places)):
        by_label.setdefault(plan.jobs[place].label, []).append(plan.jobs[place].name)
    if not by_label:
        return
    lines = [f"{_named(names)} the label '{label}'" for label, names in by_label.items()]
    options = " ".join(f"--label {shlex.quote(label)}" for label in by_label)
    first = shlex.quote(next(iter(by_label)))
    raise PlanError(
        "; ".join(lines) + f"; no worker of this run serves {'it' if len(by_label) == 1 else 'them'}",
        hint=f"{options} runs them here; --engine celery leaves them to joblens worker --label {first}",
    )


def _named(names: list[str]) -> str:
    if len(names) == 1:
        return f"job '{names[0]}' has"
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    return f"{len(names)} jobs ({shown}{', …' if len(names) > _SHOWN else ''}) have"
