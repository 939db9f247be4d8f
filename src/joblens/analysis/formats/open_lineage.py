"""OpenLineage events (spec 2-0-2) of jobs and runs: datasets, parents, errors, code and resource usage.

`joblens_resourceUsage` is a facet of joblens; contrib/openlineage has its schema.
"""

from collections.abc import Iterable
from posixpath import join, normpath
from typing import Any

from joblens import __version__
from joblens.model.jobs.details import CodeVersion
from joblens.model.jobs.job import USAGE_NUMBERS, FileStamp, Record, Status, is_of_workflow
from joblens.model.runs.run import Run, RunStatus, Workflow
from joblens.model.values.units import format_instant

START, COMPLETE, FAIL, ABORT = "START", "COMPLETE", "FAIL", "ABORT"
PRODUCER = f"urn:joblens:{__version__}"
USAGE_SCHEMA = "urn:joblens:openlineage:1-0-0:ResourceUsageRunFacet.json#/$defs/ResourceUsageRunFacet"
_SPEC = "https://openlineage.io/spec"
_EVENT_SCHEMA = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_LONGEST_MESSAGE = 4000
_EVENT_OF = {
    Status.SUCCESS: COMPLETE,
    Status.MEASURED: COMPLETE,
    Status.CANCELLED: ABORT,
}
_EVENT_OF_RUN = {
    RunStatus.RUNNING: START,
    RunStatus.COMPLETED: COMPLETE,
    RunStatus.FAILED: FAIL,
    RunStatus.STOPPED: ABORT,
}


def job_event(
    record: Record, namespace: str, code: CodeVersion | None = None, workflow: str = ""
) -> dict[str, Any]:
    """Returns the event of a job that started or ended. `workflow`: name of its run's workflow."""
    job, outcome, attempt = record.job, record.outcome, record.attempt
    if outcome is None:
        at_us = attempt.started_at_us if attempt is not None else job.created_at_us
        kind = START
    else:
        at_us, kind = outcome.ended_at_us, _EVENT_OF.get(record.status, FAIL)
    run_facets = {"processing_engine": _engine(), "joblens_resourceUsage": _usage(record)}
    if outcome is not None and kind == FAIL:
        run_facets["errorMessage"] = _error(record)
    if job.run is not None and is_of_workflow(job):
        run_facets["parent"] = _parent(job.run.run_uuid, workflow or job.run.run_uuid, namespace)
    job_facets = {"jobType": _job_type("JOB"), **_tags(job.tags), **_location(code, job.script)}
    name = f"{workflow}.{job.name}" if workflow else job.name
    return _event(
        kind,
        at_us,
        (job.uuid, run_facets),
        (namespace, name, job_facets),
        [_dataset(stamp, job.cwd) for stamp in record.inputs],
        [] if outcome is None else [_output(stamp, job.cwd) for stamp in outcome.outputs],
    )


def run_event(workflow: Workflow, run: Run, namespace: str) -> dict[str, Any] | None:
    """Returns the event of a run that started or ended; None for other states."""
    kind = _EVENT_OF_RUN.get(run.status)
    if kind is None:
        return None
    at_us = (
        (run.started_at_us or run.created_at_us) if kind == START else (run.ended_at_us or run.created_at_us)
    )
    run_facets = {"processing_engine": _engine()}
    if kind == FAIL:
        run_facets["errorMessage"] = _facet(
            "facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
            message=f"run {run.number or run.uuid} of {workflow.name} failed",
            programmingLanguage="none",
        )
    facets = {"jobType": _job_type("DAG")}
    if workflow.description:
        schema = "facets/1-1-0/DocumentationJobFacet.json#/$defs/DocumentationJobFacet"
        facets["documentation"] = _facet(schema, description=workflow.description)
    return _event(kind, at_us, (run.uuid, run_facets), (namespace, workflow.name, facets), [], [])


def _event(
    kind: str,
    at_us: int,
    run: tuple[str, dict[str, Any]],
    job: tuple[str, str, dict[str, Any]],
    inputs: list[dict[str, Any]],
    outputs: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "eventType": kind,
        "eventTime": format_instant(at_us),
        "run": {"runId": run[0], "facets": run[1]},
        "job": {"namespace": job[0], "name": job[1], "facets": job[2]},
        "inputs": inputs,
        "outputs": outputs,
        "producer": PRODUCER,
        "schemaURL": _EVENT_SCHEMA,
    }


