"""Settings of joblens: their values, the list of them with kind, range, default and meaning, and names of
stores.
"""

import enum
from functools import cache
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, inspect

from joblens.model.delivery import RetryLost
from joblens.model.jobs.job import Accounting
from joblens.model.jobs.probe_choice import ALL_PROBES

Duration = Annotated[float, Meta(ge=0, extra={"unit": "duration"})]  # seconds; written '5s', '1h30m'
SampleInterval = Annotated[float, Meta(ge=0.05, extra={"unit": "duration"})]
Size = Annotated[int, Meta(ge=0, extra={"unit": "size"})]  # bytes; written '512m', '2g'
GridFactor = Annotated[float, Meta(ge=0, le=5000)]  # g/kWh; the dirtiest grids have 1200
# Absolute once read: what a file says is relative to that file, the rest to the current directory.
Path = Annotated[str, Meta(extra={"unit": "path"})]
Probes = Annotated[str, Meta(extra={"unit": "probes"})]  # as model.probe_choice reads it
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


def _doc(text: str, *, least: float | None = None, most: float | None = None) -> Meta:
    return Meta(description=text, ge=least, le=most)


class JobMetricsSettings(Struct, frozen=True, kw_only=True):
    enabled: Annotated[bool, _doc("Measure jobs while they run.")] = True
    default_sample_rate: Annotated[
        SampleInterval | None,
        _doc("Time between samples where neither option nor spec says, 50ms at least. Unset: 1 s a job."),
    ] = None
    probes: Annotated[
        Probes,
        _doc("What is measured beside CPU, memory and I/O: all, none, default, names, +NAME, -NAME."),
    ] = "default"
    storage_dir: Annotated[
        Path | None, _doc("When set, also write samples live to STORAGE_DIR/UUID/TIMESTAMP.jsonl.gz.")
    ] = None
    retention_days: Annotated[
        float, _doc("Drop samples and logs of jobs that ended longer ago. 0: never.", least=0)
    ] = 30.0
    retention_size: Annotated[Size, _doc("Drop the oldest samples beyond this total. 0: no bound.")] = (
        2 * 1024**3
    )
    compression_level: Annotated[int, _doc("zstd level of sample blocks.", least=1, most=9)] = 3
    max_file_size: Annotated[Size, _doc("Start a new live gzip file when one grows past this.")] = (
        50 * 1024**2
    )


class StoreSettings(Struct, frozen=True, kw_only=True):
    url: Annotated[
        Path | None,
        _doc(
            "Path of an SQLite file, or postgresql://user@host/database. "
            "Unset: joblens/joblens.db under the XDG data directory."
        ),
    ] = None
    journal_dir: Annotated[
        Path | None,
        _doc("Where writes wait while the store cannot take them. Unset: under the XDG state directory."),
    ] = None


class HistoryFileSettings(Struct, frozen=True, kw_only=True):
    enabled: Annotated[bool, _doc("Keep jobs_history.jsonl beside the store, one line a finished job.")] = (
        True
    )
    path: Annotated[Path | None, _doc("Where; unset: jobs_history.jsonl beside the store.")] = None
    max_size: Annotated[Size, _doc("Rotate the file when it grows past this. 0: never.")] = 100 * 1024**2
    backup_count: Annotated[int, _doc("Rotated files to keep.", least=0)] = 5


class SinkSettings(Struct, frozen=True, kw_only=True):
    history: HistoryFileSettings = HistoryFileSettings()


class LimitSettings(Struct, frozen=True, kw_only=True):
    enforce: Annotated[bool, _doc("Hold jobs to the CPUs, memory, pids and time they were given.")] = True
    accounting: Annotated[Accounting, _doc("auto, cgroup or process_tree.")] = Accounting.AUTO
    cgroup_parent: Annotated[
        str | None, _doc("cgroup (path below each mount) to make job groups in. Unset: joblens' own.")
    ] = None
    grace: Annotated[Duration, _doc("Time between asking a job to end and killing it.")] = 10.0


class OutputSettings(Struct, frozen=True, kw_only=True):
    capture: Annotated[bool, _doc("Keep what jobs print.")] = True
    dir: Annotated[
        Path | None, _doc("Where the job's stdout and stderr files go. Unset: logs/ beside the store.")
    ] = None
    max_size: Annotated[Size, _doc("Bytes kept per stream: the first half and the last half.")] = 20 * 1024**2


class EnergySettings(Struct, frozen=True, kw_only=True):
    grid_co2_g_per_kwh: Annotated[
        GridFactor | None,
        _doc("Grams of CO2 that a kilowatt-hour of your electricity stands for. Unset: no CO2."),
    ] = None


class ProvenanceSettings(Struct, frozen=True, kw_only=True):
    enabled: Annotated[
        bool, _doc("Note what each job ran in: code, programs, packages, machine, files it read and left.")
    ] = True
    max_hash_size: Annotated[
        Size, _doc("Files and programs up to this size are known by a digest, larger ones by size and time.")
    ] = 64 * 1024**2


