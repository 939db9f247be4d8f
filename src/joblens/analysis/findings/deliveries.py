"""How a job came to the worker that ran it."""

from joblens.analysis.findings.codes import Code
from joblens.model.delivery import FormerWorker
from joblens.model.jobs.finding import Finding, Severity


def taken_up_again(fence: int, former: FormerWorker | None) -> tuple[Finding, ...]:
    """`fence`: 1 for the first worker that took it."""
    if former is None:
        return ()  # it has not run before
    what = "had to stop before the job ended" if former.gave_back else "was lost while it had the job"
    text = f"worker {former.name} {what}; this is attempt {fence}"
    advice = "where a second run does harm, submit it with --retry-lost never"
    return (Finding(Code.TAKEN_UP_AGAIN, Severity.WARNING, text, advice),)
