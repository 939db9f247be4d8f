"""`joblens run FILE`: the jobs of a workflow file, as one run."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from joblens.cli.context import Session
from joblens.cli.option_table import JOB_OPTIONS, RUN_OPTIONS, OptionRow
from joblens.model.errors import InputError, JoblensError

if TYPE_CHECKING:
    from joblens.agent.run_view import RunView
    from joblens.app.driving import Driven
    from joblens.app.reruns import Again
    from joblens.app.specs import LoadedSpec
    from joblens.engine.offer import Offer
    from joblens.model.plan import Plan
    from joblens.model.run import Run, RunOptions, Workflow

# What of the options for one command means something for a whole run.
_SHARED = frozenset(
    (
        "params",
        "cpus",
        "memory",
        "gpus",
        "no_enforce",
        "output_dir",
        "no_monitor",
        "probes",
        "notify",
        "quiet",
        "verbose",
        "queue",
        "broker",
    )
)


def run_spec(session: Session, given: dict[str, Any]) -> None:
    """Ends with 0 when every job succeeded, 1 when some did not, 130 after an interrupt."""
    from joblens.app.kept_specs import hide_secrets

    _refuse_command_options(given)
    options = options_from(given)
    loaded = _load(given)
    options = hide_secrets(loaded, options)
    _warn(session, loaded, options, quiet=given["quiet"])
    base = _base(session, given, loaded, options)
    if given["dry_run"]:
        show_dry_run(session, loaded, _known(session, given, loaded), options, base)
        return
    _check_place(session, options, base, detach=given["detach"])
    run = _create(session, loaded, options, base)
    if given.get("wait"):
        _detach_and_wait(session, run, given)
        return
    if given["detach"]:
        detach(session, run, given["notify"])
        return
    drive_in_front(session, run, loaded.plan, quiet=given["quiet"], notify=given["notify"])


def submit_spec(session: Session, given: dict[str, Any]) -> None:
    """`submit FILE` is `run FILE --detach`, and waits for its end where that was asked for."""
    if given["engine"] is None and (session.settings.queue.broker or given["queue"]):
        given = {**given, "engine": "celery"}
    run_spec(session, {**given, **_no_run_options(), "detach": True})


def _no_run_options() -> dict[str, Any]:
    """As if none were given, of those that `submit` does not have."""
    rows = [row for row in RUN_OPTIONS if row.name not in ("queue", "broker")]
    return {row.name: False if row.kind == "flag" else row.default for row in rows}


def _refuse_command_options(given: dict[str, Any]) -> None:
    for row in (*JOB_OPTIONS, *RUN_OPTIONS):
        if row.name not in _SHARED and row.name in given and _is_given(given[row.name], row):
            raise InputError(
                f"{row.flags[-1]} is for a single command, not for a workflow file",
                hint=f"say it in {given['spec']}; a command goes behind --: joblens run -- COMMAND",
            )


def _is_given(value: Any, row: OptionRow) -> bool:
    return value not in (None, (), False, "", row.default)


def options_from(given: dict[str, Any]) -> "RunOptions":
    from joblens.app.jobs import parse_params
    from joblens.app.machine_offer import parse_gpus
    from joblens.app.requests import memory_of, seconds_of
    from joblens.cli.cluster_options import engine_options
    from joblens.cli.run_options import check_offer, checked_probes
    from joblens.model.run import RunOptions

    check_offer(given)
    return RunOptions(
        output_dir=given["output_dir"] or "output",
        cwd=os.getcwd(),
        most_jobs=given["jobs"],
        cpus=given["cpus"],
        memory_bytes=memory_of("--memory", given["memory"]),
        gpus=parse_gpus(given["gpus"]) if given["gpus"] is not None else None,
        time_s=seconds_of("--time", given["time"]),
        only=given["only"],
        skip=given["skip"],
        until=given["until"],
        parameters=parse_params(given["params"]),
        enforce=not given["no_enforce"],
        monitor=not (given["no_resource_monitoring"] or given["no_monitor"]),
        probes=checked_probes(given["probes"]),
        interrupt=given["on_interrupt"],
        **engine_options(given),
        queue=given.get("queue") or "",
    )


def _load(given: dict[str, Any]) -> "LoadedSpec":
    from joblens.app.jobs import parse_params
    from joblens.app.specs import load_spec

    return load_spec(given["spec"], parse_params(given["params"]))


def _warn(session: Session, loaded: "LoadedSpec", options: "RunOptions", *, quiet: bool) -> None:
    from joblens.app.script_places import misplaced_scripts

    if not quiet:
        for warning in (*loaded.warnings, *misplaced_scripts(loaded.plan, loaded.path, options.cwd)):
            session.warn(warning)


def _base(
    session: Session, given: dict[str, Any], loaded: "LoadedSpec", options: "RunOptions"
) -> "Again | None":
    """With --rerun-changed: the run before, which jobs run again and why. None: everything runs."""
    if not given["rerun_changed"]:
        return None
    from joblens.app.reruns import changed_since_last

    workflow = _known(session, given, loaded)
    return changed_since_last(session.store_to_consult, workflow, loaded, options.cwd)


def _known(session: Session, given: dict[str, Any], loaded: "LoadedSpec") -> "Workflow | None":
    from joblens.app.workflow_runs import known_workflow

    return known_workflow(session.store_to_consult, loaded, os.path.abspath(given["spec"]))


def _check_place(session: Session, options: "RunOptions", base: "Again | None", *, detach: bool) -> None:
    from joblens.app.run_checks import prepare_place, refuse_unfinished_base

    if base is not None:
        refuse_unfinished_base(base.base, session.store_to_fill, session.settings)
    prepare_place(options, detach=detach)


def _create(
    session: Session,
    loaded: "LoadedSpec",
    options: "RunOptions",
    base: "Again | None",
) -> "Run":
    from joblens.app.drivers import open_store_directly
    from joblens.app.workflow_runs import check_plan, create_run

    before, again = (base.base, base.places) if base is not None else (None, None)
    check_plan(loaded.plan, options, again)
    check_engine(session, loaded.plan, options, again)
    store = open_store_directly(session.settings, session.warn)
    try:
        return create_run(
            store,
            os.path.abspath(loaded.path),
            loaded,
            options,
            session.settings,
            base=before,
            again=again,
            kept_from=base.kept_from if base is not None else {},
        )
    finally:
        store.close()


def check_engine(
    session: Session, plan: "Plan", options: "RunOptions", again: tuple[int, ...] | None = None
) -> None:
    """Raises PlanError for jobs that nobody there could ever run."""
    if options.engine != "local":
        from joblens.app.run_engine import check_for_workers

        check_for_workers(plan, options, session.settings, session.options.config, again)


def _detach_and_wait(session: Session, run: "Run", given: dict[str, Any]) -> None:
    """Prints its results at its end; ends with the exit code of `run FILE`."""
    from joblens.app.detaching import detach_run
    from joblens.cli.submitted import await_run

    detach_run(run, session.settings, session.options.config, given["notify"])
    if not session.json:
        _say_detached(session, run)
        session.flush()  # who waits may be killed, and still wants to know the run
    await_run(session, run, given["wait_timeout"])


def detach(session: Session, run: "Run", notify: str | None = None) -> None:
    from joblens.app.detaching import detach_run

    detach_run(run, session.settings, session.options.config, notify)
    _say_detached(session, run)


def _say_detached(session: Session, run: "Run") -> None:
    from joblens.analysis.workflow_rows import run_label

    if session.json:
        document = {"workflow_id": run.workflow_number, "run_id": run.number, "run_uuid": run.uuid}
        session.write_json({**document, "run": run_label(run)})
    elif session.is_terminal:
        label = run_label(run)
        session.write(f"Run {label} goes on in the background: joblens watch {label}, joblens wait {label}\n")
    else:
        session.write(f"{run_label(run)}\n")


def drive_in_front(
    session: Session, run: "Run", plan: "Plan", *, quiet: bool, notify: str | None = None
) -> None:
    """To its end, with a view on a terminal and lines anywhere else; ends with the exit code."""
    from joblens.app.driving import drive
    from joblens.app.owning import OwnLog

    session.own_jobs()
    driven = drive(
        run,
        plan,
        session.settings,
        make_view=None if quiet else _view_maker(session),
        log=OwnLog(session.settings.logs),
        config=session.options.config,
    )
    try:
        show_end(session, driven, plan, quiet=quiet)
        if notify:
            from joblens.app.run_notice import notify_run

            notify_run(session.store, driven, plan, notify, session.warn)
    except JoblensError as error:  # the store is gone; how the run ended stands
        session.warn(str(error))
    sys.exit(exit_code_of(driven))


def _view_maker(session: Session) -> "Callable[[Run, Plan, Offer], RunView]":
    def make(run: "Run", plan: "Plan", offer: "Offer") -> "RunView":
        from joblens.app.run_views import view_for

        descriptor = 2 if session.json else 1  # the document alone goes to standard output
        return view_for(run, plan, session.store, offer, descriptor=descriptor, color=session.color)

    return make


def exit_code_of(driven: "Driven") -> int:
    from joblens.model.run import RunStatus

    if driven.status is RunStatus.COMPLETED:
        return 0
    return 130 if driven.was_interrupted else 1


def show_end(session: Session, driven: "Driven", plan: "Plan", *, quiet: bool = False) -> None:
    from joblens.app.run_endings import ending_document, ending_of

    if session.json:
        session.write_json(ending_document(session.store, driven, plan))
    elif not quiet:
        from joblens.views.run_ending import render_ending

        ending = ending_of(session.store, driven, plan)
        session.write_lines(render_ending(ending, width=session.width, paint=session.palette))


def show_dry_run(
    session: Session,
    loaded: "LoadedSpec",
    workflow: "Workflow | None",
    options: "RunOptions",
    base: "Again | None",
) -> None:
    from joblens.app.dry_runs import dry_run, dry_run_document
    from joblens.app.workflow_runs import check_plan

    again, reasons = (base.places, base.reasons) if base is not None else (None, {})
    check_plan(loaded.plan, options, again)
    rehearsal = dry_run(session.store_to_consult, loaded.plan, workflow, options, again)
    if session.json:
        session.write_json(dry_run_document(loaded.plan, rehearsal, reasons))
        return
    from joblens.app.cluster_engine import places_in_words
    from joblens.views.dry_run import render_dry_run

    width = session.width if session.is_terminal else 1 << 20
    session.write_lines(render_dry_run(loaded.plan, rehearsal, reasons, width=width, paint=session.palette))
    starts = [start.index for start in rehearsal.starts]
    config = session.options.config
    if starts and (words := places_in_words(loaded.plan, options, session.settings, config, starts)):
        session.write(f"{words}\n")
