"""Sweep findings: many short jobs of one kind."""

from collections.abc import Iterator, Sequence

from joblens.analysis.sizing.rightsizing import Group
from joblens.model.jobs.job import Code, Finding, Severity
from joblens.model.values.units import format_duration

_MANY = 50
_SHORT_S = 1.0
_MOST_TOGETHER = 100
_ALIKE = 0.6  # the shortest relative to the usual one: start-up dominates


def sweep_findings(groups: Sequence[Group]) -> Iterator[Finding]:
    """Finds jobs that are so short that starting them is a large part of the work: the fixed cost shows as a
    shortest job that is hardly shorter than the usual one."""
    for group in groups:
        newest = max((item.run for item in group.observations), default=0)
        took = sorted(
            item.duration_s for item in group.observations if item.run == newest and item.is_complete
        )
        if len(took) < _MANY:
            continue
        usual_s, shortest_s = took[len(took) // 2], took[len(took) // 20]
        if usual_s <= _SHORT_S and shortest_s >= _ALIKE * usual_s:
            text = (
                f"{len(took):,} jobs of '{group.name}' took about {format_duration(usual_s)} each, and none "
                "was much shorter: start-up is a large part of their time"
            )
            several = min(_MOST_TOGETHER, max(2, round(10 * _SHORT_S / max(usual_s, 0.01))))
            advice = f"let one job do the work of {several}"
            yield Finding(Code.SHORT_JOBS, Severity.INFO, text, advice)
