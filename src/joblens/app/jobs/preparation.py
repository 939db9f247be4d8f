"""From a request to a Job: defaults from the settings, secrets redacted."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from joblens.agent.measuring.accounting import JOB_ID_VARIABLE
from joblens.agent.runtime.ownership import this_process
from joblens.app.jobs.requests import LEAST_INTERVAL_S, Request, absolute_outputs, check_request, inputs_of
from joblens.app.wiring.agent_context import current_user
from joblens.model.errors import InputError, LaunchError
from joblens.model.jobs.job import ContainerJob, EarlySignal, Job, Owner
from joblens.model.redaction.names import seeds_of
from joblens.model.redaction.secrets import (
    NO_SECRETS,
    SecretValues,
    recorded_env,
    redact_argv,
    redact_env,
    redact_params,
    redact_text,
    secret_values,
)
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid
from joblens.probes.host.machine_load import HostFacts, read_host
from joblens.probes.provenance.program_files import as_text

DEFAULT_INTERVAL_S = 1.0
_NAME_LENGTH = 60


class PreparedJob(Struct, frozen=True):
    """The redacted job for the record, and its real command and environment."""

    job: Job
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    notify: tuple[str, ...] = ()  # command to run at its end
    secrets: SecretValues = NO_SECRETS  # to hide in its outcome
    host: HostFacts | None = None  # None: not read yet


class SubmitEnvironment(Struct, frozen=True):
    """Environment that all jobs of one process share; collected once."""

    environ: dict[str, str]
    recorded_env: dict[str, str]  # the part that may be recorded
    user: str
    cwd: str
    owner: Owner
    host: HostFacts
    seeds: dict[str, str] = {}  # set by it

    @classmethod
    def here(cls, environ: Mapping[str, str] = os.environ) -> "SubmitEnvironment":
        everything = dict(environ)
        host = read_host()
        recorded = _as_texts(recorded_env(everything))
        return cls(
            environ=everything,
            recorded_env=recorded,
            user=current_user(),
            cwd=_current_dir(),
            owner=this_process(host),
            host=host,
            seeds=seeds_of((), {}, recorded),
        )


def prepare(request: Request, settings: Settings, here: SubmitEnvironment | None = None) -> PreparedJob:
    """Raises InputError for invalid values, before anything starts."""
    check_request(request)
    if request.container is not None:
        request = _without_engine(request)
    here = here or SubmitEnvironment.here()
    argv = ("/bin/sh", "-c", request.shell) if request.shell is not None else request.argv
    uuid = request.uuid or new_uuid()
    container = request.container
    cwd = _job_dir(request.cwd, here.cwd) if container is None else ""
    shown = (request.shell,) if request.shell is not None else argv
    redacted = redact_argv(tuple(map(as_text, shown)))
    params, added = _params(request.params), _recorded_additions(request)
    interval_s = request.interval_s or settings.job_metrics.default_sample_rate or DEFAULT_INTERVAL_S
    job = Job(
        uuid=uuid,
        argv=redacted,
        is_shell=request.shell is not None,
        created_at_us=time.time_ns() // 1000,
        external_id=_shown(request.external_id) if request.external_id else None,
        name=_shown(request.name) or default_name(redacted or (container.image if container else "",)),
        tool=_shown(request.tool) or as_text(_default_tool(argv, request.shell, container)),
        script=_shown(request.script)
        or as_text(_default_script(argv, request.shell, is_in_container=container is not None)),
        params=params,
        tags=tuple(map(_shown, request.tags)),
        cwd=as_text(cwd),
        env=_recorded_env(here, added, settings, has_container=container is not None),
        env_given=tuple(added),
        requirements=request.requirements,
        enforce=_or_default(request.enforce, settings.limits.enforce),
        accounting=_or_default(request.accounting, settings.limits.accounting),
        monitor=_or_default(request.monitor, settings.job_metrics.enabled),
        probes=probes_of(request.probes, settings),
        cpu_list=_cpu_list(request.cpu_list),
        granularity=request.granularity,
        interval_s=max(LEAST_INTERVAL_S, interval_s),
        grace_s=_or_default(request.grace_s, settings.limits.grace),
        early_signal=request.early_signal,
        output_dir=request.output_dir,
        notify=redact_argv(tuple(map(as_text, request.notify))) if request.notify else (),
        user=here.user,
        background=request.background,
        created_by=here.owner,
        grid_co2_g_per_kwh=settings.energy.grid_co2_g_per_kwh,
        container=_recorded(container),
        inputs=inputs_of(request, redacted, cwd or here.cwd, settings),
        outputs=tuple(map(as_text, absolute_outputs(request, here.cwd))) if request.outputs else (),
        seeds=seeds_of(redacted, params, added if container is not None else {**here.seeds, **added}),
        rerun_of=request.rerun_of,
    )
    secrets = secret_values({**request.env, **request.params}) if params or added else NO_SECRETS
    job = secrets.hide_in_job(job)
    if container is not None:
        from joblens.app.jobs.requests import client_env

        inside = client_env(here.environ, {**request.env, **_trace(job, settings)}, uuid)
        return PreparedJob(job, argv, inside, cwd, request.notify, secrets, here.host)
    env = {**here.environ, **request.env, **_trace(job, settings), JOB_ID_VARIABLE: uuid}
    return PreparedJob(job, argv, env, cwd, request.notify, secrets, here.host)


def _recorded_env(
    here: SubmitEnvironment, added: dict[str, str], settings: Settings, *, has_container: bool
) -> dict[str, str]:
    """Into a container goes nothing of this environment, but its span is below the caller's."""
    if not has_container:
        return {**here.recorded_env, **added} if added else here.recorded_env
    caller = here.recorded_env.get("TRACEPARENT") if settings.otel.enabled else None
    return added if caller is None else {"TRACEPARENT": caller, **added}


