"""Expanded workflow file: a plan in the keys of the file, so that reading it gives the same plan."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from joblens.model.runs.plan import Plan, PlannedDataset, PlannedJob
from joblens.model.runs.workflow_spec import FileSpec
from joblens.plan.commands.parameters import Variables, with_variables

_CONSUMED = frozenset({"parameters", "parameters_file", "variables", "use_parameters", "parameter_mode"})
_JOB_CONSUMED = _CONSUMED | {
    "use_parameters_file",
    "blocked_by",
    "depends_on_regexes",
    "input_file_regexes",
    "output_file_regexes",
    "input_user_data_regexes",
    "output_user_data_regexes",
}


def expanded_form(
    written: Mapping[str, Any],
    plan: Plan,
    files: Sequence[FileSpec],
    env: Mapping[str, str],
    variables: Mapping[str, str],
) -> dict[str, Any]:
    """Returns the expanded file. `written`: content of the original; `files` and `env`: its file entries and
    shared environment after expansion."""
    known = Variables(variables)
    form: dict[str, Any] = {}
    for key, value in written.items():
        if key in _CONSUMED:
            continue
        match key:
            case "jobs":
                form[key] = [_job(value[job.spec_job], job, plan, env) for job in plan.jobs]
            case "env" if env:
                form[key] = dict(env)
            case "files":
                form[key] = [_file(file) for file in files]
            case "user_data":
                form[key] = [
                    {"name": each.name, "data": each.data, "is_ephemeral": each.is_ephemeral}
                    for each in plan.user_data
                ]
            case "datasets":
                form[key] = [_dataset(each) for each in plan.datasets]
            case _:
                form[key] = _filled(value, known)
    return form


def _filled(value: Any, known: Variables) -> Any:
    return with_variables(value, known, (), lambda _: None)


def _file(file: FileSpec) -> dict[str, Any]:
    form: dict[str, Any] = {"name": file.name, "path": file.path}
    if file.st_mtime is not None:
        form["st_mtime"] = file.st_mtime
    if file.identifier is not None:
        form["identifier"] = file.identifier
    return form


def _dataset(dataset: PlannedDataset) -> dict[str, Any]:
    form = {"name": dataset.name, "path": dataset.path, "hash_mode": dataset.hash_mode.value}
    return {**form, "description": dataset.description} if dataset.description else form


def _job(
    written: Mapping[str, Any], job: PlannedJob, plan: Plan, shared_env: Mapping[str, str]
) -> dict[str, Any]:
    form: dict[str, Any] = {"name": job.name, "command": job.command}
    expanded = {
        "invocation_script": job.invocation_script,
        "depends_on": _other_dependencies(job, plan),
        "input_files": [plan.files[index].name for index in job.input_files],
        "output_files": [plan.files[index].name for index in job.output_files],
        "input_user_data": [plan.user_data[index].name for index in job.input_user_data],
        "output_user_data": [plan.user_data[index].name for index in job.output_user_data],
        "input_datasets": [plan.datasets[index].name for index in job.input_datasets],
        "output_datasets": [plan.datasets[index].name for index in job.output_datasets],
        "env": _own_env(job, written, shared_env),
        "label": job.label,
        "scheduler": job.scheduler,
        "queue": job.queue,
    }
    form |= {key: value for key, value in expanded.items() if value}
    for key, value in written.items():
        if key in form or key in expanded or key in _JOB_CONSUMED:
            continue
        if key == "resource_requirements" and isinstance(value, str):
            form[key] = job.requirements_name
        elif key == "failure_handler" and job.failure_handler is not None:
            form[key] = job.failure_handler.name
        elif key == "container":
            form[key] = False if job.container is None else to_builtins(job.container)
        else:
            form[key] = value
    return form


def _other_dependencies(job: PlannedJob, plan: Plan) -> list[str]:
    """Returns dependencies besides the producers of its inputs, which follow from the files."""
    makers = {plan.files[index].producer for index in job.input_files}
    makers |= {plan.user_data[index].producer for index in job.input_user_data}
    makers.update(*(plan.datasets[index].producers for index in job.input_datasets))
    return [plan.jobs[index].name for index in job.depends_on if index not in makers]


def _own_env(job: PlannedJob, written: Mapping[str, Any], shared: Mapping[str, str]) -> dict[str, str]:
    if not written.get("env"):
        return {}
    return {name: text for name, text in job.env.items() if shared.get(name) != text}
