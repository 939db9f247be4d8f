"""On what terms a run asks Slurm: what the command line, the spec's scheduler, its defaults and the settings
say together, the first of them first."""

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from joblens.model.errors import InputError, PlanError
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import SlurmChoice
from joblens.model.settings import SlurmSettings
from joblens.plan.slurm.amounts import (
    format_memory,
    format_walltime,
    gpus_in,
    parse_memory,
    parse_walltime,
    with_gpus,
)
from joblens.plan.slurm.sbatch_words import (
    DECIDED_HERE,
    Options,
    merged,
    read_defaults,
    read_text,
    read_texts,
)

AGENT_TIME_S = 60.0  # for a worker to come up, and to bring away what it has measured
_USUAL_WALLTIME_S = 3600.0


class Terms(Struct, frozen=True, kw_only=True):
    """Of one scheduler, or of none ('')."""

    scheduler: str = ""
    below: Options = field(default_factory=dict)  # settings and slurm_defaults
    written: Options = field(default_factory=dict)  # by the scheduler
    above: Options = field(default_factory=dict)  # by the command line
    nodes: int = 1  # of an allocation
    walltime_s: float | None = None  # of an allocation, as written; None: what suits
    is_walltime_usual: bool = False  # nobody has written it: less will do, too
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
        """As written, for a node."""
        return merged(self.below, self.written, self.above).get("mem", "")

    @property
    def memory_bytes(self) -> int | None:
        """None: not written, or 0, which is all that a node has."""
        return memory_asked({"mem": self.memory})

    @property
    def gres(self) -> str:
        return merged(self.below, self.written, self.above).get("gres", "")


class Headroom(Struct, frozen=True, kw_only=True):
    """What is asked for beyond what the jobs themselves need."""

    memory_bytes: int  # for the worker beside them
    lead_s: float  # before the end of an allocation, in which jobs are ended and accounted for


def all_terms(plan: Plan, choice: SlurmChoice, settings: SlurmSettings) -> tuple[dict[str, Terms], list[str]]:
    """Terms by the name of the scheduler; '' for jobs that name none. Second: what is left aside, and why."""
    warnings: list[str] = []
    above = _chosen(choice)
    below = merged(
        _settled(settings), _usable(read_defaults(plan.slurm_defaults), "slurm_defaults", warnings)
    )
    terms = {}
    for place, scheduler in enumerate(plan.slurm_schedulers):
        name = str(scheduler.get("name") or "")
        where = f"scheduler '{name}'" if name else f"scheduler {place + 1}"
        terms[name] = _of_scheduler(scheduler, where, below, above, choice, warnings)
    if "" not in terms:
        # One scheduler is meant by everybody.
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


def _settled(settings: SlurmSettings) -> Options:
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
    """For one job by itself. What it needs wins over what its scheduler says of allocations; `time_limit_s`:
    of the partition."""
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
    # A job that just fits into its partition is not refused for what joblens would like beside it.
    return wanted_s if time_limit_s is None else max(min(wanted_s, time_limit_s), needs.timeout_s)


def _tasks_per_node(terms: Terms) -> int:
    word = merged(terms.below, terms.written, terms.above).get("ntasks-per-node", "1")
    return int(word) if word.isdecimal() and int(word) > 0 else 1


class AllocationSize(Struct, frozen=True, kw_only=True):
    """Of each node of an allocation, where the scheduler does not say."""

    nodes: int
    cpus: int
    memory_bytes: int | None
    gpus: int
    time_s: float | None


def allocation_options(terms: Terms, size: AllocationSize) -> Options:
    """The scheduler's own words win over what was worked out, and the command line's over those."""
    asked: Options = {"nodes": str(size.nodes), "ntasks-per-node": "1", "cpus-per-task": str(size.cpus)}
    if size.memory_bytes is not None:
        asked["mem"] = format_memory(size.memory_bytes)
    if size.gpus:
        asked["gres"] = f"gpu:{size.gpus}"
    if size.time_s is not None:
        asked["time"] = format_walltime(size.time_s)
    said = merged(terms.below, terms.written, terms.above)
    if "ntasks-per-node" in said or "ntasks" in said or "exclusive" in said:
        del asked["cpus-per-task"]  # who says how many tasks there are says how many CPUs
    return merged(asked, said)


def seconds_asked(options: Mapping[str, str]) -> float | None:
    return parse_walltime(options["time"]) if options.get("time") else None


def memory_asked(options: Mapping[str, str]) -> int | None:
    """A node; 0 means all of it, which is not known here."""
    amount = parse_memory(options["mem"]) if options.get("mem") else 0
    return amount or None
