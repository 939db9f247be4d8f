"""Requests: a job as a user requests it, validated and parsed."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.errors import InputError
from joblens.model.jobs.job import Accounting, ContainerJob, EarlySignal, FileStamp, Granularity, Requirements
from joblens.model.settings import Settings
from joblens.probes.provenance.program_files import as_text, remembered_path


def check_exec_string(where: str, text: Any) -> None:
    """Raises InputError unless the kernel accepts it: text without NUL."""
    if not isinstance(text, str):
        raise InputError(f"{where}: {text!r} is not text")
    if "\0" in text:
        raise InputError(f"{where}: {text!r} contains a NUL character")
    if not text.isascii():
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            raise InputError(f"{where}: {text!r} cannot be written as bytes") from None


_DEEPEST = 20
_LARGEST_INT = 2**63


def plain_text(value: Any) -> str:
    """Returns valid UTF-8 text."""
    text = value if type(value) is str else str(value)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def plain_params(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {plain_text(name): plain_value(value) for name, value in (params or {}).items()}


def plain_value(value: Any, depth: int = 0) -> Any:
    """Keeps JSON's own types; containers are walked; everything else (arrays, paths, dates) becomes text."""
    if value is None or type(value) is bool or (type(value) is int and -_LARGEST_INT <= value < _LARGEST_INT):
        return value
    if type(value) is float:
        # JSON has no infinity and NaN.
        return value if value - value == 0 else str(value)
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {plain_text(name): plain_value(item, depth + 1) for name, item in value.items()}
    if depth < _DEEPEST and isinstance(value, (list, tuple, set, frozenset)):
        return [plain_value(item, depth + 1) for item in value]
    return plain_text(value)


_FIELDS = ContainerJob.__struct_fields__
_MANY = ("volumes", "devices")


def check_container(container: ContainerJob, *, cwd: str | None, accounting: Accounting | None) -> None:
    """Raises InputError for the first invalid value."""
    from joblens.model.jobs.containers import APPTAINER, ENGINES, container_problems, device_problem

    for name in _FIELDS:
        value = getattr(container, name)
        for text in value if isinstance(value, tuple) else (value,):
            if not isinstance(text, bool):
                check_exec_string(f"container {name}", text)
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
    """Engines are asked in JSON."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{where}: {text!r} is not UTF-8 text") from None


def _check_volume(text: str) -> None:
    from joblens.model.jobs.containers import is_path, volume_problem

    if problem := volume_problem(text):
        raise InputError(f"--volume {text}: {problem}")
    source = text.partition(":")[0]
    if is_path(source) and not os.path.exists(os.path.expanduser(source)):
        raise InputError(f"--volume {text}: there is no {source}", hint="create it first")


def client_env(environ: Mapping[str, str], env: Mapping[str, str], uuid: str) -> dict[str, str]:
    """Returns the environment of the client, with the requested variables of the container and no others."""
    from joblens.agent.containers.protocol import client_variables
    from joblens.agent.measuring.accounting import JOB_ID_VARIABLE

    inside = {**env, JOB_ID_VARIABLE: uuid}
    return {**environ, JOB_ID_VARIABLE: uuid, **client_variables(inside)}


def container_of(choice: "str | Mapping[str, Any] | ContainerJob | None") -> ContainerJob | None:
    """Accepts an image, or a dict of fields of ContainerJob, from Python programs."""
    if choice is None or isinstance(choice, ContainerJob):
        return choice
    if isinstance(choice, str):
        return ContainerJob(image=choice)
    if "image" not in choice:
        raise InputError(f"container={choice!r}: expected an image, or a dict with 'image' in it")
    unknown = [name for name in choice if name not in _FIELDS]
    if unknown:
        raise InputError(f"container: unknown key '{unknown[0]}'", hint=f"known are {', '.join(_FIELDS)}")
    return ContainerJob(**{name: _value(name, value) for name, value in choice.items()})


def _value(name: str, value: Any) -> Any:
    if name not in _MANY:
        if not isinstance(value, bool if name == "pull" else str):
            raise InputError(f"container {name}: {value!r} cannot be used")
        return value
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"container {name}: {value!r} is not a list of strings")
    return tuple(value)


LEAST_INTERVAL_S = 0.05
MOST_CPUS = 1_000_000
# As in model.units, which a plain command does without.
_MOST_BYTES = 2**63
_FOREVER_S = 1e11


class Request(Struct, frozen=True, kw_only=True):
    """One command as the user requested it, before defaults. Has secrets: never stored."""

    argv: tuple[str, ...] = ()
    shell: str | None = None
    name: str = ""
    tool: str = ""
    script: str = ""
    external_id: str | None = None
    params: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    requirements: Requirements = Requirements()
    enforce: bool | None = None
    accounting: Accounting | None = None
    monitor: bool | None = None
    probes: str | None = None  # as model.probe_choice reads it
    cpu_list: str | None = None  # as model.cpu_lists reads it; None: all CPUs
    granularity: Granularity = Granularity.SUMMARY
    interval_s: float | None = None
    grace_s: float | None = None
    early_signal: EarlySignal | None = None
    output_dir: str = ""
    notify: tuple[str, ...] = ()
    background: bool = False
    inputs: tuple[str, ...] = ()  # paths and patterns, relative to the job's directory
    outputs: tuple[str, ...] = ()
    rerun_of: str = ""
    container: ContainerJob | None = None
    uuid: str = ""  # of a request that may be sent again; '': a new one


class UnusableValue(InputError):
    """A value out of its bounds. The command line shows it as typed."""

    def __init__(self, name: str, value: object, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{name} {value}: {reason}", hint=hint)
        self.name = name
        self.reason = reason


_NO_REQUIREMENTS = Requirements()


def check_request(request: Request) -> None:
    """Raises InputError for the first invalid value."""
    _check_command(request)
    _check_texts(request)
    if request.env:
        _check_env(request.env)
    if request.requirements != _NO_REQUIREMENTS:
        _check_requirements(request.requirements)
    _check_times(request)
    if request.cpu_list is not None:
        _check_cpu_list(request, request.cpu_list)
    if request.container is not None:
        check_container(request.container, cwd=request.cwd, accounting=request.accounting)


def current_dir() -> str:
    """Raises InputError if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise InputError("the current directory no longer exists", hint="cd to another directory") from None


