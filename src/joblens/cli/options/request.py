"""Job request from options: the command, its amounts, and where it runs (machine, queue or cluster)."""

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from joblens.app.jobs.preparation import parse_early_signal, parse_env, parse_notify, parse_params
from joblens.app.jobs.requests import Request, UnusableValue, check_request, memory_of, seconds_of
from joblens.cli.options.table import ENGINE_OPTIONS, RUN_OPTIONS, SLURM_OPTIONS
from joblens.model.errors import InputError
from joblens.model.jobs.job import Accounting, ContainerJob, Granularity, Requirements

if TYPE_CHECKING:
    from joblens.model.runs.run import RunOptions, SlurmChoice


LOCAL, CELERY, RAY, SLURM = "local", "celery", "ray", "slurm"
CLUSTERS = (RAY, SLURM)
_SLURM_TEXTS = ("partition", "account", "qos", "constraint")
# One job cannot be packed and needs one allocation.
_OF_SEVERAL_JOBS = ("packing", "allocations")
_OF_QUEUES = ("queue", "broker", "retry_lost")
_SLURM_FIELDS = tuple(row.name for row in SLURM_OPTIONS)


class OptionNeed(Struct, frozen=True):
    """Conditions without which the option has no effect."""

    engine: str
    allocations: bool = False  # jobs that share allocations: not with --packing jobs


# Conditions of each option. Whether jobs of the file can use it is known with their plan (slurm_orders).
OPTION_NEEDS = {
    "address": OptionNeed(RAY),
    "queue": OptionNeed(CELERY),
    "broker": OptionNeed(CELERY),
    "packing": OptionNeed(SLURM),
    "partition": OptionNeed(SLURM),
    "account": OptionNeed(SLURM),
    "qos": OptionNeed(SLURM),
    "constraint": OptionNeed(SLURM),
    "nodes": OptionNeed(SLURM, allocations=True),
    "allocations": OptionNeed(SLURM, allocations=True),
    "walltime": OptionNeed(SLURM),
    "sbatch": OptionNeed(SLURM),
}


def check_engine_options(engine: str, values: dict[str, Any]) -> None:
    """Raises InputError for options that have no effect with that engine, or with the chosen packing."""
    for name in _SLURM_TEXTS:
        text = values.get(name)
        if text is not None and not (text.strip() and text.isprintable()):
            raise InputError(f"--{name} is empty" if not text.strip() else f"--{name}: must be one line")
    if values.get("retry_lost") is not None and engine == LOCAL:
        raise InputError(
            "--retry-lost has no effect with --engine local: there are no workers to lose",
            hint="add --engine celery, ray or slurm, or omit --retry-lost",
        )
    for name, need in OPTION_NEEDS.items():
        if values.get(name) in (None, (), ""):
            continue
        if need.engine != engine:
            raise InputError(
                f"--{name} has no effect with --engine {engine}: it needs --engine {need.engine}",
                hint=f"add --engine {need.engine}, or omit --{name}",
            )
        if need.allocations and values.get("packing") == "jobs":
            raise InputError(
                f"--{name} has no effect with --packing jobs, which submits one sbatch per job",
                hint=f"choose --packing allocations, or omit --{name}",
            )


def check_options(engine: str, values: dict[str, Any]) -> None:
    """Raises InputError for options that have no meaning for one command, or on that engine."""
    refuse_spec_options(values)
    check_engine_options(engine, values)
    for row in SLURM_OPTIONS:
        if row.name in _OF_SEVERAL_JOBS and values[row.name] is not None:
            raise InputError(
                f"{row.flags[-1]} needs a workflow file", hint="a single command is one Slurm job"
            )
    if values["label"] and engine != CELERY:
        raise InputError(
            f"--label has no effect with --engine {engine}: only queue workers have labels",
            hint=f"add --engine {CELERY}, or omit --label",
        )
    if engine in CLUSTERS and values["cpu_list"] is not None:
        raise InputError(
            f"--cpu-list selects CPUs of this machine, but the job runs on {engine}",
            hint="use --cpus N",
        )
    if engine != LOCAL and values.get("no_capture"):
        raise InputError(
            f"--no-capture: the output of a job on {engine} is always captured",
            hint="omit it",
        )


def slurm_choice(values: dict[str, Any]) -> "SlurmChoice":
    """A command may lack some of the options. Raises InputError for values that Slurm cannot read."""
    from joblens.model.runs.run import SlurmChoice

    return SlurmChoice(
        packing=values.get("packing") or "",
        partition=values.get("partition") or "",
        account=values.get("account") or "",
        qos=values.get("qos") or "",
        constraint=values.get("constraint") or "",
        nodes=values.get("nodes"),
        allocations=values.get("allocations"),
        time_s=_walltime_s(values.get("walltime")),
        options=_sbatch_options(values.get("sbatch") or ()),
    )


def _walltime_s(text: str | None) -> float | None:
    """Accepts sbatch's form (30, 2:00:00, 1-12:00:00) and joblens' (90m, 2h)."""
    if text is None:
        return None
    from joblens.app.jobs.requests import seconds_of
    from joblens.model.clusters.slurm_notation import parse_walltime

    is_written_as_ours = text[-1:].isalpha() and not text.isalpha()
    seconds = seconds_of("--walltime", text) if is_written_as_ours else parse_walltime(text)
    if seconds is not None and not seconds > 0:
        raise InputError(f"--walltime {text}: must be more than 0")
    return seconds


