"""What can be said about a workflow that is valid: its size, and what may surprise whoever runs it."""

import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from joblens.app.specs import LoadedSpec
from joblens.model.job import Requirements
from joblens.model.plan import Plan
from joblens.model.units import format_bytes
from joblens.plan.graph import Graph
from joblens.probes.host import HostFacts, read_host

_MOST_NAMED = 3


class SpecCheck(Struct, frozen=True, kw_only=True):
    """`largest`: the most that any one job needs of each, from what was written."""

    jobs: int
    stages: int
    largest: Requirements
    warnings: tuple[str, ...] = ()


def check_spec(loaded: LoadedSpec, host: HostFacts | None = None) -> SpecCheck:
    """`host`: the machine it would run on; None: this one."""
    plan = loaded.plan
    return SpecCheck(
        jobs=len(plan.jobs),
        stages=len(Graph(plan).stages()),
        largest=_largest(plan),
        warnings=(
            *_without_requirements(plan),
            *_too_large(plan, host or read_host()),
            *_of_several_nodes(plan),
            *_left_over(loaded),
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
    shown = ", ".join(f"'{name}'" for name in names[:_MOST_NAMED])
    return f"{shown} and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else shown


def _without_requirements(plan: Plan) -> list[str]:
    names = [job.name for job in plan.jobs if job.requirements == Requirements()]
    if not names:
        return []
    return [f"no resource_requirements: {_named(names)}; packed as 1 CPU and 1 MiB, never limited"]


def _too_large(plan: Plan, host: HostFacts) -> list[str]:
    warnings = []
    cpus, memory = host.cpu_count, host.memory_total_bytes
    if cpus is not None:
        names = [job.name for job in plan.jobs if (job.requirements.cpus or 0) > cpus]
        if names:
            warnings.append(f"more CPUs than the {cpus:g} of this machine: {_named(names)}")
    if memory is not None:
        names = [job.name for job in plan.jobs if (job.requirements.memory_bytes or 0) > memory]
        if names:
            warnings.append(f"more memory than the {format_bytes(memory)} of this machine: {_named(names)}")
    return warnings


def _of_several_nodes(plan: Plan) -> list[str]:
    names = [job.name for job in plan.jobs if (job.requirements.nodes or 1) > 1]
    return [f"more than one node: {_named(names)}; here each runs on this one"] if names else []


def _left_over(loaded: LoadedSpec) -> list[str]:
    """A shared parameter that an entry has in its texts and not in use_parameters stays as written."""
    warnings = []
    for job in loaded.spec.jobs:
        names = _shared_inside(job.name + job.command, loaded.spec.parameters)
        used = {*(job.use_parameters or ()), *job.parameters}
        unused = [name for name in names if name not in used]
        if unused:
            told = ", ".join(f"{{{name}}}" for name in unused)
            warnings.append(f"job '{job.name}' has {told} but does not name it in use_parameters")
    return warnings


def _shared_inside(text: str, shared: Mapping[str, Any]) -> list[str]:
    return [name for name in shared if f"{{{name}}}" in text or f"{{{name}:" in text]


def _missing_inputs(plan: Plan) -> list[str]:
    read = {place for job in plan.jobs for place in job.input_files if plan.files[place].producer < 0}
    missing = [plan.files[place].path for place in sorted(read) if not os.path.exists(plan.files[place].path)]
    return [f"no job makes these input files, and they are not there: {_named(missing)}"] if missing else []
