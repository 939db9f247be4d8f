"""Option table of `run` and `submit` as data, and the fast parser of plain `joblens run` lines."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from joblens.model.jobs.job import Accounting, Granularity, RetryLost

MOST_COUNT = 2**63 - 1


class OptionRow(Struct, frozen=True, kw_only=True):
    """`kind`: text, number, count (whole, at least `least`), choice, flag, or many (repeatable text)."""

    flags: tuple[str, ...]
    name: str
    help: str
    kind: str = "text"
    metavar: str | None = None
    default: str | None = None
    least: int = 0
    choices: tuple[str, ...] = ()
    shows_default: bool = False


def option(*flags: str, name: str = "", help: str, **more: object) -> OptionRow:
    plain = name or flags[-1].lstrip("-").replace("-", "_")
    return OptionRow(flags=flags, name=plain, help=help, **more)  # type: ignore[arg-type]


def choice(flag: str, choices: Iterable[str], *, name: str = "", help: str, **more: object) -> OptionRow:
    values = tuple(str(each) for each in choices)
    return option(flag, name=name, kind="choice", choices=values, help=help, **more)


def defaults_of(rows: Iterable[OptionRow]) -> dict[str, Any]:
    """Returns the values of options that are not on the command line, by name."""
    return {
        row.name: False if row.kind == "flag" else () if row.kind == "many" else row.default for row in rows
    }


JOB_OPTIONS = (
    option("--name", metavar="TEXT", help="Job name. Default: the command."),
    option("--tool", metavar="TEXT", default="", help="Tool name for statistics. Default: the program."),
    option("--script", metavar="TEXT", default="", help="Script name to record."),
    option(
        "--id",
        name="external_id",
        metavar="TEXT",
        help="Your own ID for the job, accepted by every command.",
    ),
    option(
        "-p",
        "--param",
        "--params",
        name="params",
        kind="many",
        metavar="K=V",
        help="Record a parameter; for a tool, also pass it to the script. Repeatable; or JSON: '{\"a\": 1}'.",
    ),
    option(
        "--tag",
        name="tags",
        kind="many",
        metavar="TAG",
        help="Tag: a word or key=value. Repeatable.",
    ),
    option("--cpus", kind="number", metavar="N", help="CPU limit; 0.5 is half a core."),
    option("--cpu-list", metavar="LIST", help="Bind to these CPUs: 0-3,8."),
    option("--memory", metavar="SIZE", help="Memory limit: 512m, 2g."),
    option("--gpus", metavar="N", help="GPUs the job needs (recorded, not enforced)."),
    option("--pids", kind="count", least=1, metavar="N", help="Limit on processes and threads."),
    option("--timeout", metavar="TIME", help="Time limit: 90, 30s, 1h30m. The job is then killed."),
    option(
        "--signal",
        name="early_signal",
        metavar="SIG@TIME",
        help="Send a signal before the time limit: USR1@60 (60s before).",
    ),
    option("--grace", metavar="TIME", help="Time between SIGTERM and SIGKILL. Default: 10s."),
    option("--no-enforce", kind="flag", help="Record the limits without enforcing them."),
    option("--interval", metavar="TIME", help="Sampling interval, at least 50ms. Default: 1s."),
    option("--no-monitor", kind="flag", help="Take no samples; record totals only."),
    option(
        "--probes", metavar="LIST", help="Optional probes: all, none, a list of names, +memory, -network."
    ),
    choice(
        "--granularity",
        Granularity,
        default=str(Granularity.SUMMARY),
        shows_default=True,
        help="'time_series' also writes samples to OUTPUT_DIR/resource_utilization/*.db.",
    ),
    option(
        "-o",
        "--output-dir",
        metavar="DIR",
        help="Directory for time-series files and workflow output. Default: output.",
    ),
    choice(
        "--accounting",
        Accounting,
        help="How to measure. Default: auto, the best available method.",
    ),
    option("--cwd", metavar="DIR", help="Working directory."),
    option("--env", kind="many", metavar="K=V", help="Set an environment variable. Repeatable."),
    option(
        "--input",
        name="inputs",
        kind="many",
        metavar="PATH",
        help="Input file or glob; its size and hash are recorded. Repeatable.",
    ),
    option(
        "--output",
        name="outputs",
        kind="many",
        metavar="PATH",
        help="Output file or glob; its size and hash are recorded at the end. Repeatable.",
    ),
    option("--container", metavar="IMAGE", help="Run in a container from this image."),
    choice(
        "--container-engine",
        ("docker", "podman", "apptainer"),
        help="Container engine. Default: docker or podman, whichever responds first.",
    ),
    option("--container-socket", metavar="PATH", help="Socket of the container engine."),
    option("--container-name", metavar="NAME", help="Container name. Default: chosen by the engine."),
    option(
        "--volume",
        name="volumes",
        kind="many",
        metavar="SRC:DST[:ro]",
        help="Mount a directory or volume. Repeatable.",
    ),
    option(
        "--device",
        name="devices",
        kind="many",
        metavar="PATH",
        help="Pass a device to the container; for 'submit TOOL' also cpu, gpu or intel-gpu. Repeatable.",
    ),
    option("--container-network", metavar="MODE", help="Container network: none, host, bridge or a name."),
    option("--container-user", metavar="USER", help="User inside the container: NAME or UID[:GID]."),
    option("--container-workdir", metavar="DIR", help="Working directory inside the container."),
    option("--entrypoint", metavar="PROGRAM", help="Override the image's entrypoint."),
    option("--pull", kind="flag", help="Pull the image if it is missing."),
    option("--shell", metavar="LINE", help="Run a shell command line: --shell 'a | b'."),
    option(
        "--notify",
        metavar="CMD",
        help="Run CMD when the job ends, without a shell; the record is on stdin as JSON.",
    ),
)
RUN_OPTIONS = (
    option("--report", metavar="FILE", help="Write the record to FILE as JSON."),
    option("--no-capture", kind="flag", help="Do not record output; the job inherits the terminal or pipes."),
    option("-q", "--quiet", kind="flag", help="Show no live line and no summary."),
    option("-v", "--verbose", kind="flag", help="Print the summary even without a terminal."),
    option("--queue", metavar="NAME", help="Queue to use with --engine celery."),
    option("--broker", metavar="URL", help="Broker to use with --engine celery."),
    choice(
        "--retry-lost",
        RetryLost,
        help="If a worker is lost: 'safe' requeues its job, 'never' marks the job lost.",
    ),
)
ENGINE_OPTIONS = (
    choice(
        "--engine",
        ("local", "celery", "ray", "slurm"),
        help="Where to run: this machine, queue workers (celery) or a cluster. Default: local.",
    ),
    option("--address", metavar="ADDRESS", help="Ray cluster: HOST:PORT or auto."),
)
SLURM_OPTIONS = (
    choice(
        "--packing",
        ("jobs", "allocations"),
        help="Slurm: one sbatch per job, or allocations that jobs share. Default: chosen from the workflow.",
    ),
    option("--partition", metavar="NAME", help="Slurm partition."),
    option("--account", metavar="NAME", help="Slurm account to charge."),
    option("--qos", metavar="NAME", help="Slurm quality of service."),
    option("--constraint", metavar="FEATURES", help="Slurm node features: 'a100&ib'."),
    option("--nodes", kind="count", least=1, metavar="N", help="Slurm nodes per job or allocation."),
    option(
        "--allocations", kind="count", least=1, metavar="N", help="Number of Slurm allocations to request."
    ),
    option(
        "--walltime",
        metavar="TIME",
        help="Time limit of the Slurm job or allocation: 90m, 2h, 02:00:00.",
    ),
    option(
        "--sbatch",
        kind="many",
        metavar="OPTION",
        help="Pass an option to sbatch: --sbatch=--mail-type=FAIL. Repeatable.",
    ),
)
# For `run FILE` and `submit FILE`; options that are also in JOB_OPTIONS are described there for one
# command.
SPEC_OPTIONS = (
    option("-j", "--jobs", kind="count", least=1, metavar="N", help="Run at most N jobs at once."),
    option(
        "--time",
        metavar="TIME",
        help="Time limit of the run; starts no job that would exceed it.",
    ),
    option(
        "--only",
        kind="many",
        metavar="JOB",
        help="Run only these jobs: name, glob or label:X. Repeatable.",
    ),
    option("--skip", kind="many", metavar="JOB", help="Skip these jobs and their dependents. Repeatable."),
    option("--until", kind="many", metavar="JOB", help="Run these jobs and their dependencies. Repeatable."),
    option(
        "--label",
        kind="many",
        metavar="LABEL",
        help="FILE: workers of this run also take jobs with this label (repeatable). "
        "COMMAND: only workers with this label may run it.",
    ),
    option(
        "--rerun-changed",
        kind="flag",
        help="Run only jobs that changed since they last succeeded, and their dependents.",
    ),
    option("--dry-run", kind="flag", help="Show the plan without running anything."),
    option("--detach", kind="flag", help="Run in the background and print the run's ID."),
    option("--no-resource-monitoring", kind="flag", help="Take no samples."),
    choice(
        "--on-interrupt",
        ("drain", "kill"),
        default="drain",
        help="First Ctrl-C: let running jobs finish (drain), or terminate them (kill). Default: drain.",
    ),
    *ENGINE_OPTIONS,
    *SLURM_OPTIONS,
)
# For `submit`; a job with any of the first three goes to queue workers.
QUEUE_OPTIONS = (
    option("--queue", metavar="NAME", help="Queue to submit to. Default: the setting queue.name."),
    option("--broker", metavar="URL", help="Broker that wakes workers: redis://…, amqp://… or a directory."),
    choice(
        "--retry-lost",
        RetryLost,
        help="If the worker is lost: 'safe' requeues the job, 'never' marks it lost.",
    ),
    option(
        "--wait",
        kind="flag",
        help="Wait and print the result. The exit code is the job's, or that of 'run FILE'.",
    ),
    option(
        "-t",
        "--wait-timeout",
        metavar="TIME",
        help="With --wait: stop waiting after TIME (exit code 124); the job keeps running.",
    ),
)
GLOBAL_OPTIONS = (
    option(
        "--store",
        name="global_store",
        metavar="STORE",
        help="Store to use: a file or a PostgreSQL URL. Environment: JOBLENS_STORE.",
    ),
    option(
        "--server",
        name="global_server",
        metavar="URL",
        help="Server to use in place of a store. Environment: JOBLENS_SERVER, JOBLENS_TOKEN.",
    ),
    option(
        "--config", name="global_config", metavar="FILE", help="Configuration file; overrides the others."
    ),
    option("--json", name="global_json", kind="flag", help="Print JSON."),
    choice(
        "--format",
        ("json", "text"),
        name="global_format",
        help="Output format; '--format json' is '--json'.",
    ),
    option(
        "--no-color",
        name="global_no_color",
        kind="flag",
        help="Disable colors. Environment: NO_COLOR=1.",
    ),
)


_ROWS = {
    flag: row for row in (*JOB_OPTIONS, *RUN_OPTIONS, *SPEC_OPTIONS, *GLOBAL_OPTIONS) for flag in row.flags
}
_TAKE_A_VALUE = {flag for flag, row in _ROWS.items() if row.kind != "flag"} | {
    flag for row in QUEUE_OPTIONS if row.kind != "flag" for flag in row.flags
}
_SPEC_ENDINGS = (".yaml", ".yml", ".json", ".json5", ".kdl", ".toml")


def split_spec(arguments: list[str]) -> tuple[str | None, list[str]]:
    """Returns the workflow file and the other arguments: it is the first word that is no option, if it
    looks like a file and is not behind `--`. Options may follow it."""
    index = first_word(arguments)
    if index is not None and arguments[index].endswith(_SPEC_ENDINGS):
        return arguments[index], arguments[:index] + arguments[index + 1 :]
    return None, arguments


def first_word(arguments: list[str]) -> int | None:
    """Returns the index of the first word that is no option; None if there is none, or it is behind `--`."""
    index = 0
    while index < len(arguments) and arguments[index] != "--":
        argument = arguments[index]
        if not argument.startswith("-") or argument == "-":
            return index
        index += 2 if argument in _TAKE_A_VALUE else 1
    return None


def parse(arguments: list[str]) -> dict[str, Any] | None:
    """Parses the arguments after `run` like click; None: click must parse them."""
    spec, arguments = split_spec(arguments)
    values: dict[str, Any] = {**defaults_of(_ROWS.values()), "spec": spec}
    index = 0
    while index < len(arguments) and arguments[index].startswith("-") and arguments[index] != "-":
        argument = arguments[index]
        index += 1
        if argument == "--":
            break
        flag, has_value, value = argument.partition("=") if argument.startswith("--") else (argument, "", "")
        row = _ROWS.get(flag)
        if row is None:
            return None
        if row.kind == "flag":
            if has_value:
                return None
            values[row.name] = True
            continue
        if not has_value:
            if index == len(arguments):
                return None
            value = arguments[index]
            index += 1
        if not _take(values, row, value):
            return None
    values["command_line"] = tuple(arguments[index:])
    if spec is not None and values["command_line"]:
        return None  # click reports the error
    return values


def _take(values: dict[str, Any], row: OptionRow, value: str) -> bool:
    """Returns False if click must handle the value."""
    if row.kind == "many":
        values[row.name] += (value,)
        return True
    if row.kind == "choice" and value not in row.choices:
        return False
    try:
        if row.kind == "number":
            values[row.name] = float(value)
        elif row.kind == "count":
            values[row.name] = int(value)
            return bool(row.least <= values[row.name] <= MOST_COUNT)
        else:
            values[row.name] = value
    except ValueError:
        return False
    return True
