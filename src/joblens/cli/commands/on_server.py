"""Changes through a server: `submit`, `rerun`, `resume` and `cancel` with --server. Jobs run as the server's
user, on its machine, in the background; this process follows them."""

import os
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from joblens.cli.context import Session
from joblens.model.errors import InputError

if TYPE_CHECKING:
    from joblens.app.driving.requests import RerunPart
    from joblens.cli.options.table import OptionRow
    from joblens.model.jobs.job import Record
    from joblens.model.runs.run import Run
    from joblens.stores.remote import RemoteStore, ServerConnection

_KEY = "idempotency-key"
_OF_COMMANDS = frozenset(
    {
        *("name", "tool", "script", "external_id", "params", "tags", "cpus", "cpu_list", "memory", "gpus"),
        *("pids", "timeout", "early_signal", "grace", "no_enforce", "interval", "no_monitor", "probes"),
        *("granularity", "output_dir", "accounting", "cwd", "env", "inputs", "outputs", "container"),
        *("container_engine", "container_socket", "container_name", "volumes", "devices"),
        *("container_network", "container_user", "container_workdir", "entrypoint", "pull", "shell"),
        *("notify", "queue", "label", "retry_lost", "wait", "wait_timeout"),
    }
)
_OF_FILES = frozenset({"params", "output_dir", "cwd", "wait", "wait_timeout"})
_OF_RUNS = frozenset({"detach", "quiet"})


def submit(session: Session, values: dict[str, Any]) -> None:
    """Submits a command or a file and prints its id; with --wait the result."""
    if values["tool_name"] is not None:
        raise InputError(
            f"{values['tool_name']} is a tool of this machine, which the server does not know",
            hint="submit a command: joblens submit -- COMMAND",
        )
    if values["spec"] is not None:
        _submit_file(session, values)
    else:
        _submit_command(session, values)


def _submit_command(session: Session, values: dict[str, Any]) -> None:
    from msgspec.structs import replace

    from joblens.app.jobs.requests import current_dir
    from joblens.app.server.changes import SubmitJob
    from joblens.cli.commands.submitted import report_submitted
    from joblens.cli.options.request import request_from
    from joblens.cli.options.run import only_label
    from joblens.model.jobs.job import Record, RetryLost

    server = _server(session)
    _refuse_other_options(values, _OF_COMMANDS)
    request = request_from(values, background=True)
    if request.cwd is None and server.address.scheme == "unix":
        request = replace(request, cwd=current_dir())  # the same machine
    body = SubmitJob(
        request=request,
        queue=values["queue"] or "",
        label=only_label(values),
        retry_lost=RetryLost(values["retry_lost"]) if values["retry_lost"] else None,
    )
    record = server.call("POST", "/store/submit", Record, body, _key())
    report_submitted(session, record, values, session.recover_orphans)


def _submit_file(session: Session, values: dict[str, Any]) -> None:
    from joblens.app.jobs.preparation import parse_params
    from joblens.app.jobs.requests import current_dir
    from joblens.app.workflows.loader import load_spec
    from joblens.model.runs.run import Run

    _refuse_other_options(values, _OF_FILES)
    parameters = parse_params(values["params"])
    loaded = load_spec(values["spec"], parameters, keeps_spec=True)
    for warning in loaded.warnings_for("local"):
        session.warn(warning)
    body = {
        "workflow": loaded.document.value,
        "cwd": os.path.abspath(values["cwd"] or current_dir()),
        "output_dir": values["output_dir"] or "output",
        "parameters": parameters,
    }
    run = _server(session).call("POST", "/runs", Run, body, is_repeatable=False)
    _report(session, run, waits=values["wait"], timeout=values["wait_timeout"])


def rerun_job(session: Session, record: "Record", values: dict[str, Any]) -> None:
    """Runs its command again on the server's machine, copies its output, and exits with its exit code."""
    from joblens.app.jobs.preparation import parse_env
    from joblens.app.jobs.queries import exit_code_of, records_until_final
    from joblens.cli.commands.submitted import report_running, write_form
    from joblens.model.jobs.job import Record

    _refuse_other_options(values, {"env", "quiet", "only"})
    if values["cwd"] is not None:
        raise InputError("--cwd cannot be used on a server", hint="the job runs where it ran before")
    path = f"/jobs/{record.job.uuid}/rerun"
    new = _server(session).call("POST", path, Record, {"env": parse_env(values["env"])}, _key())
    if not values["quiet"]:
        session.note(f"joblens: runs again as job {new.number} on the server's machine")
    output = _Output(session)
    with report_running(session, f"job {new.number}", str(new.number)):
        for known in records_until_final(session.store, new.job.uuid, session.recover_orphans):
            if not session.json:
                output.copy(known)
            new = known
    if session.json:
        write_form(session, new)
    sys.exit(exit_code_of(new))


