"""Refusals of commands that would disturb a run: one that is driven, unfinished, or of another engine."""

from joblens.agent.runtime.locks import RunLock
from joblens.analysis.runs.workflow_rows import run_label
from joblens.app.wiring.drivers import store_name
from joblens.app.wiring.paths import spool_dir
from joblens.model.errors import InputError, RunIsDriven
from joblens.model.jobs.job import Status
from joblens.model.runs.run import Run, RunOptions
from joblens.model.settings import Settings
from joblens.ports.store import Store


def refuse_command(run: Run, store: Store) -> None:
    """A run of one command is known by its job: there is nothing of it to resume or to run in part."""
    if run.is_command:
        results = store.run_results(run.uuid)
        job = results[-1].number if results else run.uuid
        raise InputError(
            f"run {run_label(run)} is one command, job {job}",
            hint=f"joblens wait {job} waits for it, joblens rerun {job} runs it again",
        )


def refuse_driven(run: Run, settings: Settings) -> None:
    """Raises RunIsDriven when a process of this machine is at it."""
    lock = RunLock(spool_dir(store_name(settings)), run.uuid)
    if lock.holder() is not None:
        raise driven_by_another(run, lock)


def refuse_other_engine(run: Run, options: RunOptions, store: Store) -> None:
    """Tickets of one engine are not taken by another."""
    if run.options.engine in (options.engine, "local"):
        return
    left = [one for one in store.running(run=run.uuid) if one.job.queue]
    if left:
        was = run.options.engine
        raise InputError(
            f"{len(left)} jobs of run {run_label(run)} are still with {was}, the first is {left[0].job.name}",
            hint=f"go on with --engine {was}, or end them first: joblens cancel {run_label(run)}",
        )


def refuse_unfinished_base(run: Run, store: Store, settings: Settings) -> None:
    """What is still going on in a run would be started a second time, beside itself."""
    refuse_driven(run, settings)
    for record in store.running(run=run.uuid):
        if record.status is Status.RUNNING:
            label = run_label(run)
            raise RunIsDriven(
                f"job {record.job.name} of run {label} is still running",
                hint=f"joblens resume {label} waits for it and goes on, joblens cancel {label} ends it",
            )


def driven_by_another(run: Run, lock: RunLock) -> RunIsDriven:
    label = run_label(run)
    return RunIsDriven(
        f"run {label} is being run by process {lock.holder()}",
        hint=f"joblens watch {label} shows it, joblens cancel {label} ends it",
    )
