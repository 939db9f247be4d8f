"""Folders and files for output that several stores may share.

Names such as `job_output/1_1` come from small numbers, and every store has a run 1.1. So each folder has one
owner, named by a mark in it that is created atomically; any other owner uses a folder with a suffix."""

import hashlib
import os

from joblens.app.drivers import store_name
from joblens.model.run import Run
from joblens.model.settings import Settings
from joblens.stores.private_files import create_with, make_private_folder, open_plain_file

MARK = ".joblens-owner"
_LONGEST_MARK = 8192


def owner_suffix(owner: str) -> str:
    return hashlib.blake2b(owner.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()


def claim_folder(path: str, owner: str, *, is_known: bool = False) -> str:
    """Returns the folder that `owner` may use: `path`, or `path` with a suffix where it belongs to another.
    It is made when it is not there. `is_known`: what is in it without a mark is the owner's, as versions
    without marks left it. Raises OSError."""
    if _take(path, owner, is_known=is_known):
        return path
    own = f"{path}-{owner_suffix(owner)}"
    _take(own, owner, is_known=True)
    return own


def _take(path: str, owner: str, *, is_known: bool) -> bool:
    make_private_folder(path)
    mark = _mark_of(path)
    if mark is not None:
        return mark == owner
    if not is_known and os.listdir(path):
        return _mark_of(path) == owner  # somebody's output; or the mark of one that was faster
    try:
        os.close(create_with(os.path.join(path, MARK), owner.encode("utf-8", "surrogateescape")))
    except FileExistsError:
        return _mark_of(path) == owner
    return True


def _mark_of(path: str) -> str | None:
    """None: there is none. One that cannot be read is nobody's."""
    try:
        with open_plain_file(os.path.join(path, MARK)) as file:
            return file.read(_LONGEST_MARK).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError:
        return ""


# ---- runs -----------------------------------------------------------------------------------------------


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
