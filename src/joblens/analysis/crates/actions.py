"""RO-Crate actions: attempts of jobs with their environment, files and resource use."""

from msgspec import to_builtins

from joblens.analysis.crates.graph import CrateGraph, Ref, add_file, add_person, instant, percent_encoded
from joblens.analysis.numbers.usage import source_of
from joblens.model.crate import CrateJob
from joblens.model.jobs.details import CodeVersion, Hardware, Program, Provenance
from joblens.model.jobs.job import USAGE_NUMBERS, ContainerJob, Job, Outcome, Record, Status, Usage
from joblens.model.redaction.secrets import (
    redact_address,
    redact_argv,
    redact_env,
    redact_params,
    redact_text,
)
from joblens.model.values.units import format_bytes

_DOCKER_IMAGE = "https://w3id.org/ro/terms/workflow-run#DockerImage"


def add_software(graph: CrateGraph, provenance: Provenance) -> list[Ref]:
    """Adds programs that the command starts, and software with a known version."""
    programs = [_program(graph, program) for program in provenance.programs]
    packages = [
        graph.add(
            f"#software-{percent_encoded(name)}-{percent_encoded(version)}",
            "SoftwareApplication",
            name=name,
            softwareVersion=version,
        )
        for name, version in sorted(provenance.versions.items())
        if name != "joblens"  # added once per crate
    ]
    return [*programs, *packages]


def _program(graph: CrateGraph, program: Program) -> Ref:
    mark = f"-{program.sha256[:12]}" if program.sha256 else ""
    return graph.add(
        f"#program-{percent_encoded(program.path.lstrip('/'))}{mark}",
        "SoftwareApplication",
        name=program.path.rsplit("/", 1)[-1],
        description=program.path,
        softwareVersion=program.version or (f"sha256 {program.sha256[:12]}" if program.sha256 else None),
        sha256=program.sha256,
        contentSize=None if program.bytes is None else str(program.bytes),
    )


def add_code(graph: CrateGraph, code: CodeVersion) -> Ref:
    """Adds the repository in which a job was started, at its commit."""
    state = {True: "with uncommitted changes", False: "without changes", None: ""}[code.is_dirty]
    mark = f"-{percent_encoded(code.changes_digest[:12] or 'changed')}" if code.is_dirty else ""
    return graph.add(
        f"#code-{percent_encoded(code.commit)}{mark}",
        "SoftwareSourceCode",
        name=code.root.rsplit("/", 1)[-1] or "code",
        version=code.commit,
        codeRepository=redact_address(code.remote),
        description=", ".join(
            part for part in (f"branch {code.branch}" if code.branch else "", state) if part
        ),
    )


def add_environment(graph: CrateGraph, job: CrateJob) -> list[Ref]:
    """Adds variables by the record's allow-list; the user's own take precedence."""
    recorded = {} if job.provenance is None else job.provenance.environment
    known = redact_env({**recorded, **job.record.job.env})
    return [graph.value("environment", name, value) for name, value in sorted(known.items())]


def add_host(graph: CrateGraph, job: CrateJob) -> Ref | None:
    """Adds the host of a job; None if unknown."""
    attempt, provenance = job.record.attempt, job.provenance
    host = attempt.owner.host if attempt is not None else ""
    host = provenance.host or host if provenance is not None else host
    if not host:
        return None
    hardware = Hardware() if provenance is None else provenance.hardware
    cpus = hardware.cpus or (attempt.cpu_count if attempt else None)
    memory = hardware.memory_bytes or (attempt.memory_total_bytes if attempt else None)
    known = (
        hardware.cpu_model,
        f"{cpus} CPUs" if cpus else "",
        f"{format_bytes(memory)} of memory" if memory else "",
        ", ".join(hardware.gpus),
        provenance.system if provenance else "",
        f"Linux {attempt.kernel}" if attempt is not None and attempt.kernel else "",
    )
    description = "; ".join(part for part in known if part)
    return graph.add(f"#host-{percent_encoded(host)}", "Place", name=host, description=description)