def _trace(job: Job, settings: Settings) -> dict[str, str]:
    """The job's place in a trace, for its own spans."""
    if not settings.otel.enabled:
        return {}
    from joblens.model.jobs.trace import trace_variables

    return trace_variables(job)


def _without_engine(request: Request) -> Request:
    """A container of Apptainer is a plain command, and measured exactly like one."""
    from msgspec.structs import replace

    from joblens.agent.containers.protocol import with_whole_paths
    from joblens.model.jobs.containers import APPTAINER, apptainer_words

    container = request.container
    if container is None or container.engine != APPTAINER:
        return request
    inside = ("/bin/sh", "-c", request.shell) if request.shell is not None else request.argv
    arguments = apptainer_words(with_whole_paths(container), inside, gpus=request.requirements.gpus)
    env = {**request.env, **{f"APPTAINERENV_{name}": value for name, value in request.env.items()}}
    return replace(request, argv=arguments, shell=None, container=None, env=env)


def _recorded_additions(request: Request) -> dict[str, str]:
    """A container gets only requested variables. They were named explicitly, so the allow-list of variables
    does not apply; secrets are redacted as in parameters."""
    if not request.env:
        return {}
    return _as_texts(redact_env(request.env) if request.container is None else redact_params(request.env))


def _cpu_list(text: str | None) -> str:
    if text is None:
        return ""
    from joblens.model.values.units import format_cpu_list, parse_cpu_list

    return format_cpu_list(parse_cpu_list(text))


def probes_of(choice: str | None, settings: Settings) -> tuple[str, ...] | None:
    """Returns the request applied to the settings; None: the default. Raises InputError."""
    configured = settings.job_metrics.probes
    if choice is None and configured == "default":
        return None
    from joblens.model.jobs.probe_choice import DEFAULT_PROBES, chosen_probes

    probes = chosen_probes(configured)
    if choice is not None:
        probes = chosen_probes(choice, probes)
    return None if probes == DEFAULT_PROBES else probes


def _shown(text: str) -> str:
    """Returns the text as it may be recorded."""
    return redact_text(as_text(text)) if text else ""


def _params(params: dict[str, Any]) -> dict[str, Any]:
    if not params:
        return {}
    from joblens.app.jobs.requests import plain_params

    return redact_params(plain_params(params))


def _as_texts(env: Mapping[str, str]) -> dict[str, str]:
    return {as_text(name): as_text(value) for name, value in env.items()}


def default_name(argv: Sequence[str]) -> str:
    """Returns the command itself, short enough for a table."""
    arguments = [os.path.basename(argv[0]) or argv[0], *argv[1:]] if len(argv) > 1 else [argv[0]]
    line = " ".join(arguments) if len(arguments) > 1 else arguments[0]
    line = " ".join(line.split())
    return line if len(line) <= _NAME_LENGTH else line[: _NAME_LENGTH - 1] + "…"


