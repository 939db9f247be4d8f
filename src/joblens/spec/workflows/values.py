"""The values of a workflow's sections put together into what the model has for them."""

from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any

from joblens.model.runs.workflow_spec import (
    ActionSpec,
    DatasetSpec,
    ExecutionSpec,
    FailureHandler,
    FileSpec,
    JobSpec,
    MonitorSpec,
    RequirementsSpec,
    RetryRule,
    Stdio,
    UserDataSpec,
    WorkflowSpec,
)
from joblens.spec.keys.readers import Reader
from joblens.spec.keys.section_reader import SectionReader
from joblens.spec.keys.workflow import SECTIONS

_AMOUNT_FIELDS = frozenset({"num_cpus", "memory_bytes", "num_gpus", "num_nodes", "runtime_s"})
_NOTHING: dict[str, Any] = {}  # shared by all jobs that have none: nobody changes what was read
_SPEC_FIELDS = frozenset(WorkflowSpec.__struct_fields__)


def _requirements(values: dict[str, Any]) -> RequirementsSpec:
    return _shared_requirements(frozenset(values.items()))


@lru_cache(maxsize=4096)
def _shared_requirements(values: frozenset[tuple[str, Any]]) -> RequirementsSpec:
    return RequirementsSpec(**dict(values))


def _job(values: dict[str, Any]) -> JobSpec:
    if not _AMOUNT_FIELDS.isdisjoint(values):
        amounts = {field: values.pop(field) for field in _AMOUNT_FIELDS if field in values}
        values["requirements"] = _requirements(amounts)
    if "parameters" not in values:
        values["parameters"] = _NOTHING
    if "env" not in values:
        values["env"] = _NOTHING
    return JobSpec(**values)


def _monitor(values: dict[str, Any]) -> MonitorSpec:
    """What stands under `jobs` wins over the flat keys. The machine is not measured without the jobs."""
    jobs: dict[str, Any] = values.pop("jobs", _NOTHING)
    host: dict[str, Any] = values.pop("compute_node", _NOTHING)
    if values.get("enabled") is False:
        host = {**host, "host_enabled": False}
    return MonitorSpec(**{**values, **jobs, **host})


def _workflow(values: dict[str, Any]) -> WorkflowSpec:
    values.pop("$schema", None)
    other = {field: values.pop(field) for field in [*values] if field not in _SPEC_FIELDS}
    return WorkflowSpec(**values, other=other)


def _struct(struct: type[Any]) -> Callable[[dict[str, Any]], Any]:
    return partial(_make_struct, struct)


def _make_struct(struct: type[Any], values: dict[str, Any]) -> Any:
    return struct(**values)


_MAKERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "workflow": _workflow,
    "job": _job,
    "container": dict,
    "file": _struct(FileSpec),
    "user_data": _struct(UserDataSpec),
    "dataset": _struct(DatasetSpec),
    "resource_requirements": _requirements,
    "inline_requirements": _requirements,
    "failure_handler": _struct(FailureHandler),
    "rule": _struct(RetryRule),
    "action": _struct(ActionSpec),
    "resource_monitor": _monitor,
    "monitor_jobs": dict,
    "monitor_compute_node": dict,
    "execution_config": _struct(ExecutionSpec),
    "stdio": _struct(Stdio),
    "slurm_scheduler": dict,
    "dynamic_jobs": dict,
}


@cache
def section_reader(name: str) -> Reader:
    section = SECTIONS[name]
    below = {key.section for key in section.keys.values() if key.section}
    return SectionReader(section, _MAKERS[name], {inner: section_reader(inner) for inner in below})
