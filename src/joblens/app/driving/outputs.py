"""Outputs of a run: its folders, and at its end time series, plots, RO-Crate and retention."""

import contextlib
import os
import shutil

from joblens.agent.attempts.preparation import RunSetup
from joblens.agent.runtime.output_folders import claim_folder
from joblens.app.jobs.epilog import apply_retention, warn_of_errors
from joblens.app.wiring.agent_context import OwnLog
from joblens.app.wiring.drivers import store_name
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Granularity
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import Run
from joblens.model.settings import Settings
from joblens.ports.store import Store


def store_owner(settings: Settings) -> str:
    """A copy of a store is another one: it has the same runs, and creates others with the same numbers."""
    name = store_name(settings)
    return name if "://" in name else os.path.realpath(name)


def claim_run_folder(run: Run, output_dir: str, settings: Settings) -> str:
    """Returns the folder below `output_dir` for the output of the run's jobs: the one it used before,
    otherwise job_output/<workflow>_<run>. Raises OSError."""
    usual = os.path.join(output_dir, "job_output", f"{run.workflow_number or 0}_{run.number or 0}")
    is_same_path = os.path.dirname(run.logs_dir) == os.path.dirname(usual)
    folder = run.logs_dir if is_same_path else usual
    # An earlier version without marks used the default folder.
    began_without_mark = run.started_at_us is not None and not run.logs_dir
    return claim_folder(
        folder, f"{run.uuid} {store_owner(settings)}", is_known=is_same_path or began_without_mark
    )


def claim_plots_folder(output_dir: str, settings: Settings) -> str:
    """Returns the folder for plots of the last run; one without a mark is of an earlier version. Raises
    OSError."""
    return claim_folder(os.path.join(output_dir, "plots"), store_owner(settings), is_known=True)


_ACCOUNTS_S = 5.0  # sacct knows a job some seconds after its end; later commands ask again


def after_run(
    store: Store, run: Run, plan: Plan, setup: RunSetup, settings: Settings, own_log: OwnLog
) -> None:
    monitor = plan.monitor
    if setup.monitor and monitor.enabled and monitor.granularity is Granularity.TIME_SERIES:
        warn_of_errors(
            lambda: _write_time_series(store, run, plan, setup.output_dir, settings, own_log), own_log.warn
        )
    if setup.monitor and monitor.enabled and monitor.generate_plots:
        warn_of_errors(lambda: _plot(store, run, plan, setup.output_dir, settings, own_log), own_log.warn)
    if run.options.engine == "slurm":
        _store_accounts(store, run)
    if plan.other.get("enable_ro_crate"):
        warn_of_errors(lambda: _write_crate(store, run, setup.output_dir), own_log.warn)
    warn_of_errors(lambda: apply_retention(store, settings, run.created_at_us), own_log.warn)


def _write_time_series(
    store: Store, run: Run, plan: Plan, output_dir: str, settings: Settings, own_log: OwnLog
) -> None:
    from joblens.app.reports.plots import write_run_time_series

    path = write_run_time_series(store, run, plan, output_dir, store_owner(settings))
    if not path.endswith(f"_{run.number}.db"):
        own_log.warn(
            f"the file of samples with this run's number belongs to another store; samples are in {path}"
        )


def _plot(store: Store, run: Run, plan: Plan, output_dir: str, settings: Settings, own_log: OwnLog) -> None:
    from joblens.app.reports.plots import plot_run

    folder = claim_plots_folder(output_dir, settings)
    if os.path.basename(folder) != "plots":
        own_log.warn(f"{os.path.join(output_dir, 'plots')} belongs to another store; plots are in {folder}")
    plot_run(store, run, folder, plan=plan)


def _write_crate(store: Store, run: Run, output_dir: str) -> None:
    """Replaces the crate of an earlier end of the same run."""
    from joblens.app.crates.collection import CrateChoice, export_crate

    folder = os.path.join(output_dir, "ro_crate", f"{run.workflow_number or 0}_{run.number or 0}")
    earlier = f"{folder}.earlier"
    shutil.rmtree(earlier, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, earlier)
    try:
        export_crate(store, store.find_run(run.uuid), folder, CrateChoice(), lambda _: None)
    except BaseException:
        with contextlib.suppress(OSError):
            os.rename(earlier, folder)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def _store_accounts(store: Store, run: Run) -> None:
    """If Slurm has no accounting, or does not answer, `show` asks again and reports it."""
    from joblens.app.reports.seff import store_accounts
    from joblens.app.runs.lookup import records_of_run

    with contextlib.suppress(JoblensError):
        store_accounts(store, list(records_of_run(store, run.uuid)), wait_s=_ACCOUNTS_S)
