"""Slurm terms of a run: sbatch options from command line, spec and settings."""

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from joblens.model.clusters.slurm_notation import (
    format_memory,
    format_walltime,
    gpus_in,
    parse_memory,
    parse_walltime,
    with_gpus,
)
from joblens.model.errors import InputError, PlanError
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import SlurmChoice
from joblens.model.settings import SlurmSettings

Options = dict[str, str]  # by long name, with dashes; '': it takes no value

_SHORT = {
    "A": "account", "B": "extra-node-info", "C": "constraint", "c": "cpus-per-task", "d": "dependency",
    "D": "chdir", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "i": "input", "J": "job-name",
    "k": "no-kill", "L": "licenses", "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks",
    "O": "overcommit", "o": "output", "p": "partition", "q": "qos", "Q": "quiet", "s": "oversubscribe",
    "S": "core-spec", "t": "time", "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_FLAGS = frozenset(
    (
        *("contiguous", "exclusive", "get-user-env", "hold", "ignore-pbs", "no-kill", "no-requeue"),
        *("overcommit", "oversubscribe", "parsable", "quiet", "reboot", "requeue", "spread-job", "stepmgr"),
        *("test-only", "use-min-nodes", "verbose", "wait"),
    )
)

# Options that joblens sets itself, and how to influence each.
DECIDED_HERE = {
    "array": "jobs of a sweep go into arrays by themselves",
    "chdir": "every job has its own working directory",
    "cluster": "a run has one cluster: choose it with SLURM_CLUSTERS or SLURM_CONF",
    "clusters": "a run has one cluster: choose it with SLURM_CLUSTERS or SLURM_CONF",
    "comment": "it says which run it is",
    "error": "what jobs print goes where the run's output goes",
    "input": "jobs read nothing",
    "job-name": "it is the name of the job",
    "name": "it is the name of the job",
    "nodes": "num_nodes of the job, nodes of the scheduler and --nodes say that",
    "no-requeue": "jobs that were lost are resubmitted by joblens",
    "open-mode": "what jobs print goes where the run's output goes",
    "output": "what jobs print goes where the run's output goes",
    "parsable": "joblens reads what sbatch prints",
    "quiet": "joblens reads what sbatch prints",
    "requeue": "jobs that were lost are resubmitted by joblens",
    "signal": "sigkill_headroom_seconds signals workers in time",
    "test-only": "joblens run --dry-run shows what would run",
    "verbose": "joblens reads what sbatch prints",
    "wait": "joblens run waits, joblens submit does not",
    "wrap": "jobs have their own commands",
}

# Compared with Slurm's own limits before a request.
CHECKED_WORDS = frozenset({"nodes", "cpus-per-task", "ntasks-per-node", "mem", "time", "gres", "partition"})

_MEMORY = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
_GPUS = frozenset({"gres", "gpus", "gpus-per-node", "gpus-per-task"})
_RIVALS = {name: group - {name} for group in (_MEMORY, _GPUS) for name in group}


def read_words(words: Sequence[str]) -> Options:
    """Parses '--constraint=ib', '--constraint ib', '-C ib', '-Cib', '--exclusive'. Raises InputError."""
    options: Options = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            has_value = bool(equals)
        elif word.startswith("-") and word[1:2] in _SHORT:
            name, value = _SHORT[word[1]], word[2:].removeprefix("=")
            has_value = bool(value)
        else:
            raise InputError(f"'{word}' is no option of sbatch", hint="write them as --constraint=ib")
        if not has_value and name not in _FLAGS and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        options[name] = value
    return options


def read_text(text: str) -> Options:
    """Parses several options in one text, as in `extra` of a scheduler."""
    try:
        return read_words(shlex.split(text))
    except ValueError as error:
        raise InputError(f"'{text}' cannot be read as options of sbatch: {error}") from error


def read_texts(texts: Iterable[str]) -> Options:
    """Parses texts of the command line, one option each."""
    return {name: value for text in texts for name, value in read_text(text).items()}


def read_defaults(defaults: Mapping[str, Any]) -> Options:
    """Parses `slurm_defaults`: false values are omitted."""
    options: Options = {}
    for name, value in defaults.items():
        if value is not None and value is not False:
            options[name.replace("_", "-")] = "" if value is True else str(value)
    return options