class SupervisorSettings(Struct, frozen=True, kw_only=True):
    idle: Annotated[Duration, _doc("The background supervisor ends when it had no job for this long.")] = 10.0


class QueueSettings(Struct, frozen=True, kw_only=True):
    broker: Annotated[
        str | None,
        _doc(
            "redis://…, rediss://…, amqp://… or a folder; tells workers of jobs. Unset: a folder of joblens."
        ),
    ] = None
    name: Annotated[str, _doc("Queue that jobs go to, and that a worker serves, when none is named.")] = (
        "default"
    )
    lease: Annotated[Duration, _doc("A worker that is not heard of for this long has lost its jobs.")] = 30.0
    retry_lost: Annotated[
        RetryLost, _doc("safe: a job whose worker was lost is taken up again; never: it ends as lost.")
    ] = RetryLost.SAFE
    most_deliveries: Annotated[int, _doc("Workers a job may lose before it ends as lost.", least=1)] = 3
    poll: Annotated[
        Duration,
        _doc("How often a worker with nothing to do looks into the store for jobs the broker forgot."),
    ] = 5.0
    any_user: Annotated[bool, _doc("A worker also takes jobs that other users have submitted.")] = False
    idle: Annotated[
        Duration, _doc("A worker that was started for a job ends when it had none for this long.")
    ] = 30.0


class SlurmSettings(Struct, frozen=True, kw_only=True):
    partition: Annotated[str | None, _doc("Partition to ask where neither option nor spec names one.")] = None
    account: Annotated[str | None, _doc("Account to charge where neither option nor spec names one.")] = None
    qos: Annotated[str | None, _doc("Quality of service where neither option nor spec names one.")] = None
    constraint: Annotated[
        str | None, _doc("Features that nodes must have where neither option nor spec names any.")
    ] = None
    python: Annotated[
        str | None, _doc("Python with joblens on the nodes. Unset: the one that runs the command.")
    ] = None
    setup: Annotated[
        str | None, _doc("Shell lines to run on a node before its worker, such as 'module load gcc'.")
    ] = None
    agent_memory: Annotated[
        Size, _doc("Memory that is asked for beside a job's own, for the worker that measures it.")
    ] = 128 * 1024**2
    most_queued: Annotated[int, _doc("Jobs and allocations of a run that Slurm has at a time.", least=1)] = (
        1000
    )
    array_at_once: Annotated[
        int, _doc("Jobs of one array that may run at a time (--array=…%N). 0: no bound.", least=0)
    ] = 0
    idle: Annotated[
        Duration, _doc("An allocation ends when it had no job for this long, where the spec does not say.")
    ] = 60.0
    poll: Annotated[Duration, _doc("How often Slurm is asked how things stand.")] = 5.0


class RaySettings(Struct, frozen=True, kw_only=True):
    address: Annotated[
        str | None,
        _doc("Of the cluster: HOST:PORT, or auto. Unset: $RAY_ADDRESS, else one is started for the run."),
    ] = None
    resources: Annotated[
        str | None, _doc("Resources of the cluster's own that each job takes: 'ssd=1, licence=0.5'.")
    ] = None
    wait_for_nodes: Annotated[
        bool, _doc("Jobs that no node is large enough for wait for one, as where a cluster grows by itself.")
    ] = False


class LogSettings(Struct, frozen=True, kw_only=True):
    level: Annotated[LogLevel, _doc("DEBUG, INFO, WARNING or ERROR, for joblens' own log.")] = "WARNING"
    file: Annotated[
        Path | None, _doc("File for joblens' own log; warnings are shown as well. Unset: standard error.")
    ] = None
    max_log_size_mb: Annotated[
        float, _doc("Rotate the log file when it grows past this many MiB. 0: never.", least=0)
    ] = 50.0
    backup_count: Annotated[int, _doc("Rotated log files to keep, gzip-compressed.", least=0)] = 5


class Settings(Struct, frozen=True, kw_only=True):
    job_metrics: JobMetricsSettings = JobMetricsSettings()
    store: StoreSettings = StoreSettings()
    sinks: SinkSettings = SinkSettings()
    limits: LimitSettings = LimitSettings()
    output: OutputSettings = OutputSettings()
    energy: EnergySettings = EnergySettings()
    provenance: ProvenanceSettings = ProvenanceSettings()
    supervisor: SupervisorSettings = SupervisorSettings()
    queue: QueueSettings = QueueSettings()
    slurm: SlurmSettings = SlurmSettings()
    ray: RaySettings = RaySettings()
    logs: LogSettings = LogSettings()


class Kind(enum.StrEnum):
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    PATH = "path"
    DURATION = "duration"
    SIZE = "size"
    CHOICE = "choice"
    PROBES = "probes"


EXPECTED = {
    Kind.BOOL: "true or false",
    Kind.INT: "a whole number",
    Kind.FLOAT: "a number",
    Kind.TEXT: "text",
    Kind.PATH: "a path",
    Kind.DURATION: "a duration such as 5s, 500ms or 1h30m",
    Kind.SIZE: "a size such as 512m or 2GB",
    Kind.PROBES: f"all, none, default, or some of {', '.join(ALL_PROBES)}; + and - change the default",
}