def add_container(graph: CrateGraph, container: ContainerJob, image_id: str) -> Ref:
    """Adds a container image. `image_id`: sha256:… of the image that was used."""
    image = redact_text(container.image)
    name, _, digest = image.partition("@")
    registry, slash, rest = name.partition("/")
    if not slash or not ("." in registry or ":" in registry or registry == "localhost"):
        registry, rest = "docker.io", name
    rest, _, tag = rest.partition(":")
    return graph.add(
        f"#container-image-{percent_encoded(image)}",
        "ContainerImage",
        additionalType={"@id": _DOCKER_IMAGE},
        registry=registry,
        name=rest,
        tag=tag or (None if digest else "latest"),
        sha256=(digest or image_id).removeprefix("sha256:"),
    )


_UNITS = "https://qudt.org/vocab/unit/"
_UNIT_OF_ENDING = {
    "usec": "MicroSEC",
    "bytes": "BYTE",
    "uj": "MicroJ",
    "mg": "MilliGM",
}


def add_usage(graph: CrateGraph, ident: str, outcome: Outcome) -> list[Ref]:
    """Adds resource use. `ident`: of the action, without '#'."""
    numbers = [("duration_s", outcome.duration_s, "SEC", "monotonic clock")]
    for name in USAGE_NUMBERS:
        value = getattr(outcome.usage, name)
        if value is not None:
            numbers.append((name, value, _unit(name), _source(outcome.usage, name)))
    return [
        graph.add(
            f"#{ident}-{name}",
            "PropertyValue",
            propertyID=f"joblens:{name}",
            name=name.removesuffix(f"_{name.rsplit('_', 1)[-1]}" if unit != "NUM" else "").replace("_", " "),
            value=value,
            unitCode=f"{_UNITS}{unit}",
            description=source,
        )
        for name, value, unit, source in numbers
    ]


def _unit(name: str) -> str:
    return _UNIT_OF_ENDING.get(name.rsplit("_", 1)[-1], "NUM")


def _source(usage: Usage, name: str) -> str:
    source = source_of(usage, name) or usage.sources.get(name, "")
    if name in usage.lower_bounds:
        return f"at least; {source}" if source else "at least"
    if name in usage.estimates:
        return f"estimate; {source}"
    return source


_STATUSES = "http://schema.org/"
COMPLETED, FAILED, ACTIVE = (f"{_STATUSES}{word}ActionStatus" for word in ("Completed", "Failed", "Active"))
_LONGEST_ERROR = 2000


def status_of(status: Status) -> str | None:
    """Returns the status of an action; None: unknown."""
    if status is Status.SUCCESS:
        return COMPLETED
    if status is Status.RUNNING:
        return ACTIVE
    return FAILED if status.is_failure else None


def add_action(graph: CrateGraph, job: CrateJob, tool: Ref, parameters: list[Ref]) -> Ref:
    """Adds an action. `tool`: its program; `parameters`: its inputs besides files."""
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
    """Adds a single job's tool, or the program that its command starts."""
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
    """Returns the error of a job, with its last output."""
    how = outcome.error or outcome.reason or outcome.status.value
    if not outcome.error and outcome.reason in ("exited", "") and outcome.exit_code is not None:
        how = f"exit code {outcome.exit_code}"
    elif not outcome.error and outcome.signal is not None and outcome.reason == "signal":
        how = f"killed by signal {outcome.signal}"
    stderr_text = outcome.stderr_tail.strip()
    text = redact_text(f"{how}\n{stderr_text}" if stderr_text and stderr_text not in how else how)
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
        code = "" if outcome.exit_code is None else f", exit code {outcome.exit_code}"
        parts.append(f"status {record.status.value}{code}")
    return "; ".join(part for part in parts if part)


def _more(graph: CrateGraph, record: Record) -> list[Ref]:
    """Adds resources, seeds and placement, which the profiles do not cover."""
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
