"""`joblens run FILE`: runs the jobs of a workflow file as one run."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from joblens.cli.context import Session
from joblens.cli.options.table import (
    JOB_OPTIONS,
    QUEUE_OPTIONS,
    RUN_OPTIONS,
    SPEC_OPTIONS,
    OptionRow,
    defaults_of,
)
from joblens.model.errors import InputError, JoblensError

if TYPE_CHECKING:
    from joblens.agent.runs.view import RunView
    from joblens.agent.runtime.ownership import RunLock
    from joblens.app.driving.checks import RunRequest
    from joblens.app.driving.driver import RunOutcome
    from joblens.app.runs.reruns import RerunSelection
    from joblens.app.workflows.loader import LoadedSpec
    from joblens.engine.schedule.capacity import RunCapacity
    from joblens.model.runs.plan import Plan
    from joblens.model.runs.run import Run, RunOptions, Workflow

# Options for one command that also apply to a whole run, and those of files only.
OPTIONS_FOR_FILES = frozenset(
    {
        *("params", "cpus", "memory", "gpus", "no_enforce", "output_dir", "no_monitor", "probes"),
        *("notify", "quiet", "verbose", "queue", "broker", "retry_lost"),
        *(row.name for row in (*SPEC_OPTIONS, *QUEUE_OPTIONS)),
    }
)


def run_spec(session: Session, values: dict[str, Any]) -> None:
    """Exits with 0 if every job succeeded, 1 if some did not, 130 after an interrupt."""
    from joblens.app.driving.checks import RunRequest
    from joblens.app.queue.notifiers import with_broker
    from joblens.app.runs.specs import hide_secrets

    _refuse_command_options(values)
    session.own_runs()
    options = with_broker(options_from(values), session.settings)
    loaded = _load(values)
    options = hide_secrets(loaded, options)
    warnings = _warn(session, loaded, options, quiet=values["quiet"])
    again = _again(session, values, loaded, options)
    request = RunRequest(
        loaded=loaded,
        options=options,
        workflow=os.path.abspath(loaded.path),
        again=again,
        detach=values["detach"],
    )
    known = _known(session, values, loaded) if values["dry_run"] else None
    carry_out(session, request, values, known=known, notify=values["notify"], warnings=warnings)


def carry_out(
    session: Session,
    request: "RunRequest",
    values: dict[str, Any],
    *,
    known: "Workflow | None",
    notify: str | None,
    warnings: tuple[str, ...] = (),
) -> None:
    """Shows, detaches or drives the run, as requested; exits with its exit code. `known`: the workflow,
    if the store has it."""
    if values["dry_run"]:
        show_dry_run(session, request, known, warnings)
        return
    run = session.runs.prepare(request)
    if values.get("wait"):
        _detach_and_wait(session, run, values, warnings)
    elif request.detach:
        detach(session, run, notify, warnings)
    else:
        if request.again is not None and request.again.is_empty and not values["quiet"]:
            session.note("joblens: nothing has changed: no job runs again, all keep their results")
        driven = drive_to_end(
            session, run, request.plan, quiet=values["quiet"], notify=notify, warnings=warnings
        )
        sys.exit(exit_code_of(driven))


def submit_spec(session: Session, values: dict[str, Any]) -> None:
    """`submit FILE` is `run FILE --detach`, and waits for its end if requested."""
    if values["engine"] is None and (session.settings.queue.broker or values["queue"]):
        values = {**values, "engine": "celery"}
    rows = [row for row in RUN_OPTIONS if row.name not in values]  # those that `submit` does not have
    run_spec(session, {**values, **defaults_of(rows), "detach": True})


def _refuse_command_options(values: dict[str, Any]) -> None:
    for row in (*JOB_OPTIONS, *RUN_OPTIONS):
        if row.name not in OPTIONS_FOR_FILES and row.name in values and _is_set(values[row.name], row):
            raise InputError(
                f"{row.flags[-1]} applies to a single command, not to a workflow file",
                hint=f"set it in {values['spec']}; a command goes after --: joblens run -- COMMAND",
            )


def _is_set(value: Any, row: OptionRow) -> bool:
    return value not in (None, (), False, "", row.default)


def options_from(values: dict[str, Any]) -> "RunOptions":
    from joblens.app.jobs.preparation import parse_params
    from joblens.app.jobs.requests import current_dir, memory_of, seconds_of
    from joblens.app.wiring.machine import parse_gpus
    from joblens.cli.options.request import engine_options
    from joblens.cli.options.run import check_offer, checked_labels, checked_probes, recorded_notify
    from joblens.model.runs.run import RunOptions

    check_offer(values)
    return RunOptions(
        output_dir=values["output_dir"] or "output",
        cwd=current_dir(),
        most_jobs=values["jobs"],
        cpus=values["cpus"],
        memory_bytes=memory_of("--memory", values["memory"]),
        gpus=parse_gpus(values["gpus"]) if values["gpus"] is not None else None,
        time_s=seconds_of("--time", values["time"]),
        only=values["only"],
        skip=values["skip"],
        until=values["until"],
        parameters=parse_params(values["params"]),
        enforce=not values["no_enforce"],
        monitor=not (values["no_resource_monitoring"] or values["no_monitor"]),
        probes=checked_probes(values["probes"]),
        interrupt=values["on_interrupt"],
        labels=checked_labels(values["label"]),
        notify=recorded_notify(values["notify"]),
        **engine_options(values),
    )


def _load(values: dict[str, Any]) -> "LoadedSpec":
    from joblens.app.jobs.preparation import parse_params
    from joblens.app.workflows.loader import load_spec

    return load_spec(values["spec"], parse_params(values["params"]))


def _warn(session: Session, loaded: "LoadedSpec", options: "RunOptions", *, quiet: bool) -> tuple[str, ...]:
    """Prints the warnings and returns them, for the document of --json."""
    from joblens.app.workflows.validation import misplaced_scripts

    warnings = (
        *loaded.warnings_for(options.engine),
        *misplaced_scripts(loaded.plan, loaded.path, options.cwd),
    )
    if not quiet:
        for warning in warnings:
            session.warn(warning)
    return warnings


def _again(
    session: Session, values: dict[str, Any], loaded: "LoadedSpec", options: "RunOptions"
) -> "RerunSelection | None":
    """For --rerun-changed: returns the previous run, which jobs run again and why. None: everything runs."""
    if not values["rerun_changed"] or session.store_if_exists is None:
        return None
    from joblens.app.runs.reruns import carry_raised_requests, changed_since_last

    workflow = _known(session, values, loaded)
    again = changed_since_last(session.store_if_exists, workflow, loaded, options.cwd)
    if again is not None:
        carry_raised_requests(again.base, loaded)
    return again


def _known(session: Session, values: dict[str, Any], loaded: "LoadedSpec") -> "Workflow | None":
    from joblens.app.runs.records import known_workflow

    store = session.store_if_exists
    return None if store is None else known_workflow(store, loaded, os.path.abspath(values["spec"]))


def _detach_and_wait(session: Session, run: "Run", values: dict[str, Any], warnings: tuple[str, ...]) -> None:
    """Prints the results at the end; exits with the exit code of `run FILE`."""
    from joblens.cli.commands.submitted import await_run

    session.runs.detach(run, values["notify"])
    if not session.json:
        report_detached(session, run, warnings, {})
        session.flush()  # the run must be known even if this process is killed while it waits
    await_run(session, run, values["wait_timeout"])


def detach(
    session: Session,
    run: "Run",
    notify: str | None = None,
    warnings: tuple[str, ...] = (),
    also: dict[str, Any] | None = None,
) -> None:
    from joblens.cli.commands.submitted import collecting

    found, warn = collecting(session)
    session.runs.detach(run, notify, warn)
    report_detached(session, run, (*warnings, *found), also or {})


def report_detached(session: Session, run: "Run", warnings: tuple[str, ...], also: dict[str, Any]) -> None:
    from joblens.analysis.runs.status import run_label

    if session.json:
        ids = {"workflow_id": run.workflow_number, "run_id": run.number, "run_uuid": run.uuid}
        session.write_json(
            {**ids, "run": run_label(run), "warnings": list(warnings), **also},
        )
    elif session.is_terminal:
        label = run_label(run)
        session.write(f"Run {label} started in the background: joblens watch {label}, joblens wait {label}\n")
    else:
        session.write(f"{run_label(run)}\n")


def drive_to_end(
    session: Session,
    run: "Run",
    plan: "Plan",
    *,
    quiet: bool,
    notify: str | None = None,
    warnings: tuple[str, ...] = (),
    lock: "RunLock | None" = None,
    also: dict[str, Any] | None = None,
) -> "RunOutcome":
    """Drives the run, with a view on a terminal and lines elsewhere. `lock`: lock of this run, if already
    taken. `also`: more for the document of --json."""
    session.own_jobs()
    driven = session.runs.drive(run, plan, make_view=None if quiet else _view_maker(session), lock=lock)
    try:
        show_end(session, driven, quiet=quiet, warnings=warnings, also=also)
        if notify:
            from joblens.app.driving.summary import notify_run

            notify_run(session.store, driven, notify, session.warn)
    except JoblensError as error:  # the store is gone, but the outcome of the run is known
        session.warn(str(error))
    return driven


def _view_maker(session: Session) -> "Callable[[Run, Plan, RunCapacity], RunView]":
    def make(run: "Run", plan: "Plan", offer: "RunCapacity") -> "RunView":
        from joblens.cli.ui.runs import view_for

        descriptor = 2 if session.json else 1  # standard output gets only the document
        return view_for(run, plan, session.store, offer, descriptor=descriptor, color=session.color)

    return make


def exit_code_of(driven: "RunOutcome") -> int:
    from joblens.model.runs.run import RunStatus

    if driven.status is RunStatus.COMPLETED:
        return 0
    return 130 if driven.was_interrupted else 1


def show_end(
    session: Session,
    driven: "RunOutcome",
    *,
    quiet: bool = False,
    warnings: tuple[str, ...] = (),
    also: dict[str, Any] | None = None,
) -> None:
    from joblens.app.driving.summary import ending_document, ending_of

    if session.json:
        document = ending_document(session.store, driven)
        session.write_json({**document, "warnings": list(warnings), **(also or {})})
    elif not quiet:
        from joblens.views.runs.results import render_ending

        ending = ending_of(session.store, driven)
        session.write_lines(render_ending(ending, width=session.width, paint=session.palette))


def show_dry_run(
    session: Session,
    request: "RunRequest",
    workflow: "Workflow | None",
    warnings: tuple[str, ...] = (),
) -> None:
    """Shows the checks of the run, and its plan. `workflow`: if the store already has it."""
    from joblens.app.driving.dry_runs import dry_run, dry_run_document

    messages = list(warnings)

    def warn(text: str) -> None:
        messages.append(text)
        session.warn(text)

    reasons = request.again.reasons if request.again is not None else {}
    with session.runs.validated(request, warn) as checked:
        planned = dry_run(checked, session.store_if_exists, workflow, reasons)
    if session.json:
        session.write_json({**dry_run_document(planned), "warnings": messages})
        return
    from joblens.views.runs.plan import render_dry_run

    width = session.width if session.is_terminal else 1 << 20
    session.write_lines(render_dry_run(planned, width=width, paint=session.palette))