class Setting(Struct, frozen=True, kw_only=True):
    name: str  # dotted: job_metrics.enabled
    kind: Kind
    is_optional: bool  # may be null: not set
    choices: tuple[str, ...] = ()
    choice_class: type[enum.StrEnum] | None = None
    least: float | None = None
    most: float | None = None
    default: Any = None
    meaning: str = ""

    @property
    def variable(self) -> str:
        return variable_of(self.name)

    @property
    def expected(self) -> str:
        if self.kind is Kind.CHOICE:
            return "one of " + ", ".join(self.choices)
        return EXPECTED[self.kind]


def variable_of(name: str) -> str:
    return "JOBLENS_" + name.replace(".", "_").upper()


def names_of(section: Struct, prefix: str = "") -> list[str]:
    """Dotted names of all settings, without looking at types: cheap enough for every start."""
    names: list[str] = []
    for field in section.__struct_fields__:
        value = getattr(section, field)
        if isinstance(value, Struct):
            names += names_of(value, f"{prefix}{field}.")
        else:
            names.append(prefix + field)
    return names


@cache
def all_settings() -> dict[str, Setting]:
    return {setting.name: setting for setting in _settings_in(inspect.type_info(Settings), "")}


def _settings_in(section: Any, prefix: str) -> list[Setting]:
    found: list[Setting] = []
    for field in section.fields:
        bare, meaning, unit = _bare(field.type)
        name = prefix + field.name
        if isinstance(bare, inspect.StructType):
            found += _settings_in(bare, name + ".")
        else:
            found.append(_setting(name, bare, meaning, unit, field.default))
    return found


def _bare(type_: inspect.Type) -> tuple[inspect.Type, str, str]:
    """The type below its annotations, with what they said: meaning and unit."""
    meaning = unit = ""
    while isinstance(type_, inspect.Metadata):
        meaning = meaning or (type_.extra_json_schema or {}).get("description", "")
        unit = unit or (type_.extra or {}).get("unit", "")
        type_ = type_.type
    return type_, meaning, unit


def _setting(name: str, type_: inspect.Type, meaning: str, unit: str, default: Any) -> Setting:
    is_optional = False
    if isinstance(type_, inspect.UnionType):
        (type_,) = (one for one in type_.types if not isinstance(one, inspect.NoneType))
        type_, _, unit = _bare(type_)
        is_optional = True
    choices: tuple[str, ...] = ()
    choice_class = None
    least: float | None = None
    most: float | None = None
    match type_:
        case inspect.BoolType():
            kind = Kind.BOOL
        case inspect.IntType():
            kind, least, most = Kind(unit or Kind.INT), type_.ge, type_.le
        case inspect.FloatType():
            kind, least, most = Kind(unit or Kind.FLOAT), type_.ge, type_.le
        case inspect.StrType():
            kind = Kind(unit or Kind.TEXT)
        case inspect.EnumType(cls=cls) if issubclass(cls, enum.StrEnum):
            kind, choices, choice_class = Kind.CHOICE, tuple(member.value for member in cls), cls
        case inspect.LiteralType(values=values):
            kind, choices = Kind.CHOICE, tuple(str(value) for value in values)
        case _:
            raise TypeError(f"setting {name} has a type configuration cannot give: {type_}")
    return Setting(
        name=name,
        kind=kind,
        is_optional=is_optional,
        choices=choices,
        choice_class=choice_class,
        least=least,
        most=most,
        default=default,
        meaning=meaning,
    )


_SCHEME = "postgresql://"
_SCHEMES = (_SCHEME, "postgres://")
_SECRET_PARAMETERS = ("password", "sslpassword")


def is_postgres(url: str) -> bool:
    return url.lower().startswith(_SCHEMES)


def without_password(url: str) -> str:
    """The same store under its one name. What is no URL of PostgreSQL stays as it is."""
    if not is_postgres(url):
        return url
    # The last '@': a password may hold one that should have been written %40, and must not be shown for it.
    user, at, rest = url.partition("://")[2].rpartition("@")
    if "?" in user and ":" not in user.partition("?")[0]:  # it stands in a parameter
        place, mark, query = f"{user}{at}{rest}".partition("?")
        user, at, place = place.rpartition("@")
    else:
        place, mark, query = rest.partition("?")
    kept = [part for part in query.split("&") if part.partition("=")[0].lower() not in _SECRET_PARAMETERS]
    parameters = "&".join(kept)
    return _SCHEME + user.partition(":")[0] + at + place + (mark if parameters else "") + parameters


def has_password(url: str) -> bool:
    return is_postgres(url) and without_password(url) != _SCHEME + url.partition("://")[2]


def same_store(name: str, url: str) -> bool:
    """Whether a name without a password stands for the store at this URL."""
    return is_postgres(name) and not has_password(name) and without_password(url) == without_password(name)