class _Output:
    """Copies both streams of a job to those of this process."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._readers: dict[str, Any] = {}

    def copy(self, record: "Record") -> None:
        if record.attempt is None or not record.attempt.logs_dir:
            return
        for stream, to in (("stdout", sys.stdout.buffer), ("stderr", sys.stderr.buffer)):
            if stream not in self._readers:
                self._readers[stream] = self._session.open_output(record, stream)
            for chunk in self._readers[stream].read_on():
                to.write(chunk)
                to.flush()


def rerun_run(session: Session, run: "Run", part: "RerunPart", values: dict[str, Any]) -> None:
    """Starts a new run on the server's machine, and waits for it unless --detach."""
    from joblens.app.driving.requests import RerunPart
    from joblens.model.runs.run import Run

    _refuse_other_options(values, _OF_RUNS | {"only"})
    if part is RerunPart.CHANGED:
        raise InputError(
            "--changed compares the file with its present state, which is on the server's machine",
            hint="use --failed, --only or --all",
        )
    body = {"failed": part is RerunPart.FAILED, "only": list(values["only"])}
    new = _server(session).call("POST", f"/runs/{run.uuid}/rerun", Run, body, is_repeatable=False)
    _report(session, new, waits=not values["detach"])


def resume(session: Session, run: "Run", values: dict[str, Any]) -> None:
    """Continues a run on the server's machine, and waits for it unless --detach."""
    from joblens.model.runs.run import Run

    _refuse_other_options(values, _OF_RUNS)
    resumed = _server(session).call("POST", f"/runs/{run.uuid}/resume", Run, is_repeatable=False)
    _report(session, resumed, waits=not values["detach"])


def cancel(remote: "RemoteStore", found: Sequence[Any], is_over: Callable[[Any], bool]) -> None:
    """Jobs by one request, runs and jobs of runs by one each."""
    from joblens.app.queue.watch import TaskGroup
    from joblens.app.runs.state import RunJob
    from joblens.model.jobs.job import Record
    from joblens.model.runs.run import Run

    uuids: list[str] = []
    for one in found:
        if is_over(one):
            continue
        if isinstance(one, TaskGroup):
            uuids += [record.job.uuid for record in one.records]
        elif isinstance(one, Record):
            uuids.append(one.job.uuid)
        elif isinstance(one, RunJob):
            remote.cancel_jobs_of_run(one.run, [one.index])
        else:
            remote.server.call("POST", f"/runs/{one.uuid}/cancel", Run)
    remote.cancel_jobs(uuids)


def _report(session: Session, run: "Run", *, waits: bool, timeout: str | None = None) -> None:
    from joblens.cli.commands.run_spec import report_detached
    from joblens.cli.commands.submitted import await_run

    if not waits or not session.json:
        report_detached(session, run, (), {})
        session.flush()
    if waits:
        await_run(session, run, timeout)


def _server(session: Session) -> "ServerConnection":
    remote = session.remote
    assert remote is not None
    return remote.server


def _key() -> dict[str, str]:
    from joblens.model.values.ids import new_uuid

    return {_KEY: new_uuid()}


def _refuse_other_options(values: dict[str, Any], known: Collection[str]) -> None:
    """Raises InputError for an option that the server cannot follow."""
    for row in _option_rows():
        value = values.get(row.name)
        if row.name not in known and value not in (None, (), False, "", row.default):
            raise InputError(
                f"{row.flags[-1]} cannot be used here on a server",
                hint="use it on the machine with the store, without --server and JOBLENS_SERVER",
            )


def _option_rows() -> "list[OptionRow]":
    from joblens.cli.options.run import DRIVE_OPTIONS, OFFER_OPTIONS
    from joblens.cli.options.table import JOB_OPTIONS, QUEUE_OPTIONS, SPEC_OPTIONS

    return [*JOB_OPTIONS, *SPEC_OPTIONS, *QUEUE_OPTIONS, *OFFER_OPTIONS, *DRIVE_OPTIONS]
