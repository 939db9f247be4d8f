"""What `validate` says about a workflow that can be run."""

from collections.abc import Sequence

from joblens.model.jobs.job import Requirements
from joblens.model.values.units import format_bytes, format_duration
from joblens.views.text.numbers import counted
from joblens.views.text.style import PLAIN, Palette, clean


def render_check(
    file: str,
    jobs: int,
    stages: int,
    largest: Requirements,
    warnings: Sequence[str],
    paint: Palette = PLAIN,
) -> list[str]:
    """`largest`: the most any one job needs of each."""
    needs = ", ".join(_amounts(largest))
    size = f"{counted(jobs, 'job')} in {counted(stages, 'stage')}"
    verdict = paint.paint("valid", "green")
    first = f"{clean(file)}: {verdict}: {size}" + (f"; a job needs at most {needs}" if needs else "")
    mark = paint.paint("warning", "yellow")
    return [first, *(f"  {mark}: {clean(warning)}" for warning in warnings)]


def _amounts(largest: Requirements) -> list[str]:
    amounts = []
    if largest.cpus is not None:
        amounts.append(f"{largest.cpus:g} CPU{'' if largest.cpus == 1 else 's'}")
    if largest.memory_bytes is not None:
        amounts.append(format_bytes(largest.memory_bytes))
    if largest.gpus:
        amounts.append(counted(largest.gpus, "GPU"))
    if largest.timeout_s is not None:
        amounts.append(format_duration(largest.timeout_s))
    return amounts
