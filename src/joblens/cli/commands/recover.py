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
from joblens.views.text.numbers import counted

if TYPE_CHECKING:
    from joblens.agent.runtime.ownership import RunLock
    from joblens.app.driving.checks import RunRequest
    from joblens.app.driving.driver import RunOutcome
    from joblens.app.driving.recovery import RunFailures
    from joblens.app.workflows.loader import LoadedSpec
    from joblens.engine.life.recovery_plan import JobRecovery
    from joblens.model.runs.plan import Plan
    from joblens.model.runs.run import Run


# shows the question and returns the typed line; raises EOFError at the end of the input
Ask = Callable[[str], str]
Say = Callable[[str], None]
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
    """Only a yes counts."""
    return ask(f"{question} (y/N): ").strip().lower() in ("y", "yes")


F = TypeVar("F", bound=Callable[..., Any])


class RecoveryRequest(Struct, frozen=True):
    """Options of the command line."""

    choice: "RecoveryChoice"
    hook: tuple[str, ...] = ()


class Prepared(Struct, frozen=True):
    """A recovery that was decided and not yet written."""

    run: "Run"
    found: "RunFailures"
    jobs: "tuple[JobRecovery, ...]"
    to_run: tuple[int, ...]

    @property
    def has_work(self) -> bool:
        return any(one.is_retried for one in self.jobs) or bool(self.to_run)

    def document(self, *, is_dry_run: bool = False) -> dict[str, Any]:
        from joblens.app.driving.recovery import recovery_document

        return recovery_document(self.run, self.found, self.jobs, self.to_run, is_dry_run=is_dry_run)


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


def request_from(given: dict[str, Any]) -> RecoveryRequest:
    """Raises InputError."""
    from joblens.app.driving.recovery import parse_hook
    from joblens.engine.life.recovery_plan import RecoveryChoice

    hook = given["recovery_hook"]
    choice = RecoveryChoice(
        memory_multiplier=multiplier_of("--memory-multiplier", given["memory_multiplier"]),
        runtime_multiplier=multiplier_of("--runtime-multiplier", given["runtime_multiplier"]),
        # A hook is for failures of unknown cause.
        retry_unknown=given["retry_unknown"] or hook is not None,
    )
    return RecoveryRequest(choice, () if hook is None else parse_hook(hook))


@click.command(cls=GroupedCommand)
@run_argument
@recovery_options
@click.option("--no-prompts", is_flag=True, help="Do not ask for confirmation.")
@click_options(DRIVE_OPTIONS)
@shared_options
def command(session: Session, /, ident: str, **given: Any) -> int:
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

    request = request_from(given)
    session.own_runs()
    store = session.current_store
    run = find_named_run(store, ident, session.note)
    refuse_command(run, store)
    if run.status is RunStatus.COMPLETED:
        _report_nothing_failed(session, run, is_dry_run=given["dry_run"])
        return 0
    if given["dry_run"]:
        prepared = decide(session, run, request)
        if session.json:
            session.write_json(prepared.document(is_dry_run=True))
        else:
            show(session, prepared)
            session.write("Nothing changed\n")
        return 0
    with hold_run(run, store, session.settings) as lock:
        choose = None if given["no_prompts"] or not session.is_interactive else _wizard(session)
        prepared = decide(session, store.find_run(run.uuid), request, choose)
        if not session.json and not given["quiet"]:
            show(session, prepared)
        if not prepared.has_work:
            if session.json:
                session.write_json(prepared.document())
            report_nothing_to_recover(session, prepared)
            return 1
        if choose is not None and not confirm("Run the recovery?", _ask):
            session.write("Nothing changed\n")
            return 1
        recovered = carry_out(session, prepared, request)
        if given["detach"]:
            from joblens.cli.commands.run_spec import detach

            lock.release()
            detach(session, recovered, recovered.options.notify, also={"recovery": prepared.document()})
            return 0
        driven = drive_recovered(session, recovered, prepared, lock, quiet=given["quiet"])
    if not session.json and not given["quiet"]:
        _hint_at_rightsize(session, prepared, driven)
    return exit_code_of(driven)


def _hint_at_rightsize(session: Session, prepared: Prepared, driven: "RunOutcome") -> None:
    """The file still has the earlier requests. If jobs failed again for the same reason, the end of the
    run says so."""
    from joblens.analysis.runs.status import run_label
    from joblens.app.driving.summary import ending_of
    from joblens.app.workflows.loader import source_of
    from joblens.engine.life.recovery_plan import requests_of

    if not requests_of(prepared.jobs) or not source_of(session.store, prepared.run):
        return
    if not ending_of(session.store, driven).has_too_small:
        label = run_label(prepared.run)
        session.write(f"  joblens rightsize {label} --write writes the measured needs into the file\n")


