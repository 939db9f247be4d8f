"""`joblens rerun JOB`: one command again, as it was, and what is different now."""

import os
import shlex
from typing import TYPE_CHECKING, Any

from joblens.cli.context import Session
from joblens.model.errors import InputError
from joblens.model.values.units import format_bytes, format_duration

if TYPE_CHECKING:
    from joblens.analysis.comparing.job_diff_values import Difference
    from joblens.app.runs.job_again import JobAgain
    from joblens.model.jobs.job import Job, Record

_OF_A_JOB = frozenset({"env", "cwd", "dry_run", "quiet", "engine"})
_MOST_TOLD = 5  # of one kind


def rerun_job(session: Session, record: "Record", given: dict[str, Any]) -> None:
    from joblens.app.jobs.preparation import parse_env
    from joblens.app.runs.job_again import job_again
    from joblens.cli.commands.run import run

    _refuse_options_of_runs(given)
    cwd = None if given["cwd"] is None else os.path.abspath(given["cwd"])
    again = job_again(record, session.current_store, session.settings, parse_env(given["env"]), cwd)
    if given["dry_run"]:
        _tell(session, again)
        return
    for text in (*again.notes, *told_differences(again.differences)):
        session.warn(text)
    run(session, {**options_of(again), **_engine(session, record, given["engine"]), "quiet": given["quiet"]})


def _engine(session: Session, record: "Record", asked: str | None) -> dict[str, Any]:
    """Options of the cluster that ran it, unless another engine was asked for."""
    from joblens.app.driving.command_runs import cluster_options_of

    then = cluster_options_of(record, session.current_store)
    if then is None or asked not in (None, then.engine):
        return {"engine": asked}
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


def _refuse_options_of_runs(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if name not in _OF_A_JOB and value not in (None, False, ()):
            raise InputError(f"--{name.replace('_', '-')} goes with a run, not with a job")


def told_differences(found: "tuple[Difference, ...]") -> list[str]:
    """'versions: numpy is 2.4, was 2.3'; of many of one kind the first few and how many more."""
    lines = []
    for group in dict.fromkeys(each.group for each in found):
        of_group = [each for each in found if each.group == group]
        told = [
            f"{each.name} is {each.after or 'not there'}, was {each.before or 'not there'}"
            for each in of_group[:_MOST_TOLD]
        ]
        if len(of_group) > _MOST_TOLD:
            told.append(f"and {len(of_group) - _MOST_TOLD} more")
        lines.append(f"{group} not as then: {'; '.join(told)}")
    return lines


def options_of(again: "JobAgain") -> dict[str, Any]:
    """As `joblens run` takes them, by their names."""
    from joblens.cli.options.job_request import options_of_container
    from joblens.cli.options.table import GLOBAL_OPTIONS, JOB_OPTIONS, RUN_OPTIONS, SPEC_OPTIONS
    from joblens.probes.provenance.file_names import remembered_path

    rows = (*JOB_OPTIONS, *RUN_OPTIONS, *SPEC_OPTIONS, *GLOBAL_OPTIONS)
    given: dict[str, Any] = {
        row.name: False if row.kind == "flag" else () if row.kind == "many" else row.default for row in rows
    }
    job = again.record.job
    paths = [each.path for each in job.inputs if not each.is_guess]  # those are found again
    return {
        **given,
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
        "name": job.name,
        "tool": job.tool,
        "script": job.script,
        "tags": job.tags,
        "params": (json.encode(job.params).decode(),) if job.params else (),
        "outputs": job.outputs,
        "granularity": str(job.granularity),
        "output_dir": job.output_dir or None,
    }


def _limits(job: "Job") -> dict[str, Any]:
    asked, early = job.requirements, job.early_signal
    return {
        "cpus": asked.cpus,
        "memory": None if asked.memory_bytes is None else str(asked.memory_bytes),
        "gpus": None if asked.gpus is None else str(asked.gpus),
        "pids": asked.pids,
        "timeout": None if asked.timeout_s is None else str(asked.timeout_s),
        "early_signal": None if early is None else f"{early.signal}@{early.lead_s}",
        "grace": str(job.grace_s),
        "interval": str(job.interval_s),
        "no_enforce": not job.enforce,
        "no_monitor": not job.monitor,
        "accounting": str(job.accounting),
        "cpu_list": job.cpu_list or None,
        "probes": None if job.probes is None else ",".join(job.probes) or "none",
    }


def _tell(session: Session, again: "JobAgain") -> None:
    from joblens.app.jobs.preparation import as_text
    from joblens.model.redaction.secrets import redact_argv, redact_env

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
    asked = again.record.job.requirements
    limits = [
        "" if asked.cpus is None else f"--cpus {asked.cpus:g}",
        "" if asked.memory_bytes is None else f"--memory '{format_bytes(asked.memory_bytes)}'",
        "" if asked.timeout_s is None else f"--timeout {format_duration(asked.timeout_s)}",
    ]
    line = shlex.join(command) if again.shell is None else command[0]
    lines = [
        f"would run: {line}",
        f"in: {again.cwd}" if again.cwd else "",
        *(f"with: {name}={value}" for name, value in sorted(env.items())),
        f"held to: {' '.join(filter(None, limits))}" if any(limits) else "",
        *again.notes,
        *(told_differences(again.differences) or ["nothing else is known to be different now"]),
    ]
    session.write_lines([text for text in lines if text])
