"""Runs from outside of the process that drives them: ended, waited for."""

import signal
import time
from collections.abc import Callable

from joblens.agent.locks import RunLock
from joblens.analysis.workflow_rows import run_label
from joblens.app.drivers import store_path
from joblens.app.places import spool_dir
from joblens.app.submitting import ask_to_cancel
from joblens.model.errors import JoblensError
from joblens.model.ids import new_uuid
from joblens.model.run import Run, RunEnded, RunEvent, RunFact, RunStatus, StopAskedFor
from joblens.model.settings import Settings
from joblens.model.writes import RunNoted
from joblens.ports.store import Store

_FIRST_POLL_S, _LONGEST_POLL_S = 0.05, 0.5
_HAND_OVER_S = 2.0  # between two looks at a run that nobody drives: one may just be about to
_UNFINISHED = (RunStatus.CREATED, RunStatus.RUNNING)


def is_driven(run: Run, settings: Settings) -> bool:
    """By a process of this machine."""
    try:
        return RunLock(spool_dir(store_path(settings)), run.uuid).holder() is not None
    except OSError:
        return False


def ask_run_to_end(run: Run, store: Store, settings: Settings, by: str) -> None:
    """Whoever drives it ends its jobs. Where nobody does any more, its jobs are ended one by one."""
    if run.status not in _UNFINISHED:
        return
    store.apply([_noted(run, StopAskedFor("kill", by))])
    if RunLock(spool_dir(store_path(settings)), run.uuid).signal_holder(signal.SIGUSR1):
        return
    for record in store.running():
        if record.job.run is not None and record.job.run.run_uuid == run.uuid:
            ask_to_cancel(record, store, settings, by)
    store.apply([_noted(run, RunEnded(RunStatus.STOPPED))])


def _noted(run: Run, fact: RunFact) -> RunNoted:
    return RunNoted(RunEvent(new_uuid(), run.uuid, time.time_ns() // 1000, fact))


def wait_for_run(
    store: Store, run_uuid: str, settings: Settings, timeout_s: float | None, care: Callable[[], None]
) -> Run:
    """The run once it has ended, or as it stands when the time is up. Raises JoblensError when the
    process that drove it is gone."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    poll_s, alone_since_s = _FIRST_POLL_S, None
    while True:
        run = store.find_run(run_uuid)
        if run.status not in _UNFINISHED or (deadline_s is not None and time.monotonic() >= deadline_s):
            return run
        if is_driven(run, settings) or (run.owner is not None and run.owner.host != _host()):
            alone_since_s = None
        elif alone_since_s is None:
            alone_since_s = time.monotonic()
        elif time.monotonic() - alone_since_s > _HAND_OVER_S:
            care()
            label = run_label(run)
            raise JoblensError(
                f"run {label} is not finished, and nobody runs it",
                hint=f"joblens resume {label} goes on with it",
            )
        time.sleep(poll_s)
        poll_s = min(_LONGEST_POLL_S, poll_s * 1.3)


def _host() -> str:
    import os

    return os.uname().nodename