def count_of(name: str, value: Any) -> int | None:
    """Returns the number of `name`. Raises InputError unless it is a whole one, at least 1."""
    if value is not None and (not isinstance(value, int) or value < 1):
        raise InputError(f"{name}={value!r}: must be a number, at least 1")
    return value


def seconds_of(name: str, value: str | float | None) -> float | None:
    """Returns the value of `name`, text such as '1h30m' or seconds."""
    if not isinstance(value, str):
        return value
    from joblens.model.values.units import parse_duration

    try:
        return parse_duration(value)
    except InputError as error:
        raise InputError(f"{name}: {error}", hint=error.hint) from error


def instant_of(name: str, text: str | None, now_us: int) -> int | None:
    """Returns the value of `name`, a time or an age such as 2h, in microseconds."""
    from joblens.model.values.units import parse_instant

    try:
        return None if text is None else parse_instant(text, now_us)
    except InputError as error:
        raise InputError(f"{name}: {error}", hint=error.hint) from error


def bytes_of(name: str, value: str | int | None) -> int | None:
    if not isinstance(value, str):
        return value
    from joblens.model.values.units import parse_size

    try:
        return parse_size(value)
    except InputError as error:
        raise InputError(f"{name}: {error}", hint=error.hint) from error


def memory_of(name: str, value: str | int | None) -> int | None:
    """Parses memory for one job or several. Raises InputError for sizes in which nothing runs."""
    size = bytes_of(name, value)
    if type(size) is not int or size <= 0:
        return size  # reported by `check_request`
    from joblens.model.values.units import small_memory

    problem = small_memory(size, value)
    if problem:
        raise InputError(f"{name}: {problem}")
    return size


def command_of(command: Any) -> tuple[tuple[str, ...], str | None]:
    """Returns (arguments, None) for a list, ((), line) for a shell line."""
    if isinstance(command, str):
        return (), command
    try:
        return tuple(text if type(text) is str else _path(text) for text in command), None
    except TypeError:
        raise InputError(
            f"command {command!r}: expected a list of strings, or one string as a shell line"
        ) from None


def _path(text: Any) -> str:
    path = os.fspath(text)
    if not isinstance(path, str):
        raise TypeError
    return path


def mapping_of(name: str, value: Mapping[str, Any] | None) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{name} {value!r}: expected a dict")
    return dict(value)


def tags_of(tags: Any) -> tuple[str, ...]:
    return texts_of("tags", tags)


