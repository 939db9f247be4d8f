"""What follows the end of a run: its time-series file, plots, RO-Crate, retention. How it ended stands."""

import contextlib
import os
import shutil
from collections.abc import Callable

from joblens.agent.attempts.preparation import RunSetup
from joblens.app.jobs.retention import apply_retention
from joblens.app.wiring.owning import OwnLog
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Granularity
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import Run
from joblens.model.settings import Settings
from joblens.ports.store import Store

_ACCOUNTS_S = 5.0  # sacct knows a job some seconds after its end; whoever looks at it asks again


def after_run(
    store: Store, run: Run, plan: Plan, setup: RunSetup, settings: Settings, own_log: OwnLog
) -> None:
    monitor = plan.monitor
    if setup.monitor and monitor.enabled and monitor.granularity is Granularity.TIME_SERIES:
        _warned(lambda: _write_time_series(store, run, plan, setup.output_dir, settings, own_log), own_log)
    if setup.monitor and monitor.enabled and monitor.generate_plots:
        _warned(lambda: _plot(store, run, plan, setup.output_dir, settings, own_log), own_log)
    if run.options.engine == "slurm":
        _keep_accounts(store, run)
    if plan.other.get("enable_ro_crate"):
        _warned(lambda: _write_crate(store, run, setup.output_dir), own_log)
    _warned(lambda: apply_retention(store, settings, run.created_at_us), own_log)


def _write_time_series(
    store: Store, run: Run, plan: Plan, output_dir: str, settings: Settings, own_log: OwnLog
) -> None:
    from joblens.app.reports.plotting import write_run_time_series
    from joblens.app.wiring.output_folders import store_owner

    path = write_run_time_series(store, run, plan, output_dir, store_owner(settings))
    if not path.endswith(f"_{run.number}.db"):
        own_log.warn(f"the file of samples with this run's number has jobs of another store: see {path}")


def _plot(store: Store, run: Run, plan: Plan, output_dir: str, settings: Settings, own_log: OwnLog) -> None:
    from joblens.app.reports.plotting import plot_run
    from joblens.app.wiring.output_folders import claim_plots_folder

    folder = claim_plots_folder(output_dir, settings)
    if os.path.basename(folder) != "plots":
        own_log.warn(f"{os.path.join(output_dir, 'plots')} belongs to another store; plots are in {folder}")
    plot_run(store, run, folder, plan=plan)


def _write_crate(store: Store, run: Run, output_dir: str) -> None:
    """In place of the one that an earlier end of the same run has left."""
    from joblens.app.crates.collection import CrateChoice, export_crate

    place = os.path.join(output_dir, "ro_crate", f"{run.workflow_number or 0}_{run.number or 0}")
    earlier = f"{place}.earlier"
    shutil.rmtree(earlier, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.rename(place, earlier)
    try:
        export_crate(store, store.find_run(run.uuid), place, CrateChoice(), lambda _: None)
    except BaseException:
        with contextlib.suppress(OSError):
            os.rename(earlier, place)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def _keep_accounts(store: Store, run: Run) -> None:
    """Where Slurm keeps no books, or does not answer, `show` asks again and tells."""
    from joblens.app.clusters.accounts import keep_accounts
    from joblens.app.runs.lookup import records_of_run

    with contextlib.suppress(JoblensError):
        keep_accounts(store, list(records_of_run(store, run.uuid)), wait_s=_ACCOUNTS_S)


def _warned(action: Callable[[], object], own_log: OwnLog) -> None:
    try:
        action()
    except (JoblensError, OSError) as error:
        own_log.warn(str(error))
