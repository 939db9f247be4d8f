"""Output folders of runs and stores: who owns each (agent.output_folders), and which one a run uses."""

import os

from joblens.agent.runtime.output_folders import claim_folder
from joblens.app.wiring.drivers import store_name
from joblens.model.runs.run import Run
from joblens.model.settings import Settings


def store_owner(settings: Settings) -> str:
    """A copy of a store is another one: it has the same runs, and makes others with the same numbers."""
    name = store_name(settings)
    return name if "://" in name else os.path.realpath(name)


def claim_run_folder(run: Run, output_dir: str, settings: Settings) -> str:
    """Returns the folder below `output_dir` for the output of the run's jobs: the one it used before, else
    job_output/<workflow>_<run>. Raises OSError."""
    usual = os.path.join(output_dir, "job_output", f"{run.workflow_number or 0}_{run.number or 0}")
    is_same_place = os.path.dirname(run.logs_dir) == os.path.dirname(usual)
    folder = run.logs_dir if is_same_place else usual
    # A version without marks used the usual folder.
    began_without_mark = run.started_at_us is not None and not run.logs_dir
    return claim_folder(
        folder, f"{run.uuid} {store_owner(settings)}", is_known=is_same_place or began_without_mark
    )


def claim_plots_folder(output_dir: str, settings: Settings) -> str:
    """Returns the folder for plots of the last run; one without a mark is of an earlier version. Raises
    OSError."""
    return claim_folder(os.path.join(output_dir, "plots"), store_owner(settings), is_known=True)