def parse_params(pairs: Sequence[str]) -> dict[str, Any]:
    """Parses K=V, where V is JSON or otherwise text; or a JSON object."""
    if not pairs:
        return {}
    import msgspec

    from joblens.model.values.json_text import decode_json

    params: dict[str, Any] = {}
    for pair in pairs:
        if pair.lstrip().startswith("{"):
            for key, value in _object(pair).items():
                if key in params:
                    raise InputError(f"--param {key}: given twice")
                params[key] = value
            continue
        key, separator, text = as_text(pair).partition("=")
        if not separator or not key:
            raise InputError(f"--param {as_text(pair)}: expected NAME=VALUE")
        if key in params:
            raise InputError(f"--param {key}: given twice")
        try:
            params[key] = decode_json(text)
        except msgspec.DecodeError:
            params[key] = text
        else:
            _refuse_doubles(text)
    return params


def _refuse_doubles(text: str) -> None:
    """JSON allows duplicate names and the last one wins; that is never intended."""
    if "{" not in text:
        return
    import json

    def checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen:
                raise InputError(f"--param {key}: given twice")
            seen[key] = value
        return seen

    json.loads(text, object_pairs_hook=checked)


def _object(text: str) -> dict[str, Any]:
    import msgspec

    from joblens.model.values.json_text import decode_json

    try:
        found = decode_json(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        hint = """quote it in a shell: -p '{"mesh_size": 64}'"""
        raise InputError(f"--param {as_text(text)}: not JSON: {error}", hint=hint) from None
    assert isinstance(found, dict)  # it starts with a brace
    _refuse_doubles(text)
    return found


def parse_env(pairs: Sequence[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Parses NAME=VALUE, or NAME alone to record a variable that is already set."""
    env: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not name:
            raise InputError(f"--env {pair}: expected NAME=VALUE")
        if not separator and name not in environ:
            raise InputError(f"--env {name}: not set in the environment", hint=f"write --env {name}=VALUE")
        env[name] = value if separator else environ[name]
    return env


def parse_early_signal(text: str) -> EarlySignal:
    """Parses 'USR1@60' or '10@2m': which signal, and how long before the time-out."""
    import signal

    from joblens.model.values.units import parse_duration

    name, separator, lead = text.partition("@")
    bare = name.upper().removeprefix("SIG")
    known = {signals.name: signals.value for signals in signal.Signals}
    number = int(bare[:4]) if bare.isascii() and bare.isdigit() else known.get(f"SIG{bare}", 0)
    if not separator:
        raise InputError(f"--signal {text}: expected NAME@TIME", hint="for example: --signal USR1@60")
    if not 1 <= number < signal.NSIG:
        raise InputError(
            f"--signal {text}: there is no signal '{name}'",
            hint="`kill -l` lists them; for example: --signal USR1@60",
        )
    try:
        return EarlySignal(number, parse_duration(lead))
    except InputError as error:
        raise InputError(f"--signal {text}: {error}", hint=error.hint) from error


def parse_notify(text: str | None) -> tuple[str, ...]:
    if not text:
        return ()
    import shlex

    try:
        arguments = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--notify {text}: {error}") from error
    return tuple(arguments)


def _recorded(container: ContainerJob | None) -> ContainerJob | None:
    """Paths are absolute, because the client uses them."""
    if container is None:
        return None
    from joblens.agent.containers.protocol import with_whole_paths

    return with_whole_paths(container)


def _default_tool(argv: tuple[str, ...], shell: str | None, container: ContainerJob | None = None) -> str:
    if shell is None and not argv and container is not None:
        return os.path.basename(container.image).partition(":")[0]
    return "sh" if shell is not None else os.path.basename(argv[0])


def _default_script(argv: tuple[str, ...], shell: str | None, *, is_in_container: bool) -> str:
    """Returns the first argument that is a file: the script of an interpreter."""
    if shell is not None or is_in_container:
        return ""
    for argument in argv[1:3]:
        if not argument.startswith("-"):
            return os.path.basename(argument) if os.path.isfile(argument) else ""
    return ""


def _job_dir(cwd: str | None, current: str) -> str:
    if cwd is None:
        if not current:
            raise LaunchError(
                "the current directory no longer exists", hint="cd to another directory, or give --cwd"
            )
        return current
    if not cwd or (not current and not os.path.isabs(cwd)):
        raise InputError(f"--cwd '{cwd}': cannot be found", hint="give an absolute path")
    path = os.path.normpath(os.path.join(current, cwd))
    if not os.path.isdir(path):
        raise InputError(f"--cwd {cwd}: there is no such directory")
    return path


def _current_dir() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""  # the directory was removed; only a job with another directory can start


def _or_default(value: Any, default: Any) -> Any:
    return default if value is None else value
