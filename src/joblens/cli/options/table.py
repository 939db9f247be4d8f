"""Option table of `run` and `submit` as data, and the fast parser of plain `joblens run` lines."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from joblens.model.delivery import RetryLost
from joblens.model.jobs.job import Accounting, Granularity

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


def _row(*flags: str, name: str = "", help: str, **more: object) -> OptionRow:
    plain = name or flags[-1].lstrip("-").replace("-", "_")
    return OptionRow(flags=flags, name=plain, help=help, **more)  # type: ignore[arg-type]


def _choice(flag: str, choices: Iterable[str], *, name: str = "", help: str, **more: object) -> OptionRow:
    values = tuple(str(each) for each in choices)
    return _row(flag, name=name, kind="choice", choices=values, help=help, **more)


JOB_OPTIONS = (
    _row("--name", metavar="TEXT", default="", help="Name in tables. Default: the command."),
    _row("--tool", metavar="TEXT", default="", help="Group for statistics. Default: the program."),
    _row("--script", metavar="TEXT", default="", help="Script name for the record."),
    _row(
        "--id", name="external_id", metavar="TEXT", help="Your own id for the job; works wherever an id does."
    ),
    _row(
        "-p",
        "--param",
        "--params",
        name="params",
        kind="many",
        metavar="K=V",
        help="Parameter to record, of a tool's script to pass (repeatable; or JSON: '{\"a\": 1}').",
    ),
    _row("--tag", name="tags", kind="many", metavar="TAG", help="Tag to find it by (repeatable)."),
    _row("--cpus", kind="number", metavar="N", help="CPUs it may use; 0.5 is half a core."),
    _row("--cpu-list", metavar="LIST", help="CPUs to bind it to: 0-3,8."),
    _row("--memory", metavar="SIZE", help="Memory it may use: 512m, 2g."),
    _row("--gpus", metavar="N", help="GPUs it needs (recorded)."),
    _row("--pids", kind="count", least=1, metavar="N", help="Processes and threads it may have."),
    _row("--timeout", metavar="TIME", help="End it after this long: 90, 30s, 1h30m."),
    _row(
        "--signal",
        name="early_signal",
        metavar="SIG@TIME",
        help="Signal some time before the time-out: USR1@60.",
    ),
    _row("--grace", metavar="TIME", help="Between asking it to end and killing it. Default: 10s."),
    _row("--no-enforce", kind="flag", help="Record requirements, hold the job to none of them."),
    _row("--interval", metavar="TIME", help="Between samples; at least 50ms. Default: 1s."),
    _row("--no-monitor", kind="flag", help="Take no samples; totals at the end only."),
    _row("--probes", metavar="LIST", help="What else to measure: all, none, names, +memory, -network."),
    _choice(
        "--granularity",
        Granularity,
        default=str(Granularity.SUMMARY),
        shows_default=True,
        help="time_series also writes <output dir>/resource_utilization/*.db.",
    ),
    _row("-o", "--output-dir", metavar="DIR", help="For the time-series file. Default: output."),
    _choice(
        "--accounting",
        Accounting,
        help="How to measure. Default: auto, the best this machine has.",
    ),
    _row("--cwd", metavar="DIR", help="Directory to run it in."),
    _row("--env", kind="many", metavar="K=V", help="Environment variable for it (repeatable)."),
    _row(
        "--input",
        name="inputs",
        kind="many",
        metavar="PATH",
        help="File it reads, or a pattern of some: kept with size and digest (repeatable).",
    ),
    _row(
        "--output",
        name="outputs",
        kind="many",
        metavar="PATH",
        help="File it makes, or a pattern of some: kept with size and digest at its end (repeatable).",
    ),
    _row("--container", metavar="IMAGE", help="Run it in a container made from this image."),
    _choice(
        "--container-engine",
        ("docker", "podman", "apptainer"),
        help="Which engine makes it. Default: docker or podman, the first that answers.",
    ),
    _row("--container-socket", metavar="PATH", help="Where the engine listens."),
    _row("--container-name", metavar="NAME", help="Name of the container. Default: the engine's choice."),
    _row(
        "--volume",
        name="volumes",
        kind="many",
        metavar="SRC:DST[:ro]",
        help="Folder or volume the container is given (repeatable).",
    ),
    _row(
        "--device",
        name="devices",
        kind="many",
        metavar="PATH",
        help="Device the container is given (repeatable); with submit TOOL also cpu, gpu or intel-gpu.",
    ),
    _row("--container-network", metavar="MODE", help="Its network: none, host, bridge or a name."),
    _row("--container-user", metavar="USER", help="User inside the container: NAME or UID[:GID]."),
    _row("--container-workdir", metavar="DIR", help="Directory inside the container to run it in."),
    _row("--entrypoint", metavar="PROGRAM", help="In place of the image's entrypoint."),
    _row("--pull", kind="flag", help="Fetch the image first when the engine does not have it."),
    _row("--shell", metavar="LINE", help="A shell line instead of a command: --shell 'a | b'."),
    _row(
        "--notify",
        metavar="CMD",
        help="Run this at the end, without a shell, with the record as JSON on its input.",
    ),
)
RUN_OPTIONS = (
    _row("--report", metavar="FILE", help="Write the record as JSON to this file."),
    _row("--no-capture", kind="flag", help="Do not keep what it prints; it inherits the streams."),
    _row("-q", "--quiet", kind="flag", help="No live line and no summary."),
    _row("-v", "--verbose", kind="flag", help="Print the summary even when not on a terminal."),
    _row("--queue", metavar="NAME", help="Queue of the workers that run it, with --engine celery."),
    _row("--broker", metavar="URL", help="Tell workers by this broker, with --engine celery."),
    _choice(
        "--retry-lost",
        RetryLost,
        help="When a job's worker is lost: safe: another takes it up; never: it ends as lost.",
    ),
)
ENGINE_OPTIONS = (
    _choice(
        "--engine",
        ("local", "celery", "ray", "slurm"),
        help="Who runs it: joblens here, workers of a queue, or a cluster. Default: local.",
    ),
    _row("--address", metavar="ADDRESS", help="Ray cluster to use: HOST:PORT, or auto."),
)
SLURM_OPTIONS = (
    _choice(
        "--packing",
        ("jobs", "allocations"),
        help="FILE: of Slurm: one sbatch for each job, or allocations that jobs share. Default: what suits.",
    ),
    _row("--partition", metavar="NAME", help="Partition of Slurm."),
    _row("--account", metavar="NAME", help="Account that Slurm charges."),
    _row("--qos", metavar="NAME", help="Quality of service, of Slurm."),
    _row("--constraint", metavar="FEATURES", help="Features that nodes of Slurm must have: 'a100&ib'."),
    _row("--nodes", kind="count", least=1, metavar="N", help="Nodes of the job, or of each allocation."),
    _row("--allocations", kind="count", least=1, metavar="N", help="FILE: how many allocations to ask for."),
    _row(
        "--walltime",
        metavar="TIME",
        help="Time limit of the Slurm job, or of each allocation: 90m, 2h, 02:00:00.",
    ),
    _row(
        "--sbatch",
        kind="many",
        metavar="OPTION",
        help="Another option for sbatch: --sbatch=--mail-type=FAIL (repeatable).",
    ),
)
# For `run FILE` and `submit FILE`; what JOB_OPTIONS has as well is said there for one command.
SPEC_OPTIONS = (
    _row("-j", "--jobs", kind="count", least=1, metavar="N", help="FILE: at most so many jobs at once."),
    _row(
        "--time", metavar="TIME", help="FILE: end the run after this long; start nothing that would not fit."
    ),
    _row(
        "--only",
        kind="many",
        metavar="JOB",
        help="FILE: just these jobs: name, glob or label:X (repeatable).",
    ),
    _row("--skip", kind="many", metavar="JOB", help="FILE: not these, nor what needs them."),
    _row("--until", kind="many", metavar="JOB", help="FILE: these and what they need."),
    _row(
        "--label",
        kind="many",
        metavar="LABEL",
        help="FILE: this run's own workers also run jobs with this label (repeatable). "
        "COMMAND on a queue: only workers with this label may run it.",
    ),
    _row(
        "--rerun-changed",
        kind="flag",
        help="FILE: only what has changed since it last succeeded, and what needs it.",
    ),
    _row("--dry-run", kind="flag", help="FILE: show what would run, and run nothing."),
    _row("--detach", kind="flag", help="FILE: in the background; prints the run's id."),
    _row("--no-resource-monitoring", kind="flag", help="FILE: take no samples."),
    _choice(
        "--on-interrupt",
        ("drain", "kill"),
        default="drain",
        help="FILE: what the first Ctrl-C does: let running jobs end, or end them. Default: drain.",
    ),
    *ENGINE_OPTIONS,
    *SLURM_OPTIONS,
)
# For `submit`; a job with any of the first three goes to workers of a queue.
QUEUE_OPTIONS = (
    _row("--queue", metavar="NAME", help="Give it to workers of this queue. Default: queue.name."),
    _row("--broker", metavar="URL", help="Tell workers by this broker: redis://…, amqp://… or a folder."),
    _choice(
        "--retry-lost",
        RetryLost,
        help="When its worker is lost: safe: another takes it up; never: it ends as lost.",
    ),
    _row(
        "--wait",
        kind="flag",
        help="Wait for it and print its result; the exit code is then the job's, or that of run FILE.",
    ),
    _row(
        "-t",
        "--wait-timeout",
        metavar="TIME",
        help="With --wait: give up after this long (exit code 124); the job continues.",
    ),
)
GLOBAL_OPTIONS = (
    _row(
        "--store",
        name="global_store",
        metavar="STORE",
        help="File or URL to keep jobs in (also: JOBLENS_STORE).",
    ),
    _row(
        "--config", name="global_config", metavar="FILE", help="Configuration file that wins over the others."
    ),
    _row("--json", name="global_json", kind="flag", help="Answer in JSON."),
    _choice(
        "--format",
        ("json", "text"),
        name="global_format",
        help="'json' is the same as --json.",
    ),
    _row("--no-color", name="global_no_color", kind="flag", help="No colours (also: NO_COLOR=1)."),
)


_ROWS = {
    flag: row for row in (*JOB_OPTIONS, *RUN_OPTIONS, *SPEC_OPTIONS, *GLOBAL_OPTIONS) for flag in row.flags
}
_TAKE_A_VALUE = {flag for flag, row in _ROWS.items() if row.kind != "flag"} | {
    flag for row in QUEUE_OPTIONS if row.kind != "flag" for flag in row.flags
}
_SPEC_ENDINGS = (".yaml", ".yml", ".json", ".json5", ".kdl", ".toml")


def split_spec(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The workflow file among the arguments, and the others: the first word that is no option, where it ends
    like one and does not stand behind `--`. Options may follow it."""
    place = first_word(arguments)
    if place is not None and arguments[place].endswith(_SPEC_ENDINGS):
        return arguments[place], arguments[:place] + arguments[place + 1 :]
    return None, arguments


