"""`joblens watch`: shows a run that another process drives; with --recover, until it succeeds."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from joblens.cli.commands.recover import RecoveryRequest, recovery_options, request_from
from joblens.cli.context import Session
from joblens.cli.options.common import count_from, run_argument, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.cli.terminal import Keys
from joblens.model.errors import InputError
from joblens.model.runs.run import RunStatus

if TYPE_CHECKING:
    from joblens.app.driving.driver import RunOutcome
    from joblens.cli.ui.runs import LineView, LiveView
    from joblens.model.runs.run import Run

_LET_GO_S = 120.0  # a driver removes its cluster jobs after the run has ended
_LONGEST_PAUSE_POWER = 6  # 64 s before jobs run again unchanged: some fail at once, every time
_STILL_GOING = (RunStatus.RUNNING, RunStatus.CREATED)


@click.command("watch", cls=GroupedCommand)
@run_argument
@click.option("--once", is_flag=True, help="Print once and exit.")
@click.option(
    "-p",
    "--poll-interval",
    metavar="TIME",
    default="1s",
    show_default=True,
    help="Polling interval.",
)
@click.option("-s", "--show-job-counts", is_flag=True, help="Print the number of jobs in each state.")
@click.option("-r", "--recover", is_flag=True, help="Recover the run when it fails, like 'joblens recover'.")
@click.option(
    "-m", "--max-retries", type=count_from(1), metavar="N", help="Recover at most N times. Default: no limit."
)
@recovery_options
@shared_options
def command(session: Session, /, ident: str, once: bool, **values: Any) -> int:
    """Show the progress of a run: a bar per stage, running jobs, failures and the remaining time.

    Exits when the run ends: with 0 if every job succeeded, else with 1. Press q or Ctrl-C to quit; the
    run keeps running. On a pipe, prints lines; with --json, one object per poll.

    With --recover, recovers a failed run and drives it from here until it succeeds, nothing can be
    recovered, or --max-retries is reached. Resumes a run whose driver was killed.
    """
    from joblens.app.jobs.requests import seconds_of

    every_s = seconds_of("--poll-interval", values["poll_interval"]) or 0.0
    if not every_s > 0:
        raise InputError(f"--poll-interval {values['poll_interval']}: must be more than 0")
    request = request_from(values)
    if not values["recover"]:
        _refuse_recovery_options()
    elif session.server_url is not None:
        session.refuse_server("watch --recover")
    elif once:
        raise InputError("--once and --recover cannot be combined")
    watch = _Watch(session, every_s=every_s, once=once, shows_counts=values["show_job_counts"])
    run = session.current_store.find_run(ident)
    if values["recover"]:
        from joblens.app.runs.control import refuse_command

        refuse_command(run, session.current_store)
        return _watch_and_recover(session, watch, run, request, values["max_retries"])
    status = watch.until_end(run)
    return 0 if status in (RunStatus.COMPLETED, *_STILL_GOING) else 1


def _refuse_recovery_options() -> None:
    source = click.get_current_context().get_parameter_source
    for name in ("max_retries", "memory_multiplier", "runtime_multiplier", "retry_unknown", "recovery_hook"):
        if source(name) is click.core.ParameterSource.COMMANDLINE:
            raise InputError(f"--{name.replace('_', '-')} needs --recover")


class _Watch:
    def __init__(self, session: Session, *, every_s: float, once: bool, shows_counts: bool) -> None:
        self._session = session
        self._every_s = every_s
        self._once = once
        self._shows_counts = shows_counts
        self.was_quit = False  # someone pressed q

    def until_end(self, run: "Run") -> RunStatus:
        from joblens.app.driving.watch import RunWatcher, offer_of
        from joblens.app.workflows.loader import plan_of_run
        from joblens.cli.ui.runs import view_for
        from joblens.model.runs.plan import growing

        session, once, store = self._session, self._once, self._session.store
        plan = growing(plan_of_run(run))
        view = view_for(
            run,
            plan,
            store,
            offer_of(store, run),
            descriptor=sys.stdout.fileno(),
            color=session.color,
            is_silent=session.json,
        )
        after_poll = self._after_poll(view)
        watcher = RunWatcher(store, run, plan, view)
        try:
            if once or not session.is_interactive:
                status = watcher.watch(after_poll, wait_s=0.0 if once else None, every_s=self._every_s)
            else:
                with Keys() as keys:
                    status = watcher.watch(after_poll, is_enough=keys.wants_to_quit, every_s=self._every_s)
                if status is RunStatus.RUNNING:
                    self.was_quit = True
                    self._report_that_it_continues(run)
        except KeyboardInterrupt:
            view.leave()
            self._report_that_it_continues(run)
            raise
        return status

    def _after_poll(self, view: "LiveView | LineView") -> Callable[[], None]:
        session, once = self._session, self._once
        printed: list[str] = [""]

        def after_poll() -> None:
            if session.json or (once and session.is_terminal):
                view.read_usage(with_rates=once)
            if session.json:
                from joblens.views.runs.live import progress_form

                session.write_json_line(progress_form(view.progress()))
            elif self._shows_counts:
                line = _counts(view)
                if line != printed[0]:
                    printed[0] = line
                    view.note(line)

        return after_poll

    def _report_that_it_continues(self, run: "Run") -> None:
        from joblens.analysis.runs.status import run_label

        if not self._session.json:
            self._session.note(
                f"joblens: the run keeps running; joblens watch {run_label(run)} shows it again"
            )


def _counts(view: "LiveView | LineView") -> str:
    progress = view.progress()
    running = progress.count("running")
    waiting = progress.total - progress.finished - running
    counts = {
        "completed": progress.count("done"),
        "running": running,
        "waiting": waiting,
        "failed": progress.count("failed"),
        "canceled": progress.count("cancelled"),
    }
    return ", ".join(f"{name}={count}" for name, count in counts.items())


# ---- recovering -----------------------------------------------------------------------------------------


def _watch_and_recover(
    session: Session, watch: _Watch, run: "Run", request: RecoveryRequest, most: int | None
) -> int:
    """Returns the exit code of the run."""
    from joblens.analysis.runs.status import run_label
    from joblens.app.runs.control import wait_for_driver_exit
    from joblens.cli.commands.run_spec import exit_code_of
    from joblens.model.errors import RunIsDriven
    from joblens.model.values.units import counted

    recoveries, was_raised = 0, False
    driven: RunOutcome | None = None  # driven by this process: its end was already shown
    while True:
        status = driven.status if driven is not None else watch.until_end(session.store.find_run(run.uuid))
        if status is RunStatus.COMPLETED or watch.was_quit:
            return 0
        wait_for_driver_exit(run, session.drivers, _LET_GO_S)
        session.recover_orphans()
        now = session.store.find_run(run.uuid)
        if now.status is RunStatus.STOPPED and _was_stopped_by_someone(session, now):
            label = run_label(now)
            session.note(f"joblens: the run was cancelled; joblens resume {label} continues it")
            return 1
        is_deserted = now.status is not RunStatus.FAILED
        if not is_deserted and most is not None and recoveries >= most:
            times = counted(recoveries, "time")
            session.note(f"joblens: recovered {times}, the limit of --max-retries; the run failed")
            return 1
        if recoveries and not was_raised:
            time.sleep(2.0 ** min(recoveries, _LONGEST_PAUSE_POWER))
        try:
            if is_deserted:
                driven = _resume(session, now)
            else:
                driven, was_raised = _recover(session, now, request, recoveries + 1)
        except RunIsDriven as error:
            session.note(f"joblens: {error}; watching it")
            driven = None
            continue
        if driven is None:
            return 1
        recoveries += not is_deserted
        if driven.status is not RunStatus.FAILED:
            return exit_code_of(driven)


def _was_stopped_by_someone(session: Session, run: "Run") -> bool:
    from joblens.engine.progress.progress import last_stop

    return last_stop(event for _, event in session.store.run_events(run.uuid)) is not None


def _resume(session: Session, run: "Run") -> "RunOutcome":
    """Drives a run whose driver is gone, or that was reset."""
    from joblens.app.driving.requests import resume_request
    from joblens.cli.commands.run_spec import drive_to_end

    session.note("joblens: the driver of this run has died; resuming it")
    request, _ = resume_request(session.store, run, session.settings)
    whole = session.runs.prepare(request)
    return drive_to_end(session, whole, request.plan, quiet=False, notify=whole.options.notify)


def _recover(
    session: Session, run: "Run", request: RecoveryRequest, number: int
) -> "tuple[RunOutcome | None, bool]":
    """Returns how the run ended (None: nothing can be recovered), and whether requests were raised.
    Raises RunIsDriven if another process drives it."""
    from joblens.app.driving.recovery import hold_run
    from joblens.cli.commands.recover import (
        decide,
        drive_recovered,
        report_nothing_to_recover,
        show,
        write,
    )
    from joblens.engine.life.recovery_plan import requests_of

    with hold_run(run, session.store, session.settings) as lock:
        recovery = decide(session, session.store.find_run(run.uuid), lambda _failures: request.choice)
        if session.json:
            session.write_json_line({"recovery": recovery.document()})
        else:
            session.write(f"Recovery {number}\n")
            show(session, recovery)
        if not recovery.has_work:
            report_nothing_to_recover(session, recovery)
            return None, False
        recovered = write(session, recovery, request)
        driven = drive_recovered(session, recovered, recovery, lock, quiet=False)
        return driven, bool(requests_of(recovery.jobs))
