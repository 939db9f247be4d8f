"""`joblens watch`: a run that another process drives, live."""

import sys

import click

from joblens.cli.context import Session
from joblens.cli.options import shared_options
from joblens.cli.run_arguments import run_argument
from joblens.cli.screen import Keys
from joblens.model.run import RunStatus


@click.command("watch")
@run_argument
@click.option("--once", is_flag=True, help="One picture, then end.")
@shared_options
def command(session: Session, ident: str, once: bool) -> int:
    """A run while it goes on: a bar a stage, running jobs, failures, and how long it will still take.

    It leaves when the run ends: with 0 when every job succeeded, else with 1. q or Ctrl-C quits; the run goes
    on. On a pipe it prints lines; with --json one object a look."""
    from joblens.analysis.workflow_rows import run_label
    from joblens.app.run_views import view_for
    from joblens.app.run_watching import RunWatcher, offer_of
    from joblens.app.specs import plan_of_run
    from joblens.model.plan import growing

    store = session.current_store
    run = store.find_run(ident)
    plan = growing(plan_of_run(run))
    descriptor = sys.stdout.fileno()
    view = view_for(
        run,
        plan,
        store,
        offer_of(store, run),
        descriptor=descriptor,
        color=session.color,
        is_silent=session.json,
    )

    def after_look() -> None:
        if session.json or (once and session.is_terminal):
            view.read_usage(with_rates=once)
        if session.json:
            from joblens.views.run_live import progress_form

            session.write_json_line(progress_form(view.progress()))

    def say_that_it_goes_on() -> None:
        if not session.json:
            session.note(f"joblens: the run goes on; joblens watch {run_label(run)} shows it again")

    watcher = RunWatcher(store, run, plan, view)
    try:
        if once or not session.is_interactive:
            status = watcher.watch(after_look, wait_s=0.0 if once else None)
        else:
            with Keys() as keys:
                status = watcher.watch(after_look, is_enough=keys.wants_to_quit)
            if status is RunStatus.RUNNING:
                say_that_it_goes_on()
    except KeyboardInterrupt:
        view.leave()
        say_that_it_goes_on()
        raise
    return 0 if status in (RunStatus.COMPLETED, RunStatus.RUNNING, RunStatus.CREATED) else 1
