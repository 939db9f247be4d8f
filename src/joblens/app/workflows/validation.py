"""Validation notes on a valid workflow: its size, its scripts, and possible surprises."""

import os
import re
from typing import Any

from msgspec import Struct

from joblens.app.jobs.requests import current_dir
from joblens.app.wiring.machine import machine_offer
from joblens.app.workflows.loader import LoadedSpec
from joblens.engine.schedule.capacity import RunCapacity
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import RunOptions
from joblens.model.values.units import format_bytes, listed
from joblens.plan.workflows.graph import Graph

_SCRIPT = re.compile(r"[\w.][\w./-]*")
_ENDINGS = (".py", ".sh", ".bash", ".r", ".R", ".jl", ".pl", ".rb", ".js", ".m")


def misplaced_scripts(plan: Plan, spec_path: str, cwd: str) -> list[str]:
    """Returns a warning about scripts that are not in `cwd` but next to the file."""
    folder = os.path.dirname(os.path.abspath(spec_path))
    if os.path.realpath(folder) == os.path.realpath(cwd):
        return []
    seen: set[str] = set()
    for job in plan.jobs:
        for argument in _scripts(job.command):
            if argument in seen:
                continue
            seen.add(argument)
            if not os.path.exists(os.path.join(cwd, argument)) and os.path.exists(
                os.path.join(folder, argument)
            ):
                where = f"{argument}, which is next to the file, not in this directory"
                go = f"commands run in the current directory: cd {os.path.relpath(folder, cwd)} first"
                return [f"job '{job.name}' names {where}; {go}"]
    return []


def _scripts(command: str) -> list[str]:
    """Returns programs or scripts with a relative path."""
    words = command.split()
    found = [argument for argument in words if argument.endswith(_ENDINGS) and _SCRIPT.fullmatch(argument)]
    if words and "/" in words[0] and _SCRIPT.fullmatch(words[0]):
        found.append(words[0])
    return found


_MOST_NAMED = 3


class SpecCheck(Struct, frozen=True, kw_only=True):
    """`largest`: the most that any job needs of each resource."""

    jobs: int
    stages: int
    largest: Requirements
    warnings: tuple[str, ...] = ()


def check_spec(loaded: LoadedSpec, offer: RunCapacity | None = None, engine: str = "local") -> SpecCheck:
    """`offer`: capacity of its run; None: that of this machine. `engine`: of that run."""
    plan = loaded.plan
    return SpecCheck(
        jobs=len(plan.jobs),
        stages=len(Graph(plan).stages()),
        largest=_largest(plan),
        warnings=(
            *_without_requirements(plan),
            *_too_large(plan, offer or machine_offer(RunOptions())),
            *loaded.warnings_for(engine),
            *misplaced_scripts(plan, loaded.path, current_dir()),
            *_missing_inputs(plan),
        ),
    )


def _largest(plan: Plan) -> Requirements:
    shapes = {id(job.requirements): job.requirements for job in plan.jobs}.values()

    def most(numbers: list[Any]) -> Any:
        return max((number for number in numbers if number is not None), default=None)

    return Requirements(
        cpus=most([each.cpus for each in shapes]),
        memory_bytes=most([each.memory_bytes for each in shapes]),
        gpus=most([each.gpus for each in shapes]),
        timeout_s=most([each.timeout_s for each in shapes]),
    )


def _named(names: list[str]) -> str:
    return listed(names, _MOST_NAMED, lambda name: f"'{name}'")


def _without_requirements(plan: Plan) -> list[str]:
    names = [job.name for job in plan.jobs if job.requirements == Requirements()]
    if not names:
        return []
    return [f"no resource_requirements: {_named(names)}; packed as 1 CPU and 1 MiB, never limited"]


def _too_large(plan: Plan, offer: RunCapacity) -> list[str]:
    """Uses the capacity of a run, so that `run` refuses exactly the jobs with warnings."""
    warnings = []
    names = [job.name for job in plan.jobs if (job.requirements.cpus or 0) > offer.cpus]
    if names:
        warnings.append(f"more CPUs than the {offer.cpus:g} available on this machine: {_named(names)}")
    names = [job.name for job in plan.jobs if (job.requirements.memory_bytes or 0) > offer.memory_bytes]
    if names:
        memory = format_bytes(offer.memory_bytes)
        warnings.append(f"more memory than the {memory} available on this machine: {_named(names)}")
    return warnings


def _missing_inputs(plan: Plan) -> list[str]:
    read = {index for job in plan.jobs for index in job.input_files if plan.files[index].producer < 0}
    missing = [plan.files[index].path for index in sorted(read) if not os.path.exists(plan.files[index].path)]
    lines = [f"these input files do not exist, and no job creates them: {_named(missing)}"] if missing else []
    unproduced = {
        index for job in plan.jobs for index in job.input_datasets if not plan.datasets[index].producers
    }
    absent = [path for index in sorted(unproduced) if not os.path.exists(path := plan.datasets[index].path)]
    if absent:
        lines.append(f"these datasets do not exist, and no job creates them: {_named(absent)}")
    return lines
