"""`joblens rerun`: a new run that repeats part of an earlier one, or one job again."""

import os
import shlex
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from joblens.cli.context import Session
from joblens.cli.options.common import complete_run, shared_options
from joblens.cli.options.groups import RERUN_GROUPS, GroupedCommand
from joblens.cli.options.run import offer_options, take_queue_options, warn_of_other_broker, with_offer
from joblens.model.errors import InputError
from joblens.model.values.units import format_bytes, format_duration

if TYPE_CHECKING:
    from joblens.analysis.comparing.job_differences import Difference
    from joblens.app.driving.requests import RerunPart
    from joblens.app.runs.job_rerun import JobRerun
    from joblens.model.jobs.job import Job, Record
    from joblens.model.runs.run import Run


_OF_A_JOB = frozenset({"env", "cwd", "dry_run", "quiet", "engine"})
_MOST_SHOWN = 5  # per kind


def rerun_job(session: Session, record: "Record", values: dict[str, Any]) -> None:
    from joblens.app.jobs.preparation import parse_env
    from joblens.app.runs.job_rerun import prepare_rerun
    from joblens.cli.commands.run import run

    _refuse_options_of_runs(values)
    cwd = None if values["cwd"] is None else os.path.abspath(values["cwd"])
    again = prepare_rerun(record, session.current_store, session.settings, parse_env(values["env"]), cwd)
    if values["dry_run"]:
        _show_plan(session, again)
        return
    for text in (*again.notes, *described_differences(again.differences)):
        session.warn(text)
    run(
        session, {**options_of(again), **_engine(session, record, values["engine"]), "quiet": values["quiet"]}
    )


def _engine(session: Session, record: "Record", engine: str | None) -> dict[str, Any]:
    """Returns the options of the cluster that ran it, unless another engine was requested."""
    from joblens.app.driving.command_runs import cluster_options_of

    then = cluster_options_of(record, session.current_store)
    if then is None or engine not in (None, then.engine):
        return {"engine": engine}
    slurm = then.slurm
    needs = record.job.requirements
    return {
        "engine": then.engine,
        "address": then.address or None,
        "partition": slurm.partition or None,
        "account": slurm.account or None,
        "qos": slurm.qos or None,
        "constraint": slurm.constraint or None,
        "walltime": None if slurm.time_s is None else f"{slurm.time_s:g}s",
        "sbatch": slurm.options,
        "nodes": needs.nodes if then.engine == "slurm" else None,
    }


