"""Trace context of jobs and runs (W3C Trace Context), derived from their ids.

Every process computes the same ids, so that spans of a driver, of workers on other machines and of the jobs
themselves join one trace without communication.
"""

import re

from msgspec import Struct

from joblens.model.jobs.job import Job, is_of_workflow
from joblens.model.values.ids import blake2b

TRACE_VARIABLE = "TRACEPARENT"
_HEADER = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?:-.*)?"
)
_SAMPLED = 1


class TraceParent(Struct, frozen=True):
    trace_id: str  # 32 hexadecimal digits
    span_id: str  # 16
    is_sampled: bool = True

    @property
    def header(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{_SAMPLED if self.is_sampled else 0:02x}"


class SpanContext(Struct, frozen=True):
    """Ids of one span and of its parent, if any."""

    own: TraceParent
    parent_span_id: str = ""


def parse_traceparent(text: str | None) -> TraceParent | None:
    """Returns None for an invalid header, as the standard demands."""
    match = _HEADER.fullmatch(text.strip()) if text else None
    if match is None or not int(match["trace"], 16) or not int(match["span"], 16):
        return None
    return TraceParent(match["trace"], match["span"], bool(int(match["flags"], 16) & _SAMPLED))


def span_id_of(uuid: str) -> str:
    return blake2b(uuid.encode(), 8).hexdigest()


def trace_of_run(run_uuid: str, caller: TraceParent | None) -> SpanContext:
    """Returns the span of a run; `caller`: context in which the run was started."""
    if caller is None:
        return SpanContext(TraceParent(_trace_id_of(run_uuid), span_id_of(run_uuid)))
    own = TraceParent(caller.trace_id, span_id_of(run_uuid), caller.is_sampled)
    return SpanContext(own, caller.span_id)


def trace_of_job(job: Job) -> SpanContext:
    """Returns the span of an attempt: below its run, or below the caller in the job's environment."""
    caller = parse_traceparent(job.env.get(TRACE_VARIABLE))
    if not is_of_workflow(job) or job.run is None:
        return trace_of_run(job.uuid, caller)
    run = trace_of_run(job.run.run_uuid, caller)
    own = TraceParent(run.own.trace_id, span_id_of(job.uuid), run.own.is_sampled)
    return SpanContext(own, run.own.span_id)


def trace_variables(job: Job) -> dict[str, str]:
    """Returns the environment with which the job's own spans join the trace."""
    return {TRACE_VARIABLE: trace_of_job(job).own.header}


def _trace_id_of(uuid: str) -> str:
    digits = uuid.replace("-", "")
    is_id = len(digits) == 32 and set(digits) <= set("0123456789abcdef") and int(digits, 16)
    return digits if is_id else blake2b(uuid.encode(), 16).hexdigest()