def _sbatch_options(words: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        if not word.startswith("-") or "\n" in word or "\0" in word:
            raise InputError(
                f"--sbatch {word}: not an sbatch option",
                hint="write --sbatch=--mail-type=FAIL",
            )
    return words


def engine_options(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of RunOptions that these options set. Raises InputError."""
    engine = values.get("engine") or LOCAL
    check_engine_options(engine, values)
    return {
        "engine": engine,
        "address": values.get("address") or "",
        "slurm": slurm_choice(values),
        **_queue_choice(values),
    }


def _queue_choice(values: dict[str, Any]) -> dict[str, str]:
    from joblens.runners.celery.broker_url import recorded_broker

    broker = values.get("broker")
    return {
        "queue": values.get("queue") or "",
        "broker": recorded_broker(broker) if broker is not None else "",
        "retry_lost": values.get("retry_lost") or "",
    }


def changed_engine(options: "RunOptions", values: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of RunOptions that these options change. Each option replaces its own value;
    another engine starts without the options of the previous one. Raises InputError."""
    engine = values.get("engine") or options.engine
    if engine != options.engine:
        return engine_options({**values, "engine": engine})
    check_engine_options(engine, values)
    changes: dict[str, Any] = {name: value for name, value in _queue_choice(values).items() if value}
    if values.get("address"):
        changes["address"] = values["address"]
    if any(values.get(name) for name in _SLURM_FIELDS):
        changes["slurm"] = _changed_slurm(options.slurm, values)
    return changes


def _changed_slurm(choice: "SlurmChoice", values: dict[str, Any]) -> "SlurmChoice":
    from msgspec.structs import asdict, replace

    from joblens.model.runs.run import SlurmChoice

    new = slurm_choice(values)
    nothing = asdict(SlurmChoice())
    changes = {name: value for name, value in asdict(new).items() if value != nothing[name]}
    if new.packing == "jobs":  # allocations no longer apply
        changes = {"nodes": None, "allocations": None, **changes}
    elif (new.nodes or new.allocations) and choice.packing == "jobs":
        changes = {"packing": "", **changes}
    return replace(choice, **changes)


QUEUE_OPTIONS_OF_RUNS = tuple(row for row in RUN_OPTIONS if row.name in _OF_QUEUES)
ENGINE_OPTIONS_OF_RUNS = (*ENGINE_OPTIONS, *SLURM_OPTIONS)


def request_from(values: dict[str, Any], *, background: bool) -> Request:
    """Raises InputError for invalid values."""
    request = _request(values, background=background)
    try:
        check_request(request)
    except UnusableValue as error:
        value = values[error.name]
        typed = value if isinstance(value, str) else f"{value:g}"
        raise InputError(f"--{error.name} {typed}: {error.reason}", hint=error.hint) from error
    return request


def _gpus(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise InputError(f"--gpus {text}: expected a number")
    from joblens.app.wiring.machine import gpu_count

    return gpu_count(text)


def _request(values: dict[str, Any], *, background: bool) -> Request:
    if values["name"] == "":
        raise InputError("the name is empty", hint="omit --name, or give one")
    return Request(
        argv=values["command_line"],
        shell=values["shell"],
        name=values["name"] or "",
        tool=values["tool"],
        script=values["script"],
        external_id=values["external_id"],
        params=parse_params(values["params"]),
        tags=values["tags"],
        env=parse_env(values["env"]),
        cwd=values["cwd"],
        requirements=Requirements(
            cpus=values["cpus"],
            memory_bytes=memory_of("--memory", values["memory"]),
            gpus=_gpus(values["gpus"]),
            pids=values["pids"],
            timeout_s=seconds_of("--timeout", values["timeout"]),
        ),
        enforce=False if values["no_enforce"] else None,
        accounting=Accounting(values["accounting"]) if values["accounting"] else None,
        monitor=False if values["no_monitor"] else None,
        probes=values["probes"],
        cpu_list=values["cpu_list"],
        granularity=Granularity(values["granularity"]),
        interval_s=seconds_of("--interval", values["interval"]),
        grace_s=seconds_of("--grace", values["grace"]),
        early_signal=parse_early_signal(values["early_signal"]) if values["early_signal"] else None,
        output_dir=values["output_dir"] or "",
        notify=parse_notify(values["notify"]),
        background=background,
        inputs=values["inputs"],
        outputs=values["outputs"],
        rerun_of=values.get("rerun_of", ""),
        container=container_from(values),
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
CONTAINER_NAMES = ("container", *_CONTAINER_OPTIONS)


def container_from(values: dict[str, Any]) -> ContainerJob | None:
    fields = {field: values[name] for name, field in _CONTAINER_OPTIONS.items() if values[name]}
    if values["container"] is None:
        if fields:
            name = next(name for name in _CONTAINER_OPTIONS if values[name])
            flag = {"volumes": "volume", "devices": "device"}.get(name, name).replace("_", "-")
            raise InputError(f"--{flag} needs --container IMAGE")
        return None
    return ContainerJob(image=values["container"], **fields)


def options_of_container(container: ContainerJob | None) -> dict[str, Any]:
    """Returns the options that request it, by their names."""
    if container is None:
        return {}
    fields = {name: getattr(container, field) for name, field in _CONTAINER_OPTIONS.items()}
    return {"container": container.image, **fields}


def refuse_spec_options(values: dict[str, Any]) -> None:
    """Raises InputError for options that need a workflow file. Options of engines and --label also work
    with commands."""
    from joblens.cli.options.table import ENGINE_OPTIONS, SLURM_OPTIONS, SPEC_OPTIONS

    also_of_commands = {"label", *(row.name for row in (*ENGINE_OPTIONS, *SLURM_OPTIONS))}
    for row in SPEC_OPTIONS:
        value = values[row.name]
        if row.name not in also_of_commands and value and value != row.default:
            hint = "the time limit of a command is --timeout TIME" if row.name == "time" else ""
            raise InputError(
                f"{row.flags[-1]} needs a workflow file", hint=hint or "joblens run FILE.yaml [OPTIONS]"
            )
