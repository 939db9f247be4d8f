"""Rerun of one job: its request, missing parts of it, and changes since."""

import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.analysis.comparing.job_diff import label_of
from joblens.analysis.comparing.job_differences import Difference
from joblens.app.jobs.queries import provenance_of
from joblens.model.errors import InputError, JoblensError
from joblens.model.jobs.job import Job, Record, is_of_workflow
from joblens.model.jobs.trace import TRACE_VARIABLE
from joblens.model.redaction.names import is_lasting_env
from joblens.model.redaction.secrets import REDACTED
from joblens.model.runs.plan import PlannedJob
from joblens.model.settings import Settings
from joblens.ports.store import Store
from joblens.probes.provenance.program_files import remembered_name, shell_of_workflows

# Of a person or a session: the present values are used.
_CURRENT_ONLY = frozenset({"HOME", "USER", "TMPDIR", "TMP", "TEMP"})
_GROUPS = ("inputs", "code", "programs", "versions", "environment", "machine")


class JobRerun(Struct, frozen=True, kw_only=True):
    """Has the values of `--env`: never stored."""

    record: Record
    argv: tuple[str, ...]
    shell: str | None
    cwd: str
    env: dict[str, str]  # changes to the present environment; for a container: all of it
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()


def prepare_rerun(
    record: Record, store: Store, settings: Settings, env_changes: Mapping[str, str], cwd: str | None
) -> JobRerun:
    """Raises InputError if it cannot run again as it did. `env_changes`: given by the user now."""
    _refuse_without_command(record)
    planned = _planned(record, store, settings)
    argv, shell = _command(record, planned)
    env = _environment(record, planned, env_changes)
    folder = _folder(record, cwd)
    argv = tuple(remembered_name(word, folder) for word in argv)
    made = JobRerun(record=record, argv=argv, shell=shell, cwd=folder, env=env, notes=_notes(record))
    return replace(made, differences=_differences(made, store, settings))


def _refuse_without_command(record: Record) -> None:
    job, name = record.job, label_of(record)
    if job.attached:
        raise InputError(f"{name} was not started by joblens, only measured: {job.attached}")
    if not job.argv and job.container is None:
        raise InputError(f"{name} has no command: a program measured itself, or it was imported without one")
    if job.tool == "recipe":
        raise InputError(f"{name} ran a recipe", hint="joblens process RECIPE runs it again")


def _planned(record: Record, store: Store, settings: Settings) -> PlannedJob | None:
    """Returns it from its workflow, with secrets; None: it has none, or that is gone."""
    link = record.job.run
    if link is None or link.index < 0 or link.is_command:
        return None
    from joblens.app.runs.specs import whole_run
    from joblens.app.workflows.loader import plan_of_run

    try:
        run = whole_run(store.find_run(link.run_uuid), store, settings)
        return plan_of_run(run).jobs[link.index]
    except (JoblensError, IndexError):
        return None


def _command(record: Record, planned: PlannedJob | None) -> tuple[tuple[str, ...], str | None]:
    """Returns arguments, or a shell line."""
    job = record.job
    argv = job.argv
    if any(REDACTED in text for text in argv):
        argv = _command_of_plan(record, planned)
    if not job.is_shell:
        return argv, None
    if not is_of_workflow(job) or job.container is not None:  # a container has its own shell
        return (), argv[0]
    return (shell_of_workflows(), "-c", argv[0]), None


def _command_of_plan(record: Record, planned: PlannedJob | None) -> tuple[str, ...]:
    from joblens.agent.attempts.preparation import command_line

    if planned is None or "${user_data." in planned.command:
        raise InputError(
            f"{label_of(record)}: its recorded command had a secret, which was redacted",
            hint="type the command again",
        )
    line, is_shell, words = command_line(planned, {}, "/bin/sh")
    return (line,) if is_shell else words


