"""`joblens wait`: until jobs have ended."""

import time

import click

from joblens.cli.arguments import jobs_argument
from joblens.cli.context import Session
from joblens.cli.options import shared_options

_TIMED_OUT = 124


@click.command("wait")
@jobs_argument
@click.option("--timeout", metavar="TIME", help="Give up after this long (exit code 124); the jobs go on.")
@shared_options
def command(session: Session, idents: tuple[str, ...], timeout: str | None) -> int:
    """Wait until the jobs have ended. The exit code is the job's; of several, the first that is not 0."""
    from joblens.app.queries import exit_code_of, find, wait_for_end
    from joblens.app.requests import seconds_of

    timeout_s = seconds_of("--timeout", timeout)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    store = session.current_store
    # an unknown id is told at once, not after the first job has ended
    uuids = [find(store, ident).job.uuid for ident in idents]
    ended = []
    for uuid in uuids:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        record = wait_for_end(store, uuid, left_s, session.care)
        if not record.status.is_final:
            passed = f"{timeout}s" if timeout and timeout[-1].isdigit() else timeout
            session.note(f"joblens: job {uuid} is still {record.status.value} after {passed}")
            return _TIMED_OUT
        ended.append(record)
    if session.json:
        from joblens.analysis.history_form import to_history_record

        forms = [to_history_record(record) for record in ended]
        session.write_json(forms[0] if len(forms) == 1 else forms)
    return next((code for code in map(exit_code_of, ended) if code), 0)