def decide(
    session: Session,
    run: "Run",
    request: RecoveryRequest,
    choose: "Callable[[tuple[Failure, ...], RecoveryChoice], RecoveryChoice] | None" = None,
) -> Prepared:
    """Diagnoses the failures and limits requests to the capacity of the run's engine. Writes nothing."""
    from joblens.app.driving.recovery import failures_of, fit_to_engine, jobs_to_run
    from joblens.engine.life.recovery_plan import plan_recovery

    found = failures_of(session.store, run)
    choice = request.choice
    if choose is not None and found.failures:
        choice = choose(found.failures, choice)
    jobs = plan_recovery(found.failures, choice)
    whole, loaded = resumable(session, run)

    def check(raised: "Plan") -> None:
        loaded.plan = raised
        with session.runs.validated(_held(whole, loaded, jobs_to_run(found, jobs))):
            pass

    if any(one.is_retried for one in jobs):
        jobs = fit_to_engine(loaded.plan, jobs, check)
    return Prepared(run, found, jobs, jobs_to_run(found, jobs))


def resumable(session: Session, run: "Run") -> "tuple[Run, LoadedSpec]":
    """Returns the run as it was created, with its secrets and added jobs."""
    from joblens.app.runs.specs import hide_secrets, whole_run
    from joblens.app.workflows.loader import grown_plan, loaded_run

    whole = whole_run(run, session.store, session.settings)
    loaded = loaded_run(whole)
    loaded.plan = grown_plan(loaded, whole)
    return replace(whole, options=hide_secrets(loaded, whole.options)), loaded


def carry_out(session: Session, prepared: Prepared, request: RecoveryRequest) -> "Run":
    """Runs the hook, then writes the decision. Raises RecoveryRefused. Returns the run, ready to be
    resumed."""
    from joblens.analysis.findings.failure_causes import Cause
    from joblens.app.driving.recovery import reset_jobs, run_hook
    from joblens.app.wiring.agent_context import current_user
    from joblens.engine.life.recovery_plan import requests_of

    run = prepared.run
    retried = [one.failure for one in prepared.jobs if one.is_retried]
    unknown = [one for one in retried if one.diagnosis.cause is Cause.UNKNOWN]
    if request.hook and unknown:
        run_hook(request.hook, run, unknown, session.settings, lambda text: session.note(f"joblens: {text}"))
    if retried:
        jobs = [(one.index, one.attempt) for one in retried]
        direct = session.connection.to_write().direct()
        reset_jobs(direct, run, jobs, requests_of(prepared.jobs), current_user())
    return session.store.find_run(run.uuid)


def _held(run: "Run", loaded: "LoadedSpec", left: tuple[int, ...]) -> "RunRequest":
    """Resumes the run whose lock this process holds."""
    from joblens.app.driving.checks import RunRequest

    return RunRequest(loaded=loaded, options=run.options, resumed=run, is_held=True, left=left)


def drive_recovered(
    session: Session, run: "Run", prepared: Prepared, lock: "RunLock", *, quiet: bool
) -> "RunOutcome":
    from joblens.cli.commands.run_spec import drive_to_end

    whole, loaded = resumable(session, run)
    whole = session.runs.prepare(_held(whole, loaded, prepared.to_run))
    also = {"recovery": prepared.document()}
    notify = whole.options.notify
    return drive_to_end(session, whole, loaded.plan, quiet=quiet, notify=notify, lock=lock, also=also)


# ---- text -----------------------------------------------------------------------------------------------


def show(session: Session, prepared: Prepared) -> None:
    from joblens.views.runs.recovery import render_failures, render_plan

    if not prepared.jobs:
        session.write("No job failed\n")
    else:
        width = session.width if session.is_terminal else None
        session.write_lines(render_failures(prepared.jobs, width=width, paint=session.palette))
    names = prepared.found.names(prepared.to_run)
    session.write_lines(render_plan(prepared.jobs, names, width=session.table_width))


def _report_nothing_failed(session: Session, run: "Run", *, is_dry_run: bool) -> None:
    from joblens.analysis.runs.status import run_label

    if session.json:
        from joblens.app.driving.recovery import failures_of

        nothing = Prepared(run, failures_of(session.store, run), (), ())
        session.write_json(nothing.document(is_dry_run=is_dry_run))
    else:
        session.write(f"Run {run_label(run)} is completed: there is nothing to recover\n")


def report_nothing_to_recover(session: Session, prepared: Prepared) -> None:
    from joblens.analysis.findings.failure_causes import Cause
    from joblens.analysis.runs.status import run_label
    from joblens.app.runs.state import failed_actions
    from joblens.views.text.numbers import counted

    unknown = sum(one.failure.diagnosis.cause is Cause.UNKNOWN for one in prepared.jobs)
    text = "joblens: nothing can be recovered"
    if not prepared.jobs and failed_actions(session.store, prepared.run.uuid):
        label = run_label(prepared.run)
        text += f": an action's command failed; joblens resume {label} runs it again"
    elif unknown:
        them = "it" if unknown == 1 else "them"
        text += f": {counted(unknown, 'job')} failed for an unknown reason; --retry-unknown runs {them} again"
    session.note(text)


def _wizard(session: Session) -> "Callable[[tuple[Failure, ...], RecoveryChoice], RecoveryChoice]":
    from joblens.engine.life.recovery_plan import plan_recovery
    from joblens.views.runs.recovery import render_failures

    def choose(failures: "tuple[Failure, ...]", usual: "RecoveryChoice") -> "RecoveryChoice":
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
