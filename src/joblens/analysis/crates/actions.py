"""Attempts of jobs as actions of a crate: who ran what when, with which files, and what it used."""

from msgspec import to_builtins

from joblens.analysis.crates.environment import (
    add_code,
    add_container,
    add_environment,
    add_host,
    add_software,
)
from joblens.analysis.crates.files import add_file, add_person, instant
from joblens.analysis.crates.graph import CrateGraph, Ref, percent_encoded
from joblens.analysis.crates.usage import add_usage
from joblens.model.crate import CrateJob
from joblens.model.jobs.job import Job, Outcome, Record, Status
from joblens.model.redaction.secrets import redact_argv, redact_params, redact_text

_STATUSES = "http://schema.org/"
COMPLETED, FAILED, ACTIVE = (f"{_STATUSES}{word}ActionStatus" for word in ("Completed", "Failed", "Active"))
_LONGEST_ERROR = 2000


def status_of(status: Status) -> str | None:
    """None: how it ended is not known."""
    if status is Status.SUCCESS:
        return COMPLETED
    if status is Status.RUNNING:
        return ACTIVE
    return FAILED if status.is_failure else None


def add_action(graph: CrateGraph, job: CrateJob, tool: Ref, parameters: list[Ref]) -> Ref:
    """`tool` is what it carried out; `parameters` are what it was given beside files."""
    record = job.record
    asked, outcome, attempt = record.job, record.outcome, record.attempt
    ident = f"job-{asked.uuid}"
    inputs = [add_file(graph, file) for file in job.inputs]
    code = [] if job.provenance is None or job.provenance.code is None else [job.provenance.code]
    image_id = "" if job.container is None else job.container.image_id
    if job.provenance is not None:
        graph.extend(tool["@id"], "softwareRequirements", add_software(graph, job.provenance))
    return graph.add(
        f"#{ident}",
        "CreateAction",
        name=_title(record),
        description=_description(record),
        instrument=tool,
        agent=add_person(graph, asked.user),
        startTime=None if attempt is None else instant(attempt.started_at_us),
        endTime=None if outcome is None else instant(outcome.ended_at_us),
        actionStatus=status_of(record.status),
        error=None if outcome is None or not record.status.is_failure else error_of(outcome),
        object=[*inputs, *parameters, *(add_code(graph, one) for one in code)],
        result=[add_file(graph, file) for file in job.outputs],
        environment=add_environment(graph, job),
        containerImage=None if asked.container is None else add_container(graph, asked.container, image_id),
        location=add_host(graph, job),
        resourceUsage=[] if outcome is None else add_usage(graph, ident, outcome),
        additionalProperty=_more(graph, record),
        subjectOf=None if job.provenance_file is None else add_file(graph, job.provenance_file),
        identifier=asked.uuid,
    )


def add_parameters(graph: CrateGraph, job: Job) -> list[Ref]:
    return [graph.value("parameter", name, value) for name, value in redact_params(job.params).items()]


def add_tool_of(graph: CrateGraph, job: Job) -> Ref:
    """Of a job by itself: its tool, or the program that its command starts."""
    name = job.tool or program_name(job)
    return graph.add(f"#tool-{percent_encoded(name)}", "SoftwareApplication", name=name)


def program_name(job: Job) -> str:
    words = job.argv[0].split() if job.is_shell and job.argv else list(job.argv[:1])
    return words[0].rsplit("/", 1)[-1] if words and words[0] else (job.name or "command")


def command_line(job: Job) -> str:
    words = redact_argv(job.argv)
    if job.is_shell:
        return " ".join(words)
    import shlex

    return shlex.join(words)


def error_of(outcome: Outcome) -> str:
    """How it failed, and the last it said."""
    how = outcome.error or outcome.reason or outcome.status.value
    if not outcome.error and outcome.reason in ("exited", "") and outcome.exit_code is not None:
        how = f"exit code {outcome.exit_code}"
    elif not outcome.error and outcome.signal is not None and outcome.reason == "signal":
        how = f"signal {outcome.signal}"
    said = outcome.stderr_tail.strip()
    text = redact_text(f"{how}\n{said}" if said and said not in how else how)
    return text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]}…"


def _title(record: Record) -> str:
    job = record.job
    name = job.name or job.external_id or program_name(job)
    link = job.run
    return f"{name}, attempt {link.attempt}" if link is not None and link.attempt > 1 else name


def _description(record: Record) -> str:
    job, outcome = record.job, record.outcome
    parts = [f"Command: {command_line(job)}", f"in {job.cwd}" if job.cwd else ""]
    if outcome is not None:
        code = "" if outcome.exit_code is None else f" with exit code {outcome.exit_code}"
        parts.append(f"ended as {record.status.value}{code}")
    return "; ".join(part for part in parts if part)


def _more(graph: CrateGraph, record: Record) -> list[Ref]:
    """What it was given of the machine, its seeds, and where it was put: beside what the profiles know."""
    job, attempt, outcome = record.job, record.attempt, record.outcome
    found = [
        graph.value("requirement", name, value, propertyID=f"joblens:requirement:{name}")
        for name, value in to_builtins(job.requirements).items()
    ]
    found += [graph.value("seed", name, value) for name, value in sorted(job.seeds.items())]
    if attempt is not None and attempt.placement is not None:
        placement = attempt.placement
        known = {"engine": placement.engine, "job id": placement.job_id, "nodes": ", ".join(placement.nodes)}
        found += [graph.value("placement", name, value) for name, value in known.items() if value]
    if outcome is not None and outcome.worker:
        found.append(graph.value("placement", "worker", outcome.worker))
    return found
