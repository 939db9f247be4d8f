"""Rules for a job's container: valid values of each field, wherever it was written."""

from collections.abc import Iterator

from joblens.model.jobs.job import ContainerJob

APPTAINER = "apptainer"
ENGINES = ("docker", "podman", APPTAINER)
_DEVICE_STARTS = ("/", "nvidia.com/", "amd.com/", "intel.com/")
_PATH_STARTS = ("/", ".", "~")
# Apptainer starts the command as its child: there is no engine to take these.
_OF_ENGINES_ONLY = ("socket", "name", "devices", "user", "entrypoint", "pull")


def is_path(source: str) -> bool:
    """Returns whether a volume's source is a folder of the machine, not a volume of the engine."""
    return source.startswith(_PATH_STARTS)


def volume_problem(text: str) -> str:
    """Returns '' for SOURCE:TARGET and SOURCE:TARGET:ro."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        return "expected SOURCE:TARGET or SOURCE:TARGET:ro"
    if not parts[1].startswith("/"):
        return f"the target {parts[1]} must begin with /"
    return ""


def device_problem(text: str) -> str:
    return "" if text.startswith(_DEVICE_STARTS) else "expected a path such as /dev/fuse"


def container_problems(container: ContainerJob) -> Iterator[tuple[str, str]]:
    """Yields (key, message) for each invalid field."""
    if not container.image.strip():
        yield "image", "must not be empty"
    for text in container.volumes:
        if problem := volume_problem(text):
            yield "volumes", f"{text!r}: {problem}"
        elif container.engine == APPTAINER and not is_path(text.partition(":")[0]):
            yield "volumes", f"{text!r}: Apptainer has no volumes by name; give a directory"
    for text in container.devices:
        if problem := device_problem(text):
            yield "devices", f"{text!r}: {problem}"
    if container.engine == APPTAINER:
        for key in _OF_ENGINES_ONLY:
            if getattr(container, key):
                yield key, "is for docker and podman, not apptainer"


def apptainer_words(container: ContainerJob, argv: tuple[str, ...], *, gpus: int | None) -> tuple[str, ...]:
    """Returns the command line for Apptainer. No engine is involved, so the job is measured as any other."""
    options: list[str] = []
    for volume in container.volumes:
        options += ["--bind", volume]
    if container.workdir:
        options += ["--pwd", container.workdir]
    if container.network:
        options += ["--net", "--network", container.network]
    if gpus:
        options.append("--nv")
    verb = "exec" if argv else "run"
    return (APPTAINER, verb, *options, container.image, *argv)