def _facet(schema: str, **values: Any) -> dict[str, Any]:
    url = schema if schema.startswith("urn:") else f"{_SPEC}/{schema}"
    known = {name: value for name, value in values.items() if value is not None and value != ""}
    return {"_producer": PRODUCER, "_schemaURL": url, **known}


def _engine() -> dict[str, Any]:
    schema = "facets/1-1-1/ProcessingEngineRunFacet.json#/$defs/ProcessingEngineRunFacet"
    return _facet(schema, name="joblens", version=__version__)


def _job_type(kind: str) -> dict[str, Any]:
    schema = "facets/2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet"
    return _facet(schema, processingType="BATCH", integration="JOBLENS", jobType=kind)


def _parent(run_uuid: str, name: str, namespace: str) -> dict[str, Any]:
    schema = "facets/1-2-0/ParentRunFacet.json#/$defs/ParentRunFacet"
    return _facet(schema, run={"runId": run_uuid}, job={"namespace": namespace, "name": name})


def _error(record: Record) -> dict[str, Any]:
    outcome = record.outcome
    assert outcome is not None
    problems = [finding.text for finding in outcome.findings if finding.severity == "problem"]
    message = "; ".join(problems) or outcome.error or outcome.reason or str(record.status)
    return _facet(
        "facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
        message=message[:_LONGEST_MESSAGE],
        programmingLanguage=record.job.tool or "none",
        stackTrace=outcome.stderr_tail[-_LONGEST_MESSAGE:],
    )


def _tags(tags: Iterable[str]) -> dict[str, Any]:
    pairs = [tag.partition("=") for tag in tags]
    if not pairs:
        return {}
    listed = [{"key": key, "value": value or "true", "source": "JOBLENS"} for key, _, value in pairs]
    return {"tags": _facet("facets/1-0-0/TagsJobFacet.json#/$defs/TagsJobFacet", tags=listed)}


def _location(code: CodeVersion | None, path: str) -> dict[str, Any]:
    if code is None or not code.remote:
        return {}
    facet = _facet(
        "facets/1-1-0/SourceCodeLocationJobFacet.json#/$defs/SourceCodeLocationJobFacet",
        type="git",
        url=code.remote,
        repoUrl=code.remote,
        path=path,
        version=code.commit,
        branch=code.branch,
    )
    return {"sourceCodeLocation": facet}


def _usage(record: Record) -> dict[str, Any]:
    """Returns requests, and usage once the job has ended; unknown numbers are omitted."""
    job, outcome, attempt = record.job, record.outcome, record.attempt
    asked = job.requirements
    requested = {
        "cpus": asked.cpus,
        "memoryBytes": asked.memory_bytes,
        "gpus": asked.gpus,
        "timeoutSeconds": asked.timeout_s,
    }
    values: dict[str, Any] = {
        "requested": {name: value for name, value in requested.items() if value is not None},
        "host": attempt.owner.host if attempt is not None else "",
        "accounting": attempt.accounting if attempt is not None else "",
    }
    if outcome is not None:
        usage = outcome.usage
        numbers = {name: getattr(usage, name) for name in USAGE_NUMBERS}
        values |= {
            "durationSeconds": outcome.duration_s,
            "exitCode": outcome.exit_code,
            "usage": {name: value for name, value in numbers.items() if value is not None},
            "lowerBounds": list(usage.lower_bounds),
            "estimates": list(usage.estimates),
        }
    return _facet(USAGE_SCHEMA, **values)


def _dataset(stamp: FileStamp, cwd: str) -> dict[str, Any]:
    facets: dict[str, Any] = {}
    if stamp.digest:
        schema = "facets/1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet"
        facets["version"] = _facet(schema, datasetVersion=stamp.digest)
    return {"namespace": "file", "name": normpath(join(cwd, stamp.path)), "facets": facets}


def _output(stamp: FileStamp, cwd: str) -> dict[str, Any]:
    dataset = _dataset(stamp, cwd)
    if stamp.size is not None:
        name = "OutputStatisticsOutputDatasetFacet"
        facet = _facet(f"facets/1-0-2/{name}.json#/$defs/{name}", size=stamp.size, fileCount=stamp.files)
        dataset["outputFacets"] = {"outputStatistics": facet}
    return dataset
