"""The file that a run came from, as it is now."""

import os

from joblens.model.errors import JoblensError
from joblens.model.runs.run import Run
from joblens.ports.store import Store


def source_of(store: Store, run: Run) -> str:
    """As one would type it here; '' where there was none."""
    try:
        source = store.find_workflow(run.workflow_uuid).source
    except JoblensError:
        return ""
    if not source:
        return ""
    here = os.path.relpath(source)
    return source if here.startswith("..") else here


def changed_source(store: Store, run: Run) -> str:
    """The file, when it is there and no longer what the run was made from. `run`: whole, with its secrets."""
    source = source_of(store, run)
    if not source:
        return ""
    try:
        with open(source, encoding="utf-8-sig", newline="") as file:
            return "" if file.read() == run.spec_text else source
    except (OSError, UnicodeDecodeError):
        return ""