def first_word(arguments: list[str]) -> int | None:
    """The place of the first word that is no option; None where there is none, or it stands behind `--`."""
    place = 0
    while place < len(arguments) and arguments[place] != "--":
        word = arguments[place]
        if not word.startswith("-") or word == "-":
            return place
        place += 2 if word in _TAKE_A_VALUE else 1
    return None


def parse(arguments: list[str]) -> dict[str, Any] | None:
    """What click would make of the arguments behind `run`; None: ask click."""
    spec, arguments = split_spec(arguments)
    given: dict[str, Any] = {row.name: _default(row) for row in _ROWS.values()}
    given["spec"] = spec
    place = 0
    while place < len(arguments) and arguments[place].startswith("-") and arguments[place] != "-":
        word = arguments[place]
        place += 1
        if word == "--":
            break
        flag, has_value, value = word.partition("=") if word.startswith("--") else (word, "", "")
        row = _ROWS.get(flag)
        if row is None:
            return None
        if row.kind == "flag":
            if has_value:
                return None
            given[row.name] = True
            continue
        if not has_value:
            if place == len(arguments):
                return None
            value = arguments[place]
            place += 1
        if not _take(given, row, value):
            return None
    given["command_line"] = tuple(arguments[place:])
    if spec is not None and given["command_line"]:
        return None  # click says what is wrong with it
    return given


def _default(row: OptionRow) -> Any:
    if row.kind == "flag":
        return False
    return () if row.kind == "many" else row.default


def _take(given: dict[str, Any], row: OptionRow, value: str) -> bool:
    """False: click has something to say about the value."""
    if row.kind == "many":
        given[row.name] += (value,)
        return True
    if row.kind == "choice" and value not in row.choices:
        return False
    try:
        if row.kind == "number":
            given[row.name] = float(value)
        elif row.kind == "count":
            given[row.name] = int(value)
            return bool(row.least <= given[row.name] <= MOST_COUNT)
        else:
            given[row.name] = value
    except ValueError:
        return False
    return True
