"""What the jobs of two runs read and ran in, where that differs: told once for all of which it is true."""

from collections.abc import Iterable

from msgspec import Struct

from joblens.analysis.comparing.job_diff_values import Difference
from joblens.analysis.comparing.job_differences import JobView, differences

_GROUPS = frozenset(
    {"inputs", "code", "programs", "versions", "environment", "container", "machine", "placement"}
)


class SharedDifference(Struct, frozen=True):
    difference: Difference
    jobs: int  # of which it is true


def shared_differences(pairs: Iterable[tuple[JobView, JobView, int]]) -> tuple[SharedDifference, ...]:
    """`pairs`: a job before and after, and how many there are like these two. The most common come first."""
    counts: dict[Difference, int] = {}
    for before, after, jobs in pairs:
        for one in differences(before, after).differences:
            if one.group in _GROUPS:
                counts[one] = counts.get(one, 0) + jobs
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return tuple(SharedDifference(one, jobs) for one, jobs in ordered)