def texts_of(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InputError(f"{name} {value!r}: expected a list of strings")
    return tuple(os.fspath(each) if isinstance(each, os.PathLike) else each for each in value)


def _check_command(request: Request) -> None:
    if request.shell is not None:
        if request.argv:
            raise InputError("both --shell and a command were given", hint="put the whole line in --shell")
        check_exec_string("command", request.shell)
        if not request.shell.strip():
            raise InputError("the shell line is empty", hint="give a command")
    elif not request.argv and request.container is not None:
        return  # the image says what runs
    elif not request.argv or not request.argv[0]:
        verb = "submit" if request.background else "run"
        raise InputError("no command was given", hint=f"joblens {verb} -- COMMAND ARGUMENTS…")
    for text in request.argv:
        check_exec_string("command", text)


def _check_texts(request: Request) -> None:
    for name in ("name", "tool", "script", "output_dir"):
        value = getattr(request, name)
        if value != "":
            check_exec_string(name, value)
    for tag in request.tags:
        check_exec_string("tags", tag)
        if not tag:
            raise InputError("a tag is empty")
    if request.external_id is not None:
        check_exec_string("id", request.external_id)
        if not request.external_id:
            raise InputError("the id is empty", hint="omit it, or give one such as my-task-123")
    if request.cwd is not None:
        check_exec_string("cwd", request.cwd)
    for text in request.notify:
        check_exec_string("notify", text)
    for name in ("inputs", "outputs"):
        for path in getattr(request, name):
            check_exec_string(name, path)
            if not path:
                raise InputError(f"--{name[:-1]}: the path is empty")


def _check_env(env: Mapping[Any, Any]) -> None:
    for name, value in env.items():
        check_exec_string(f"env {name}", name)
        if not name or "=" in name:
            raise InputError(f"env {name}: not a valid variable name")
        check_exec_string(f"env {name}", value)


def _check_requirements(requirements: Requirements) -> None:
    _check_number("cpus", requirements.cpus, most=MOST_CPUS, unit="a number of CPUs")
    _check_number(
        "memory", requirements.memory_bytes, most=_MOST_BYTES, unit="a size such as 512m or 2g", whole=True
    )
    _check_number("pids", requirements.pids, most=_MOST_BYTES, unit="a number of processes", whole=True)
    _check_number("timeout", requirements.timeout_s, most=_FOREVER_S, unit="a time such as 90 or 1h30m")


def _check_cpu_list(request: Request, text: str) -> None:
    from joblens.model.values.units import format_cpu_list, parse_cpu_list

    check_exec_string("cpu_list", text)
    cpu_numbers = parse_cpu_list(text)
    usable = os.sched_getaffinity(0)
    missing = [cpu for cpu in cpu_numbers if cpu not in usable]
    if missing:
        shown = format_cpu_list(missing)
        cpus_are = f"CPU {shown} is" if len(missing) == 1 else f"CPUs {shown} are"
        raise InputError(
            f"CPU list '{text}': {cpus_are} not available here",
            hint=f"available: {format_cpu_list(usable)}",
        )
    cpus = request.requirements.cpus
    if cpus is not None and cpus > len(cpu_numbers):
        raise InputError(
            f"CPU list '{text}': {cpus:g} CPUs were requested, but the list has {len(cpu_numbers)}",
            hint="give a longer list, or fewer CPUs",
        )


def _check_times(request: Request) -> None:
    interval_s = request.interval_s
    _check_number("interval", interval_s, most=_FOREVER_S, unit="a time such as 1 or 500ms")
    if interval_s is not None and interval_s < LEAST_INTERVAL_S:
        hint = "sampling faster costs too much"
        raise UnusableValue("interval", f"{interval_s:g}", "at least 50ms", hint=hint)
    if request.early_signal is not None and request.requirements.timeout_s is None:
        raise InputError("--signal needs --timeout: it is sent before the time limit")


def _check_number(name: str, value: Any, *, most: float, unit: str, whole: bool = False) -> None:
    if value is None:
        return
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise UnusableValue(name, repr(value), f"must be {unit}")
    if not value > 0:
        raise UnusableValue(name, f"{value:g}", "must be more than 0", hint=f"give {unit}")
    if not value < most:
        raise UnusableValue(name, f"{value:g}", "too large", hint=f"give {unit}")


def inputs_of(request: Request, shown: Sequence[str], cwd: str, settings: Settings) -> tuple[FileStamp, ...]:
    """`shown`: its arguments as they may be recorded. Raises InputError for a missing file. Contents are
    read while the job runs."""
    is_named = settings.provenance.enabled and request.container is None
    if not request.inputs and not (is_named and _has_arguments(request)):
        return ()
    from joblens.agent.provenance.parts import expanded, named_inputs, stamp

    paths: dict[str, None] = {}
    for name in request.inputs:
        found = expanded((name,), cwd)
        if not found or not all(os.path.exists(remembered_path(path, cwd)) for path in found):
            raise InputError(f"--input {name}: there is no such file", hint=_hint(request, cwd))
        paths |= dict.fromkeys(map(as_text, found))
    stamps = [stamp(path, cwd) for path in paths]
    if is_named:
        made = {os.path.join(cwd, path) for path in expanded(request.outputs, cwd)}
        stamps += [
            replace(stamp(path, cwd), is_guess=True)
            for path in named_inputs(shown, cwd, is_shell=request.shell is not None)
            if path not in paths and os.path.join(cwd, path) not in made
        ]
    return tuple(stamps)


def absolute_outputs(request: Request, current: str) -> tuple[str, ...]:
    """A container uses files of this machine, whatever its working directory."""
    if request.container is None:
        return request.outputs
    return tuple(os.path.join(current, path) for path in request.outputs)


def _has_arguments(request: Request) -> bool:
    return len(request.argv) > 1 or request.shell is not None


def _hint(request: Request, cwd: str) -> str:
    return f"relative to {cwd}, where the job runs" if request.cwd else ""
