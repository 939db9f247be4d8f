"""How a job came to the worker that ran it."""

from joblens.analysis.finding_codes import Code
from joblens.model.finding import Finding, Severity


def taken_up_again(fence: int, lost_worker: str) -> tuple[Finding, ...]:
    """`fence`: 1 for the first worker that took it."""
    if not lost_worker:
        return ()  # whoever had it before gave it back
    text = f"worker {lost_worker} was lost while it had the job; this is attempt {fence}"
    advice = "where a second run does harm, submit it with --retry-lost never"
    return (Finding(Code.TAKEN_UP_AGAIN, Severity.WARNING, text, advice),)
