"""What has to be right before a run is made or gone on with: whoever asked for it hears of it at once, and no
run is left that could never begin."""

import os

from joblens.agent.enclosing_job import is_inside_a_job
from joblens.agent.locks import RunLock
from joblens.analysis.workflow_rows import run_label
from joblens.app.drivers import store_name
from joblens.app.places import spool_dir
from joblens.model.errors import InputError, RunIsDriven, SupervisorError
from joblens.model.job import Status
from joblens.model.run import Run, RunOptions
from joblens.model.settings import Settings
from joblens.ports.store import Store
from joblens.stores.private_files import make_private_folder


def prepare_place(options: RunOptions, *, detach: bool = False) -> None:
    """Makes the folder for what jobs print; a run in the background has to be able to outlive its caller."""
    if detach:
        refuse_inside_a_job()
    if not os.path.isdir(options.cwd or "."):
        raise InputError(f"the directory of the run, {options.cwd}, is not there")
    folder = os.path.normpath(os.path.join(options.cwd, options.output_dir, "job_output"))
    try:
        make_private_folder(folder)
    except OSError as error:
        raise _unusable(options, f"cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unusable(options, "cannot be written")


def _unusable(options: RunOptions, what: str) -> InputError:
    return InputError(
        f"-o {options.output_dir}: {what}",
        hint="what jobs print goes there; name a folder that can be written with -o DIR",
    )


def refuse_inside_a_job() -> None:
    if is_inside_a_job():
        raise SupervisorError(
            "this command runs inside a job, and a run in the background would end with that job",
            hint="run it in front, or from outside of the job",
        )


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
