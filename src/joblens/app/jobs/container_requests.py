"""What a job in a container has to be like before anything is begun."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import fields

from joblens.agent.containers.protocol import client_variables
from joblens.agent.measuring.job_processes import JOB_ID_VARIABLE
from joblens.app.wiring.values import check_word
from joblens.model.errors import InputError
from joblens.model.jobs.containers import (
    APPTAINER,
    ENGINES,
    container_problems,
    device_problem,
    is_path,
    volume_problem,
)
from joblens.model.jobs.job import Accounting, ContainerJob

_FIELDS = tuple(field.name for field in fields(ContainerJob))
_MANY = ("volumes", "devices")


def check_container(container: ContainerJob, *, cwd: str | None, accounting: Accounting | None) -> None:
    """Raises InputError for the first thing that cannot be used."""
    for name in _FIELDS:
        value = getattr(container, name)
        for text in value if isinstance(value, tuple) else (value,):
            if not isinstance(text, bool):
                check_word(f"container {name}", text)
                _check_utf8(f"container {name}", text)
    if not container.image.strip():
        raise InputError("the container's image is empty", hint="--container IMAGE")
    if container.engine not in ("", *ENGINES):
        raise InputError(f"container engine '{container.engine}': expected docker, podman or apptainer")
    if cwd is not None and container.engine != APPTAINER:
        raise InputError(
            "--cwd is a directory of this machine, but the job runs in a container",
            hint="use --container-workdir DIR inside it; --volume SRC:DST mounts a directory",
        )
    if accounting is Accounting.PROCESS_TREE:
        raise InputError(
            "--accounting process_tree: a container's processes are not children of joblens",
            hint="omit --accounting",
        )
    for text in container.volumes:
        _check_volume(text)
    for text in container.devices:
        if problem := device_problem(text):
            raise InputError(f"--device {text}: {problem}")
    for key, problem in container_problems(container):
        raise InputError(f"container {key}: {problem}")


def _check_utf8(where: str, text: str) -> None:
    """An engine is asked in JSON."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{where}: {text!r} is not UTF-8 text") from None


def _check_volume(text: str) -> None:
    if problem := volume_problem(text):
        raise InputError(f"--volume {text}: {problem}")
    source = text.partition(":")[0]
    if is_path(source) and not os.path.exists(os.path.expanduser(source)):
        raise InputError(f"--volume {text}: there is no {source}", hint="create it first")


def client_env(environ: Mapping[str, str], env: Mapping[str, str], uuid: str) -> dict[str, str]:
    """Of the client, with the container's variables among them: those somebody asked for, and no others."""
    inside = {**env, JOB_ID_VARIABLE: uuid}
    return {**environ, JOB_ID_VARIABLE: uuid, **client_variables(inside)}


def container_of(given: "str | Mapping[str, Any] | ContainerJob | None") -> ContainerJob | None:
    """As a Python program gives it: an image, or fields of ContainerJob by name."""
    if given is None or isinstance(given, ContainerJob):
        return given
    if isinstance(given, str):
        return ContainerJob(image=given)
    if "image" not in given:
        raise InputError(f"container={given!r}: expected an image, or a dict with 'image' in it")
    unknown = [name for name in given if name not in _FIELDS]
    if unknown:
        raise InputError(f"container: unknown key '{unknown[0]}'", hint=f"known are {', '.join(_FIELDS)}")
    return ContainerJob(**{name: _value(name, value) for name, value in given.items()})


def _value(name: str, value: Any) -> Any:
    if name not in _MANY:
        if not isinstance(value, bool if name == "pull" else str):
            raise InputError(f"container {name}: {value!r} cannot be used")
        return value
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"container {name}: {value!r} is not a list of strings")
    return tuple(value)