def _environment(record: Record, planned: PlannedJob | None, own: Mapping[str, str]) -> dict[str, str]:
    job = record.job
    then = {name: value for name, value in job.env.items() if REDACTED not in value}
    planned_env = {} if planned is None else planned.env
    missing = sorted(job.env.keys() - then.keys() - own.keys() - planned_env.keys())
    if missing:
        names = ", ".join(missing)
        raise InputError(
            f"{label_of(record)}: the values of {names} were not recorded, as they may be secret",
            hint=" ".join(f"--env {name}=VALUE" for name in missing)
            + f" (--env {missing[0]} takes it from the environment)",
        )
    if job.container is not None:
        then.pop(TRACE_VARIABLE, None)  # of the trace that it was part of
        return {**then, **planned_env, **own}
    lasting = {
        name: value
        for name, value in then.items()
        if os.environ.get(name) != value
        and (name in job.env_given or (is_lasting_env(name) and name not in _CURRENT_ONLY))
    }
    return {**lasting, **planned_env, **_of_run(job), **own}


def _of_run(job: Job) -> dict[str, str]:
    """Returns variables that joblens sets for a job of a workflow, if they are meaningful outside its
    run."""
    if job.run is None or job.run.is_command:
        return {}
    values = {"RUN_ID": job.run.run_uuid, "OUTPUT_DIR": job.output_dir, "JOB_NAME": job.name, "ATTEMPT": "1"}
    joblens = {f"JOBLENS_{name}": value for name, value in values.items()}
    return {**joblens, "TORC_JOB_NAME": job.name, "TORC_OUTPUT_DIR": job.output_dir, "TORC_ATTEMPT_ID": "1"}


def _folder(record: Record, cwd: str | None) -> str:
    job = record.job
    if cwd is not None or job.container is not None:
        return cwd or ""
    if not job.cwd:
        raise InputError(
            f"{label_of(record)} ran in a temporary directory on a worker, with files created there",
            hint="--cwd DIR runs its command in DIR",
        )
    if not os.path.isdir(job.cwd):
        raise InputError(
            f"{label_of(record)}: its directory {job.cwd} does not exist", hint="--cwd DIR runs it in DIR"
        )
    return job.cwd


def _notes(record: Record) -> tuple[str, ...]:
    nodes, attempt = record.job.requirements.nodes or 1, record.attempt
    notes = [f"it had {nodes} nodes, and now runs on this one"] if nodes > 1 else []
    if attempt is None or not attempt.provenance:
        notes.append("its provenance was not recorded, so differences are unknown")
    return tuple(notes)


def _differences(again: JobRerun, store: Store, settings: Settings) -> tuple[Difference, ...]:
    """Returns changes since then that may affect the job."""
    from joblens.analysis.comparing.job_differences import JobView, differences

    record = again.record
    then = provenance_of(store, record)
    now = _provenance_now(again)
    largest = settings.provenance.max_hash_size
    stamped = replace(record.job, inputs=_inputs_now(record, again.cwd, largest), env=dict(now.environment))
    outcome = None if record.outcome is None else replace(record.outcome, inputs=())
    before = replace(record, job=replace(record.job, env=dict(now.environment if then is None else {})))
    found = differences(
        JobView(record=before, provenance=then),
        JobView(record=replace(record, job=stamped, outcome=outcome), provenance=now),
    )
    return tuple(
        each
        for each in found.differences
        if each.group in _GROUPS and not (each.group == "environment" and each.name in again.env)
    )


def _provenance_now(again: JobRerun) -> Any:
    from joblens import __version__
    from joblens.agent.provenance.parts import ProvenanceParts
    from joblens.probes.host.machine_load import read_host
    from joblens.probes.provenance.program_files import CommandKind, starting_words

    job = again.record.job
    shell = shell_of_workflows() if is_of_workflow(job) else "/bin/sh"
    words = () if job.container is not None else starting_words(job.argv, is_shell=job.is_shell, shell=shell)
    search = again.env.get("PATH", os.environ.get("PATH", ""))
    parts = ProvenanceParts(read_host(), __version__, ())
    found, question, root = parts.collect(CommandKind(again.cwd or os.getcwd(), words, search))
    return found if question is None else parts.with_changes(found, question, root)


def _inputs_now(record: Record, cwd: str, largest: int) -> tuple[Any, ...]:
    from joblens.agent.provenance.datasets import dataset_now
    from joblens.agent.provenance.parts import stamp, with_digest

    now = []
    for then in record.inputs:
        if then.files is not None:
            now.append(dataset_now(then.path, then.hash_mode, cwd))
            continue
        here = stamp(then.path, cwd)
        now.append(with_digest(here, cwd, largest) if then.digest else here)
    return tuple(now)
