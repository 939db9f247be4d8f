"""`joblens recover`: reruns failed jobs of a run with more memory or time, chosen by options or in a
dialog."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from joblens.analysis.findings.failure_causes import Cause
from joblens.cli.context import Session
from joblens.cli.options.common import click_options, run_argument, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.cli.options.run import DRIVE_OPTIONS
from joblens.engine.life.recovery_plan import MOST_MULTIPLIED, Failure, RecoveryChoice
from joblens.model.errors import InputError
from joblens.model.values.units import counted

if TYPE_CHECKING:
    from joblens.agent.runtime.ownership import RunLock
    from joblens.app.driving.driver import RunOutcome
    from joblens.app.driving.recovery import Recovery
    from joblens.model.runs.run import Run


# shows the question and returns the typed line; raises EOFError at the end of the input
Ask = Callable[[str], str]
Say = Callable[[str], None]
Choose = Callable[[tuple[Failure, ...]], RecoveryChoice]
_RETRY, _ADJUST, _SKIP = "r", "a", "s"


def multiplier_of(option: str, text: str) -> float:
    """Raises InputError unless it is a number from 1 to 1000."""
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 1.0 <= number <= MOST_MULTIPLIED:
        raise InputError(f"{option} {text}: expected a number from 1 to {MOST_MULTIPLIED:g}")
    return number


def ask_for_choice(failures: Sequence[Failure], usual: RecoveryChoice, ask: Ask, say: Say) -> RecoveryChoice:
    """Asks one question per cause. An empty line takes the first choice."""
    counts = Counter(one.diagnosis.cause for one in failures)
    choice = usual
    if counts[Cause.OUT_OF_MEMORY]:
        title = f"Out of memory ({counted(counts[Cause.OUT_OF_MEMORY], 'job')})"
        multiplier = _multiplier(title, "memory", usual.memory_multiplier or 1.0, ask, say)
        choice = replace(choice, memory_multiplier=multiplier)
    if counts[Cause.TIMEOUT]:
        title = f"Timed out ({counted(counts[Cause.TIMEOUT], 'job')})"
        multiplier = _multiplier(title, "runtime", usual.runtime_multiplier or 1.0, ask, say)
        choice = replace(choice, runtime_multiplier=multiplier)
    if counts[Cause.UNKNOWN]:
        title = f"Unknown cause ({counted(counts[Cause.UNKNOWN], 'job')})"
        first, second = (_RETRY, _SKIP) if usual.retry_unknown else (_SKIP, _RETRY)
        options = {_RETRY: "[r]etry as they are", _SKIP: "[s]kip"}
        answer = _one_of(
            f"{title}: {options[first]} / {options[second]} [{first}]: ", (first, second), ask, say
        )
        choice = replace(choice, retry_unknown=answer == _RETRY)
    return choice


def _multiplier(title: str, what: str, usual: float, ask: Ask, say: Say) -> float | None:
    question = f"{title}: [r]etry with {usual:g}x {what} / [a]djust the multiplier / [s]kip [r]: "
    answer = _one_of(question, (_RETRY, _ADJUST, _SKIP), ask, say)
    if answer == _SKIP:
        return None
    if answer == _RETRY:
        return usual
    while True:
        text = ask(f"  Multiplier of {what} [{usual:g}]: ").strip()
        if not text:
            return usual
        try:
            return multiplier_of("the multiplier", text)
        except InputError as error:
            say(f"  {error}")


def _one_of(question: str, letters: tuple[str, ...], ask: Ask, say: Say) -> str:
    """Accepts the first letter."""
    while True:
        answer = ask(question).strip().lower()
        if not answer:
            return letters[0]
        if answer[0] in letters:
            return answer[0]
        say(f"  Type one of {', '.join(letters)}, or Enter for {letters[0]}.")


def confirm(question: str, ask: Ask) -> bool:
    """Returns whether the answer is yes."""
    return ask(f"{question} (y/N): ").strip().lower() in ("y", "yes")


F = TypeVar("F", bound=Callable[..., Any])


class RecoveryRequest(Struct, frozen=True):
    """Options of the command line."""

    choice: "RecoveryChoice"
    hook: tuple[str, ...] = ()


def recovery_options(function: F) -> F:
    for option in (
        click.option(
            "--recovery-hook",
            metavar="CMD",
            help="Run 'CMD WORKFLOW_ID' before rerunning jobs that failed for an unknown reason.",
        ),
        click.option(
            "--retry-unknown", is_flag=True, help="Also rerun jobs that failed for an unknown reason."
        ),
        click.option(
            "--runtime-multiplier",
            metavar="X",
            default="1.4",
            show_default=True,
            help="Multiply the time limit of jobs that timed out.",
        ),
        click.option(
            "--memory-multiplier",
            metavar="X",
            default="1.5",
            show_default=True,
            help="Multiply the memory of jobs that ran out of it.",
        ),
    ):
        function = option(function)
    return function


def request_from(values: dict[str, Any]) -> RecoveryRequest:
    """Raises InputError."""
    from joblens.app.driving.recovery import parse_hook
    from joblens.engine.life.recovery_plan import RecoveryChoice

    hook = values["recovery_hook"]
    choice = RecoveryChoice(
        memory_multiplier=multiplier_of("--memory-multiplier", values["memory_multiplier"]),
        runtime_multiplier=multiplier_of("--runtime-multiplier", values["runtime_multiplier"]),
        # A hook is for failures of unknown cause.
        retry_unknown=values["retry_unknown"] or hook is not None,
    )
    return RecoveryRequest(choice, () if hook is None else parse_hook(hook))


@click.command(cls=GroupedCommand)
@run_argument
@recovery_options
@click.option("--no-prompts", is_flag=True, help="Do not ask for confirmation.")
@click_options(DRIVE_OPTIONS)
@shared_options
def command(session: Session, /, ident: str, **values: Any) -> int:
    """Rerun the failed jobs of RUN and their dependents, in the same run. Jobs that ran out of memory or
    time get more; lost jobs run unchanged; jobs that failed for an unknown reason are skipped.

    On a terminal, asks what to do about each cause. The exit code is that of 'run FILE', and 1 if nothing
    can be recovered.
    """
    from joblens.app.driving.recovery import hold_run
    from joblens.app.runs.control import refuse_command
    from joblens.app.runs.lookup import find_named_run
    from joblens.cli.commands.run_spec import exit_code_of
    from joblens.model.runs.run import RunStatus

    request = request_from(values)
    session.own_runs()
    store = session.current_store
    run = find_named_run(store, ident, session.note)
    refuse_command(run, store)
    if run.status is RunStatus.COMPLETED:
        _report_nothing_failed(session, run, is_dry_run=values["dry_run"])
        return 0
    if values["dry_run"]:
        recovery = decide(session, run, lambda _failures: request.choice)
        if session.json:
            session.write_json(recovery.document(is_dry_run=True))
        else:
            show(session, recovery)
            session.write("Nothing changed\n")
        return 0
    with hold_run(run, store, session.settings) as lock:
        asks = session.is_interactive and not values["no_prompts"]
        choose = _wizard(session, request.choice) if asks else lambda _failures: request.choice
        recovery = decide(session, store.find_run(run.uuid), choose)
        if not session.json and not values["quiet"]:
            show(session, recovery)
        if not recovery.has_work:
            if session.json:
                session.write_json(recovery.document())
            report_nothing_to_recover(session, recovery)
            return 1
        if asks and not confirm("Run the recovery?", _ask):
            session.write("Nothing changed\n")
            return 1
        recovered = write(session, recovery, request)
        if values["detach"]:
            from joblens.cli.commands.run_spec import detach

            lock.release()
            detach(session, recovered, recovered.options.notify, also={"recovery": recovery.document()})
            return 0
        driven = drive_recovered(session, recovered, recovery, lock, quiet=values["quiet"])
    if not session.json and not values["quiet"]:
        _hint_at_rightsize(session, recovery, driven)
    return exit_code_of(driven)


def _hint_at_rightsize(session: Session, recovery: "Recovery", driven: "RunOutcome") -> None:
    """The file still has the earlier requests. If jobs failed again for the same reason, the end of the
    run says so."""
    from joblens.analysis.runs.status import run_label
    from joblens.app.driving.summary import ending_of
    from joblens.app.workflows.loader import source_of
    from joblens.engine.life.recovery_plan import requests_of

    if not requests_of(recovery.jobs) or not source_of(session.store, recovery.run):
        return
    if not ending_of(session.store, driven).has_too_small:
        label = run_label(recovery.run)
        session.write(f"  joblens rightsize {label} --write writes the measured needs into the file\n")


def decide(session: Session, run: "Run", choose: Choose) -> "Recovery":
    from joblens.app.driving.recovery import decide as decide_recovery

    return decide_recovery(session.runs, session.store, run, session.settings, choose)


def write(session: Session, recovery: "Recovery", request: RecoveryRequest) -> "Run":
    from joblens.app.driving.recovery import write_recovery

    def say(text: str) -> None:
        session.note(f"joblens: {text}")

    return write_recovery(recovery, request.hook, session.connection, session.settings, say)


def drive_recovered(
    session: Session, run: "Run", recovery: "Recovery", lock: "RunLock", *, quiet: bool
) -> "RunOutcome":
    from joblens.app.driving.recovery import recovered_request
    from joblens.cli.commands.run_spec import drive_to_end

    request = recovered_request(session.store, run, session.settings, recovery.to_run)
    whole = session.runs.prepare(request)
    also = {"recovery": recovery.document()}
    notify = whole.options.notify
    return drive_to_end(session, whole, request.plan, quiet=quiet, notify=notify, lock=lock, also=also)


# ---- text -----------------------------------------------------------------------------------------------


def show(session: Session, recovery: "Recovery") -> None:
    from joblens.views.runs.recovery import render_failures, render_plan

    if not recovery.jobs:
        session.write("No job failed\n")
    else:
        width = session.width if session.is_terminal else None
        session.write_lines(render_failures(recovery.jobs, width=width, paint=session.palette))
    names = recovery.found.names(recovery.to_run)
    session.write_lines(render_plan(recovery.jobs, names, width=session.table_width))


def _report_nothing_failed(session: Session, run: "Run", *, is_dry_run: bool) -> None:
    from joblens.analysis.runs.status import run_label

    if session.json:
        from joblens.app.driving.recovery import Recovery, failures_of

        nothing = Recovery(run, failures_of(session.store, run), (), ())
        session.write_json(nothing.document(is_dry_run=is_dry_run))
    else:
        session.write(f"Run {run_label(run)} is completed: there is nothing to recover\n")


def report_nothing_to_recover(session: Session, recovery: "Recovery") -> None:
    from joblens.analysis.findings.failure_causes import Cause
    from joblens.analysis.runs.status import run_label
    from joblens.app.runs.state import failed_actions
    from joblens.model.values.units import counted

    unknown = sum(one.failure.diagnosis.cause is Cause.UNKNOWN for one in recovery.jobs)
    text = "joblens: nothing can be recovered"
    if not recovery.jobs and failed_actions(session.store, recovery.run.uuid):
        label = run_label(recovery.run)
        text += f": an action's command failed; joblens resume {label} runs it again"
    elif unknown:
        them = "it" if unknown == 1 else "them"
        text += f": {counted(unknown, 'job')} failed for an unknown reason; --retry-unknown runs {them} again"
    session.note(text)


def _wizard(session: Session, usual: RecoveryChoice) -> Choose:
    from joblens.engine.life.recovery_plan import plan_recovery
    from joblens.views.runs.recovery import render_failures

    def choose(failures: tuple[Failure, ...]) -> RecoveryChoice:
        if not failures:
            return usual
        shown = plan_recovery(failures, usual)
        session.write_lines(render_failures(shown, width=session.width, paint=session.palette))
        return ask_for_choice(failures, usual, _ask, lambda text: session.write(f"{text}\n"))

    return choose


def _ask(question: str) -> str:
    """The end of the input means no."""
    try:
        return input(question)
    except EOFError:
        sys.stdout.write("\nNothing changed\n")
        raise click.Abort from None