def merged(*layers: Mapping[str, str]) -> Options:
    """Merges options. Later ones take precedence, also over an option with the same meaning (--mem,
    --mem-per-cpu)."""
    options: Options = {}
    for layer in layers:
        for name, value in layer.items():
            for rival in _RIVALS.get(name, ()):
                if rival not in layer:
                    options.pop(rival, None)
            options[name] = value
    return options


def as_arguments(options: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" if value else f"--{name}" for name, value in options.items()]


AGENT_TIME_S = 60.0  # for a worker to start, and to send its measurements
_USUAL_WALLTIME_S = 3600.0


class Terms(Struct, frozen=True, kw_only=True):
    """Terms of one scheduler, or of none ('')."""

    scheduler: str = ""
    below: Options = field(default_factory=dict)  # settings and slurm_defaults
    written: Options = field(default_factory=dict)  # by the scheduler
    above: Options = field(default_factory=dict)  # by the command line
    nodes: int = 1  # of an allocation
    walltime_s: float | None = None  # of an allocation, as written; None: chosen by the demand
    is_walltime_usual: bool = False  # a default: less is sufficient, too
    is_serial: bool = False  # one allocation at a time

    def walltime_within(self, limit_s: float | None) -> float | None:
        if self.walltime_s is None or limit_s is None or not self.is_walltime_usual:
            return self.walltime_s
        return min(self.walltime_s, limit_s)

    @property
    def partition(self) -> str:
        return merged(self.below, self.written, self.above).get("partition", "")

    @property
    def memory(self) -> str:
        """Memory per node, as written."""
        return merged(self.below, self.written, self.above).get("mem", "")

    @property
    def memory_bytes(self) -> int | None:
        """Returns None if it is not written, or 0, which means all of a node."""
        return memory_asked({"mem": self.memory})

    @property
    def gres(self) -> str:
        return merged(self.below, self.written, self.above).get("gres", "")


class Headroom(Struct, frozen=True, kw_only=True):
    """Resources requested beyond the needs of the jobs."""

    memory_bytes: int  # for the worker beside them
    lead_s: float  # before the end of an allocation, in which jobs are stopped and recorded


def all_terms(plan: Plan, choice: SlurmChoice, settings: SlurmSettings) -> tuple[dict[str, Terms], list[str]]:
    """Returns terms by the name of the scheduler ('' for jobs that name none), and messages about unused
    options."""
    warnings: list[str] = []
    above = _chosen(choice)
    below = merged(
        _from_settings(settings), _usable(read_defaults(plan.slurm_defaults), "slurm_defaults", warnings)
    )
    terms = {}
    for index, scheduler in enumerate(plan.slurm_schedulers):
        name = str(scheduler.get("name") or "")
        where = f"scheduler '{name}'" if name else f"scheduler {index + 1}"
        terms[name] = _of_scheduler(scheduler, where, below, above, choice, warnings)
    if "" not in terms:
        # A single scheduler applies to all jobs.
        only = next(iter(terms.values())) if len(terms) == 1 else None
        terms[""] = only or Terms(below=below, above=above, nodes=choice.nodes or 1, walltime_s=choice.time_s)
    return terms, warnings


def _chosen(choice: SlurmChoice) -> Options:
    try:
        options = read_texts(choice.options)
    except InputError as error:
        raise PlanError(f"--sbatch {error}", hint=error.hint) from error
    for name in options:
        if name in DECIDED_HERE:
            raise PlanError(f"--sbatch --{name} cannot be chosen: {DECIDED_HERE[name]}")
    named = {
        "partition": choice.partition,
        "account": choice.account,
        "qos": choice.qos,
        "constraint": choice.constraint,
    }
    return merged(options, {name: value for name, value in named.items() if value})


def _from_settings(settings: SlurmSettings) -> Options:
    named = {
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "constraint": settings.constraint,
    }
    return {name: value for name, value in named.items() if value}


def _usable(options: Options, where: str, warnings: list[str]) -> Options:
    warnings += [
        f"{where}: {name} is not used: {DECIDED_HERE[name]}" for name in options if name in DECIDED_HERE
    ]
    return {name: value for name, value in options.items() if name not in DECIDED_HERE}


def _of_scheduler(
    scheduler: Mapping[str, Any],
    where: str,
    below: Options,
    above: Options,
    choice: SlurmChoice,
    warnings: list[str],
) -> Terms:
    written: Options = {}
    for key, option in (
        ("account", "account"),
        ("partition", "partition"),
        ("qos", "qos"),
        ("mem", "mem"),
        ("gres", "gres"),
        ("ntasks_per_node", "ntasks-per-node"),
        ("tmp", "tmp"),
    ):
        if scheduler.get(key) is not None:
            written[option] = str(scheduler[key])
    if scheduler.get("extra"):
        try:
            extra = read_text(str(scheduler["extra"]))
        except InputError as error:
            raise PlanError(f"{where}: extra: {error}", hint=error.hint) from error
        written = merged(written, _usable(extra, where, warnings))
    walltime = scheduler.get("walltime")
    walltime_s = _USUAL_WALLTIME_S if walltime is None else parse_walltime(str(walltime))
    is_usual = walltime is None and choice.time_s is None
    return Terms(
        scheduler=str(scheduler.get("name") or ""),
        below=below,
        written=written,
        above=above,
        nodes=choice.nodes or int(scheduler.get("nodes") or 1),
        walltime_s=choice.time_s if choice.time_s is not None else walltime_s,
        is_walltime_usual=is_usual,
        is_serial=bool(scheduler.get("serialize_allocations")),
    )


# ---- amounts --------------------------------------------------------------------------------------------


def job_options(terms: Terms, needs: Requirements, headroom: Headroom, time_limit_s: float | None) -> Options:
    """Returns the options of one job by itself. Its requirements override the scheduler's allocation options;
    `time_limit_s`: of the partition."""
    asked: Options = {"nodes": str(needs.nodes or 1)}
    tasks = _tasks_per_node(terms)
    if needs.cpus is not None or tasks == 1:
        asked["cpus-per-task"] = str(max(1, math.ceil((needs.cpus or 1) / tasks)))
    asked["ntasks-per-node"] = str(tasks)
    if needs.memory_bytes is not None:
        asked["mem"] = format_memory(needs.memory_bytes + headroom.memory_bytes)
    if needs.gpus is not None and (needs.gpus or gpus_in(terms.gres)):
        asked["gres"] = with_gpus(terms.gres, needs.gpus)
    time_s = _job_time(terms, needs, headroom, time_limit_s)
    if time_s is not None:
        asked["time"] = format_walltime(time_s)
    options = merged(terms.below, terms.written, asked, terms.above)
    return {name: value for name, value in options.items() if name != "gres" or value}


def _job_time(
    terms: Terms, needs: Requirements, headroom: Headroom, time_limit_s: float | None
) -> float | None:
    if needs.timeout_s is None:
        return terms.walltime_within(time_limit_s)
    wanted_s = needs.timeout_s + headroom.lead_s + AGENT_TIME_S
    # A job that just fits into its partition is not refused because of the headroom.
    return wanted_s if time_limit_s is None else max(min(wanted_s, time_limit_s), needs.timeout_s)


def _tasks_per_node(terms: Terms) -> int:
    word = merged(terms.below, terms.written, terms.above).get("ntasks-per-node", "1")
    return int(word) if word.isdecimal() and int(word) > 0 else 1


class AllocationSize(Struct, frozen=True, kw_only=True):
    """Size of each node of an allocation, if the scheduler does not set it."""

    nodes: int
    cpus: int
    memory_bytes: int | None
    gpus: int
    time_s: float | None


def allocation_options(terms: Terms, size: AllocationSize) -> Options:
    """Returns the options of an allocation: computed ones, overridden by those of the scheduler, and both by
    those of the command line."""
    asked: Options = {"nodes": str(size.nodes), "ntasks-per-node": "1", "cpus-per-task": str(size.cpus)}
    if size.memory_bytes is not None:
        asked["mem"] = format_memory(size.memory_bytes)
    if size.gpus:
        asked["gres"] = f"gpu:{size.gpus}"
    if size.time_s is not None:
        asked["time"] = format_walltime(size.time_s)
    chosen = merged(terms.below, terms.written, terms.above)
    if "ntasks-per-node" in chosen or "ntasks" in chosen or "exclusive" in chosen:
        del asked["cpus-per-task"]  # the number of tasks determines the number of CPUs
    return merged(asked, chosen)


def seconds_asked(options: Mapping[str, str]) -> float | None:
    return parse_walltime(options["time"]) if options.get("time") else None


def memory_asked(options: Mapping[str, str]) -> int | None:
    """Returns memory per node; None for 0, which means all of it."""
    amount = parse_memory(options["mem"]) if options.get("mem") else 0
    return amount or None
