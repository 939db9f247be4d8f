"""Settings of joblens, and names of stores.

Annotations stay unevaluated texts; only `model.setting_list` evaluates them, for types and meanings."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from joblens.model.jobs.job import Accounting, RetryLost

Duration = Annotated[float, Meta(ge=0, extra={"unit": "duration"})]  # seconds; written '5s', '1h30m'
SampleInterval = Annotated[float, Meta(ge=0.05, extra={"unit": "duration"})]
Size = Annotated[int, Meta(ge=0, extra={"unit": "size"})]  # bytes; written '512m', '2g'
GridFactor = Annotated[float, Meta(ge=0, le=5000)]  # g/kWh; the dirtiest grids have 1200
# Made absolute when read: paths in a file are relative to that file, others to the current directory.
Path = Annotated[str, Meta(extra={"unit": "path"})]
Probes = Annotated[str, Meta(extra={"unit": "probes"})]  # parsed by model.jobs.probe_choice
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


def _doc(text: str, *, least: float | None = None, most: float | None = None) -> Meta:
    return Meta(description=text, ge=least, le=most)


class JobMetricsSettings(Struct, frozen=True, kw_only=True):
    enabled: Annotated[bool, _doc("Measure jobs while they run.")] = True
    default_sample_rate: Annotated[
        SampleInterval | None,
        _doc("Default sampling interval, at least 50ms. Unset: 1s per job."),
    ] = None
    probes: Annotated[
        Probes,
        _doc("Measurements besides CPU, memory and I/O: all, none, default, names, +NAME, -NAME."),
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
        _doc("Where writes wait while the store is unavailable. Unset: under the XDG state directory."),
    ] = None


class HistoryFileSettings(Struct, frozen=True, kw_only=True):
    enabled: Annotated[
        bool, _doc("Keep jobs_history.jsonl next to the store, one line per finished job.")
    ] = True
    path: Annotated[
        Path | None, _doc("Path of the history file. Unset: jobs_history.jsonl next to the store.")
    ] = None
    max_size: Annotated[Size, _doc("Rotate the file when it grows past this. 0: never.")] = 100 * 1024**2
    backup_count: Annotated[int, _doc("Rotated files to keep.", least=0)] = 5


class SinkSettings(Struct, frozen=True, kw_only=True):
    history: HistoryFileSettings = HistoryFileSettings()


class LimitSettings(Struct, frozen=True, kw_only=True):
    enforce: Annotated[bool, _doc("Enforce limits on CPUs, memory, pids and time.")] = True
    accounting: Annotated[Accounting, _doc("auto, cgroup or process_tree.")] = Accounting.AUTO
    cgroup_parent: Annotated[
        str | None, _doc("cgroup (path below each mount) in which to create job groups. Unset: joblens' own.")
    ] = None
    grace: Annotated[Duration, _doc("Time between SIGTERM and SIGKILL.")] = 10.0


class OutputSettings(Struct, frozen=True, kw_only=True):
    capture: Annotated[bool, _doc("Keep the output of jobs.")] = True
    dir: Annotated[
        Path | None, _doc("Folder for stdout and stderr files of jobs. Unset: logs/ next to the store.")
    ] = None
    max_size: Annotated[Size, _doc("Bytes kept per stream: the first half and the last half.")] = 20 * 1024**2


class EnergySettings(Struct, frozen=True, kw_only=True):
    grid_co2_g_per_kwh: Annotated[
        GridFactor | None,
        _doc("Grams of CO2 per kilowatt-hour of your electricity. Unset: no CO2."),
    ] = None


class GpuSettings(Struct, frozen=True, kw_only=True):
    job_mapping_dir: Annotated[
        Path | None,
        _doc("Write the jobs of each NVIDIA GPU here, for dcgm-exporter --hpc-job-mapping-dir."),
    ] = None


class OtelSettings(Struct, frozen=True, kw_only=True):
    enabled: Annotated[
        bool, _doc("Export runs and jobs as OpenTelemetry traces and metrics; needs the extra 'otel'.")
    ] = False
    endpoint: Annotated[
        str | None,
        _doc("OTLP/HTTP receiver. Unset: $OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318."),
    ] = None
    metrics: Annotated[bool, _doc("Export metrics beside traces.")] = True
    dashboard_url: Annotated[
        str | None, _doc("URL of a joblens server, for links from spans to jobs and runs.")
    ] = None
    flush: Annotated[Duration, _doc("Wait at most this long at the end for the receiver.")] = 5.0


class LineageSettings(Struct, frozen=True, kw_only=True):
    file: Annotated[
        Path | None, _doc("Append OpenLineage events to this file, one JSON object per line.")
    ] = None
    url: Annotated[
        str | None, _doc("Post OpenLineage events to this URL; $OPENLINEAGE_API_KEY is sent as bearer token.")
    ] = None
    namespace: Annotated[str, _doc("Namespace of jobs in OpenLineage events.")] = "joblens"
    flush: Annotated[Duration, _doc("Wait at most this long at the end for the URL.")] = 5.0


class ProvenanceSettings(Struct, frozen=True, kw_only=True):
    enabled: Annotated[
        bool,
        _doc(
            "Record the environment of each job: code, programs, packages, machine, input and output files."
        ),
    ] = True
    max_hash_size: Annotated[
        Size, _doc("Files and programs up to this size are known by a digest, larger ones by size and time.")
    ] = 64 * 1024**2


class SupervisorSettings(Struct, frozen=True, kw_only=True):
    idle: Annotated[Duration, _doc("The background supervisor exits after this long without jobs.")] = 10.0


class QueueSettings(Struct, frozen=True, kw_only=True):
    broker: Annotated[
        str | None,
        _doc("redis://…, rediss://…, amqp://… or a folder; notifies workers. Unset: a folder of joblens."),
    ] = None
    name: Annotated[str, _doc("Queue that jobs go to, and that a worker serves, when none is named.")] = (
        "default"
    )
    lease: Annotated[Duration, _doc("A worker without a heartbeat for this long loses its jobs.")] = 30.0
    retry_lost: Annotated[
        RetryLost, _doc("If a job's worker is lost: safe runs it again; never ends it as lost.")
    ] = RetryLost.SAFE
    most_deliveries: Annotated[int, _doc("Workers a job may lose before it ends as lost.", least=1)] = 3
    poll: Annotated[
        Duration,
        _doc("How often an idle worker polls the store, in case a broker message was lost."),
    ] = 5.0
    any_user: Annotated[bool, _doc("A worker also takes jobs that other users have submitted.")] = False
    idle: Annotated[
        Duration, _doc("An automatically started worker exits after being idle for this long.")
    ] = 30.0


class SlurmSettings(Struct, frozen=True, kw_only=True):
    partition: Annotated[str | None, _doc("Partition, if neither option nor file names one.")] = None
    account: Annotated[str | None, _doc("Account to charge, if neither option nor file names one.")] = None
    qos: Annotated[str | None, _doc("Quality of service, if neither option nor file names one.")] = None
    constraint: Annotated[str | None, _doc("Node features, if neither option nor file names any.")] = None
    python: Annotated[
        str | None, _doc("Python with joblens on the nodes. Unset: the one that runs the command.")
    ] = None
    setup: Annotated[
        str | None, _doc("Shell lines to run on a node before its worker, such as 'module load gcc'.")
    ] = None
    agent_memory: Annotated[Size, _doc("Additional memory for the worker that measures a job.")] = (
        128 * 1024**2
    )
    most_queued: Annotated[int, _doc("Jobs and allocations of a run that Slurm has at a time.", least=1)] = (
        1000
    )
    array_at_once: Annotated[
        int, _doc("Jobs of one array that may run at a time (--array=…%N). 0: no bound.", least=0)
    ] = 0
    idle: Annotated[
        Duration, _doc("An idle allocation ends after this long, unless the file says otherwise.")
    ] = 60.0
    poll: Annotated[Duration, _doc("How often to query Slurm.")] = 5.0


class RaySettings(Struct, frozen=True, kw_only=True):
    address: Annotated[
        str | None,
        _doc("Ray cluster: HOST:PORT, or auto. Unset: $RAY_ADDRESS, else one is started for the run."),
    ] = None
    resources: Annotated[
        str | None, _doc("Custom resources that each job requests: 'ssd=1, licence=0.5'.")
    ] = None
    wait_for_nodes: Annotated[
        bool, _doc("Jobs too large for every node wait for a larger one, for clusters that scale.")
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


class ServerSettings(Struct, frozen=True, kw_only=True):
    host: Annotated[
        str, _doc("Address that `serve` listens on. Other than loopback: needs TLS or a proxy.")
    ] = "127.0.0.1"
    port: Annotated[int, _doc("Port that `serve` listens on. 0: any free one.", least=0, most=65535)] = 7373
    socket: Annotated[
        Path | None, _doc("Unix socket of `serve` for its owner. Unset: in the spool directory of the store.")
    ] = None
    tls_cert: Annotated[Path | None, _doc("Certificate of `serve`, PEM; reloaded when it changes.")] = None
    tls_key: Annotated[Path | None, _doc("Key of that certificate, PEM, without a password.")] = None
    client_ca: Annotated[
        Path | None, _doc("Clients must have a certificate of this authority (mutual TLS).")
    ] = None
    base_path: Annotated[str, _doc("Path below which a reverse proxy serves joblens, such as /joblens.")] = ""
    hosts: Annotated[
        str, _doc("More names that requests may have in their Host header, separated by commas.")
    ] = ""
    grpc: Annotated[
        str, _doc("Address that `serve` listens on for gRPC: PORT, or HOST:PORT. Empty: not served.")
    ] = ""
    grpc_roles: Annotated[
        str,
        _doc(
            "Client certificates that need no token over gRPC: NAME=ROLE, or NAME=ROLE:USER for jobs of that "
            "user alone, separated by commas."
        ),
    ] = ""
    session: Annotated[Duration, _doc("A session of a browser ends after this time.")] = 43200.0
    max_body: Annotated[Size, _doc("Largest request body.")] = 4 * 1024**2
    max_connections: Annotated[
        int, _doc("Connections at the same time; the Unix socket has as many of its own.", least=1)
    ] = 1000
    max_streams: Annotated[int, _doc("Event streams at the same time.", least=1)] = 500
    rate: Annotated[
        float, _doc("Requests per second from one address; ten times as many at once.", least=0.1)
    ] = 50.0
    header_timeout: Annotated[Duration, _doc("Time for a client to send all headers.")] = 10.0
    body_timeout: Annotated[Duration, _doc("Time for a client to send a whole body.")] = 30.0
    write_timeout: Annotated[Duration, _doc("A client that reads nothing for this long is disconnected.")] = (
        30.0
    )
    idle_timeout: Annotated[Duration, _doc("A connection without requests is closed after this time.")] = 65.0
    metrics_compat: Annotated[
        str, _doc("Names of other exporters in /metrics: cgroup, ceems, cadvisor, separated by commas.")
    ] = ""
    metrics_job_ids: Annotated[bool, _doc("One series per running job in /metrics.")] = False


class ClientSettings(Struct, frozen=True, kw_only=True):
    token_file: Annotated[
        Path | None,
        _doc("File with the token for `--server`, mode 0600. Unset: ~/.config/joblens/token if it exists."),
    ] = None
    ca: Annotated[
        Path | None, _doc("Certificate authority of the server, PEM. Unset: those of the system.")
    ] = None
    cert: Annotated[Path | None, _doc("Own certificate for a server with mutual TLS, PEM.")] = None
    key: Annotated[Path | None, _doc("Key of that certificate, PEM, without a password.")] = None


class Settings(Struct, frozen=True, kw_only=True):
    job_metrics: JobMetricsSettings = JobMetricsSettings()
    store: StoreSettings = StoreSettings()
    sinks: SinkSettings = SinkSettings()
    limits: LimitSettings = LimitSettings()
    output: OutputSettings = OutputSettings()
    energy: EnergySettings = EnergySettings()
    gpu: GpuSettings = GpuSettings()
    otel: OtelSettings = OtelSettings()
    lineage: LineageSettings = LineageSettings()
    provenance: ProvenanceSettings = ProvenanceSettings()
    supervisor: SupervisorSettings = SupervisorSettings()
    queue: QueueSettings = QueueSettings()
    slurm: SlurmSettings = SlurmSettings()
    ray: RaySettings = RaySettings()
    server: ServerSettings = ServerSettings()
    client: ClientSettings = ClientSettings()
    logs: LogSettings = LogSettings()


def variable_of(name: str) -> str:
    return "JOBLENS_" + name.replace(".", "_").upper()


def names_of(section: Struct, prefix: str = "") -> list[str]:
    """Returns the dotted names of all settings without evaluating types: cheap enough for every start."""
    names: list[str] = []
    for field in section.__struct_fields__:
        value = getattr(section, field)
        if isinstance(value, Struct):
            names += names_of(value, f"{prefix}{field}.")
        else:
            names.append(prefix + field)
    return names


_SCHEME = "postgresql://"
_SCHEMES = (_SCHEME, "postgres://")
_SECRET_PARAMETERS = ("password", "sslpassword")


def is_postgres(url: str) -> bool:
    return url.lower().startswith(_SCHEMES)


def without_password(url: str) -> str:
    """Returns the URL without its password. Anything but a PostgreSQL URL is returned unchanged."""
    if not is_postgres(url):
        return url
    # The last '@': a password may contain one that should have been written %40.
    user, at, rest = url.partition("://")[2].rpartition("@")
    if "?" in user and ":" not in user.partition("?")[0]:  # it is in a parameter
        location, mark, query = f"{user}{at}{rest}".partition("?")
        user, at, location = location.rpartition("@")
    else:
        location, mark, query = rest.partition("?")
    kept = [part for part in query.split("&") if part.partition("=")[0].lower() not in _SECRET_PARAMETERS]
    parameters = "&".join(kept)
    return _SCHEME + user.partition(":")[0] + at + location + (mark if parameters else "") + parameters


def has_password(url: str) -> bool:
    return is_postgres(url) and without_password(url) != _SCHEME + url.partition("://")[2]


def same_store(name: str, url: str) -> bool:
    """Returns whether a name without a password refers to the store at this URL."""
    return is_postgres(name) and not has_password(name) and without_password(url) == without_password(name)
