"""Two jobs compared: what differed, what it did to the numbers, and where that may come from."""

from collections.abc import Mapping

from joblens.analysis.comparing.job_causes import causes
from joblens.analysis.comparing.job_diff_values import JobDiff
from joblens.analysis.comparing.job_differences import JobView, differences
from joblens.analysis.comparing.job_noise import Noise
from joblens.analysis.comparing.job_numbers import number_changes
from joblens.model.jobs.job import Record


def compare_jobs(before: JobView, after: JobView, noises: Mapping[str, Noise]) -> JobDiff:
    """`noises`: what runs of this job differ by when nothing was changed, as far as that is known."""
    found = differences(before, after)
    numbers = number_changes(before, after, noises)
    return JobDiff(
        before=label_of(before.record),
        after=label_of(after.record),
        names=(before.record.job.name, after.record.job.name),
        status=(before.record.status.value, after.record.status.value),
        differences=found.differences,
        numbers=numbers,
        causes=causes(before, after, found.differences, numbers),
        same=found.same,
        unknown=found.unknown,
    )


def label_of(record: Record) -> str:
    return f"job {record.number}" if record.number is not None else f"job {record.job.uuid[:8]}"
