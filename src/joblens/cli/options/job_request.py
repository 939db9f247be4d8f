"""From what was typed to a Request."""

from typing import Any

from joblens.app.jobs.preparation import parse_early_signal, parse_env, parse_notify, parse_params
from joblens.app.jobs.requests import Request, UnusableValue, check_request, memory_of, seconds_of
from joblens.model.errors import InputError
from joblens.model.jobs.job import Accounting, ContainerJob, Granularity, Requirements


def request_from(given: dict[str, Any], *, background: bool) -> Request:
    """Raises InputError for what cannot be read or used."""
    request = _request(given, background=background)
    try:
        check_request(request)
    except UnusableValue as error:
        value = given[error.name]
        typed = value if isinstance(value, str) else f"{value:g}"
        raise InputError(f"--{error.name} {typed}: {error.reason}", hint=error.hint) from error
    return request


def _gpus(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise InputError(f"--gpus {text}: expected a number")
    from joblens.app.wiring.machine_capacity import gpu_count

    return gpu_count(text)


def _request(given: dict[str, Any], *, background: bool) -> Request:
    return Request(
        argv=given["command_line"],
        shell=given["shell"],
        name=given["name"],
        tool=given["tool"],
        script=given["script"],
        external_id=given["external_id"],
        params=parse_params(given["params"]),
        tags=given["tags"],
        env=parse_env(given["env"]),
        cwd=given["cwd"],
        requirements=Requirements(
            cpus=given["cpus"],
            memory_bytes=memory_of("--memory", given["memory"]),
            gpus=_gpus(given["gpus"]),
            pids=given["pids"],
            timeout_s=seconds_of("--timeout", given["timeout"]),
        ),
        enforce=False if given["no_enforce"] else None,
        accounting=Accounting(given["accounting"]) if given["accounting"] else None,
        monitor=False if given["no_monitor"] else None,
        probes=given["probes"],
        cpu_list=given["cpu_list"],
        granularity=Granularity(given["granularity"]),
        interval_s=seconds_of("--interval", given["interval"]),
        grace_s=seconds_of("--grace", given["grace"]),
        early_signal=parse_early_signal(given["early_signal"]) if given["early_signal"] else None,
        output_dir=given["output_dir"] or "",
        notify=parse_notify(given["notify"]),
        background=background,
        inputs=given["inputs"],
        outputs=given["outputs"],
        rerun_of=given.get("rerun_of", ""),
        container=container_from(given),
    )


_CONTAINER_OPTIONS = {  # option -> field of ContainerJob
    "container_engine": "engine",
    "container_socket": "socket",
    "container_name": "name",
    "volumes": "volumes",
    "devices": "devices",
    "container_network": "network",
    "container_user": "user",
    "container_workdir": "workdir",
    "entrypoint": "entrypoint",
    "pull": "pull",
}


def container_from(given: dict[str, Any]) -> ContainerJob | None:
    wanted = {field: given[name] for name, field in _CONTAINER_OPTIONS.items() if given[name]}
    if given["container"] is None:
        if wanted:
            name = next(name for name in _CONTAINER_OPTIONS if given[name])
            flag = {"volumes": "volume", "devices": "device"}.get(name, name).replace("_", "-")
            raise InputError(f"--{flag} goes with --container IMAGE only")
        return None
    return ContainerJob(image=given["container"], **wanted)


def options_of_container(container: ContainerJob | None) -> dict[str, Any]:
    """The options that ask for it, by their names."""
    if container is None:
        return {}
    fields = {name: getattr(container, field) for name, field in _CONTAINER_OPTIONS.items()}
    return {"container": container.image, **fields}


def refuse_spec_options(given: dict[str, Any]) -> None:
    """Raises InputError for options that only a workflow file takes. Options of engines and --label are for
    commands too."""
    from joblens.cli.options.table import ENGINE_OPTIONS, SLURM_OPTIONS, SPEC_OPTIONS

    also_of_commands = {"label", *(row.name for row in (*ENGINE_OPTIONS, *SLURM_OPTIONS))}
    for row in SPEC_OPTIONS:
        value = given[row.name]
        if row.name not in also_of_commands and value and value != row.default:
            raise InputError(
                f"{row.flags[-1]} goes with a workflow file only", hint="joblens run FILE.yaml [OPTIONS]"
            )
