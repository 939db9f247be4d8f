"""What a job ran in, as entities of a crate: programs, packages, code, machine, container."""

from joblens.analysis.crates.graph import CrateGraph, Ref, percent_encoded
from joblens.model.crate import CrateJob
from joblens.model.jobs.job import ContainerJob
from joblens.model.jobs.provenance import CodeVersion, Hardware, Program, Provenance
from joblens.model.redaction.secrets import redact_address, redact_env, redact_text
from joblens.model.values.units import format_bytes

_DOCKER_IMAGE = "https://w3id.org/ro/terms/workflow-run#DockerImage"


def add_software(graph: CrateGraph, provenance: Provenance) -> list[Ref]:
    """Programs that the command starts and everything whose version is known."""
    programs = [_program(graph, program) for program in provenance.programs]
    packages = [
        graph.add(
            f"#software-{percent_encoded(name)}-{percent_encoded(version)}",
            "SoftwareApplication",
            name=name,
            softwareVersion=version,
        )
        for name, version in sorted(provenance.versions.items())
        if name != "joblens"  # it stands by itself: what ran the jobs
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
    """The repository that a job was started in, at its commit."""
    state = {True: "with changes that were not committed", False: "without changes", None: ""}[code.is_dirty]
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
    """By the allow-list of the record; what the user added goes before what was there."""
    there = {} if job.provenance is None else job.provenance.environment
    known = redact_env({**there, **job.record.job.env})
    return [graph.value("environment", name, value) for name, value in sorted(known.items())]


def add_host(graph: CrateGraph, job: CrateJob) -> Ref | None:
    """Where it ran."""
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
    """`image_id`: of the image as it was there, sha256:…"""
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