def _refuse_options_of_runs(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if name not in _OF_A_JOB and value not in (None, False, ()):
            raise InputError(f"--{name.replace('_', '-')} needs a run, not a job")


def described_differences(found: "tuple[Difference, ...]") -> list[str]:
    """Returns 'versions: numpy is 2.4, was 2.3'; of many of one kind, the first few and the number of the
    rest."""
    lines = []
    for group in dict.fromkeys(each.group for each in found):
        of_group = [each for each in found if each.group == group]
        texts = [
            f"{each.name} is {each.after or 'missing'}, was {each.before or 'missing'}"
            for each in of_group[:_MOST_SHOWN]
        ]
        if len(of_group) > _MOST_SHOWN:
            texts.append(f"and {len(of_group) - _MOST_SHOWN} more")
        lines.append(f"{group} changed: {'; '.join(texts)}")
    return lines


def options_of(again: "JobRerun") -> dict[str, Any]:
    """Returns options for `joblens run`, by their names."""
    from joblens.cli.options.request import options_of_container
    from joblens.cli.options.table import (
        GLOBAL_OPTIONS,
        JOB_OPTIONS,
        RUN_OPTIONS,
        SPEC_OPTIONS,
        defaults_of,
    )
    from joblens.probes.provenance.program_files import remembered_path

    job = again.record.job
    paths = [each.path for each in job.inputs if not each.is_guess]  # found again by itself
    return {
        **defaults_of((*JOB_OPTIONS, *RUN_OPTIONS, *SPEC_OPTIONS, *GLOBAL_OPTIONS)),
        "spec": None,
        "command_line": again.argv,
        "shell": again.shell,
        "cwd": again.cwd or None,
        "env": tuple(f"{name}={value}" for name, value in again.env.items()),
        "rerun_of": job.uuid,
        "inputs": tuple(path for path in paths if os.path.exists(remembered_path(path, again.cwd))),
        **_description(job),
        **_limits(job),
        **options_of_container(job.container),
    }


def _description(job: "Job") -> dict[str, Any]:
    from msgspec import json

    return {
        "name": job.name or None,
        "tool": job.tool,
        "script": job.script,
        "tags": job.tags,
        "params": (json.encode(job.params).decode(),) if job.params else (),
        "outputs": job.outputs,
        "granularity": str(job.granularity),
        "output_dir": job.output_dir or None,
    }


def _limits(job: "Job") -> dict[str, Any]:
    requirements, early = job.requirements, job.early_signal
    return {
        "cpus": requirements.cpus,
        "memory": None if requirements.memory_bytes is None else str(requirements.memory_bytes),
        "gpus": None if requirements.gpus is None else str(requirements.gpus),
        "pids": requirements.pids,
        "timeout": None if requirements.timeout_s is None else str(requirements.timeout_s),
        "early_signal": None if early is None else f"{early.signal}@{early.lead_s}",
        "grace": str(job.grace_s),
        "interval": str(job.interval_s),
        "no_enforce": not job.enforce,
        "no_monitor": not job.monitor,
        "accounting": str(job.accounting),
        "cpu_list": job.cpu_list or None,
        "probes": None if job.probes is None else ",".join(job.probes) or "none",
    }


def _show_plan(session: Session, again: "JobRerun") -> None:
    from joblens.model.redaction.secrets import redact_argv, redact_env
    from joblens.probes.provenance.program_files import as_text

    command = redact_argv(tuple(map(as_text, again.argv or (again.shell or "",))))
    env = redact_env(again.env)
    if session.json:
        from msgspec import to_builtins

        session.write_json(
            {
                "job_uuid": again.record.job.uuid,
                "command": command,
                "is_shell": again.shell is not None,
                "cwd": again.cwd,
                "env": env,
                "requirements": to_builtins(again.record.job.requirements),
                "differences": to_builtins(again.differences),
                "notes": again.notes,
            }
        )
        return
    requirements = again.record.job.requirements
    limits = [
        "" if requirements.cpus is None else f"--cpus {requirements.cpus:g}",
        "" if requirements.memory_bytes is None else f"--memory '{format_bytes(requirements.memory_bytes)}'",
        "" if requirements.timeout_s is None else f"--timeout {format_duration(requirements.timeout_s)}",
    ]
    line = shlex.join(command) if again.shell is None else command[0]
    lines = [
        f"would run: {line}",
        f"in: {again.cwd}" if again.cwd else "",
        *(f"with: {name}={value}" for name, value in sorted(env.items())),
        f"limits: {' '.join(filter(None, limits))}" if any(limits) else "",
        *again.notes,
        *(described_differences(again.differences) or ["no other differences are known"]),
    ]
    session.write_lines([text for text in lines if text])


@click.command(cls=GroupedCommand, groups=RERUN_GROUPS)
@click.argument("ident", metavar="RUN|JOB", shell_complete=complete_run)
@click.option("--failed", is_flag=True, help="Run jobs that did not succeed, and their dependents.")
@click.option(
    "--changed",
    is_flag=True,
    help="Run jobs whose definition, inputs or datasets have changed, and their dependents.",
)
@click.option("--all", "everything", is_flag=True, help="Run all jobs.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Run these jobs and their dependents: name, glob, label:…, regex:…. Repeatable.",
)
@click.option(
    "--env", multiple=True, metavar="K=V", help="Set an environment variable, such as a secret. Repeatable."
)
@click.option("--cwd", metavar="DIR", help="Working directory. Default: as recorded.")
@offer_options
@shared_options
def command(
    session: Session, /, ident: str, failed: bool, changed: bool, everything: bool, **values: Any
) -> None:
    """Start a new run of the same workflow that runs part of RUN again; the other jobs keep their
    results. --failed, --only and --all use the file as recorded, --changed uses the current file.

    With a JOB, run its command again in the foreground, with the same directory, limits, parameters and
    environment variables. Reports what has changed since.
    """
    from joblens.app.driving.requests import RerunPart
    from joblens.app.runs.lookup import find_job_or_run
    from joblens.cli.commands import on_server
    from joblens.model.jobs.job import Record

    session.own_runs()
    take_queue_options(session, values)
    found = find_job_or_run(session.current_store, ident, session.note, is_to_change=True)
    if isinstance(found, Record):
        if failed or changed or everything or values["only"]:
            raise InputError("--failed, --changed, --only and --all need a run, not a job")
        if session.server_url is not None:
            on_server.rerun_job(session, found, values)
        else:
            rerun_job(session, found, values)
        return
    if values["env"] or values["cwd"] is not None:
        raise InputError("--env and --cwd need a job, not a run")
    options = {"failed": failed, "changed": changed, "all": everything, "only": bool(values["only"])}
    if sum(options.values()) != 1:
        raise InputError("give one of --failed, --changed, --only or --all")
    part = RerunPart(next(name for name, is_set in options.items() if is_set))
    if session.server_url is not None:
        on_server.rerun_run(session, found, part, values)
    else:
        _run_again(session, found, part, values)


def _run_again(session: Session, base: "Run", part: "RerunPart", values: dict[str, Any]) -> None:
    from joblens.app.driving.requests import RerunPart, rerun_request
    from joblens.cli.commands.run_spec import carry_out

    request = rerun_request(
        session.store,
        base,
        session.settings,
        part,
        values["only"],
        lambda options: with_offer(options, values),
    )
    if part is not RerunPart.CHANGED:
        _warn_of_changed_file(session, base, request.loaded.text)
    if request.again is not None and request.again.is_empty:
        if session.json:
            session.write_json({"run": None, "base_run_uuid": base.uuid, "again": []})
        else:
            session.write("Nothing needs to run again\n")
        return
    options = request.options
    warnings = request.loaded.warnings_for(options.engine)  # of the current file
    if not values["quiet"]:
        for warning in warnings:
            session.warn(warning)
    warn_of_other_broker(session, options)
    request = replace(request, detach=values["detach"])
    workflow = session.store.find_workflow(base.workflow_uuid)
    notify = values["notify"] or options.notify
    carry_out(session, request, values, known=workflow, notify=notify, warnings=warnings)


def _warn_of_changed_file(session: Session, base: "Run", text: str) -> None:
    import shlex

    from joblens.analysis.runs.status import run_label
    from joblens.app.workflows.loader import changed_source

    source = changed_source(session.store, base, text)
    if source:
        session.warn(
            f"{source} has changed since run {run_label(base)}; the run repeats the recorded file; "
            f"joblens run {shlex.quote(source)} --rerun-changed uses the current file"
        )
