"""The one clock of a run: how long it was driven, over all its turns."""

from joblens.analysis.runs.run_time import driven_s
from joblens.model.errors import JoblensError
from joblens.model.runs.run import Run
from joblens.ports.store import Store


def driven_before_s(store: Store, run: Run) -> float:
    """Until now, by whoever drove it before; 0 for one that was never started."""
    if run.started_at_us is None:
        return 0.0
    try:
        events = [event for _, event in store.run_events(run.uuid)]
        return driven_s(events, store.run_results(run.uuid)) or 0.0
    except JoblensError:
        return 0.0  # the store cannot be asked now: no reason for the run not to go on
