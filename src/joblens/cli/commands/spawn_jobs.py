"""`joblens spawn-jobs`: adds jobs to the run of the calling job."""

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from joblens.cli.context import Session
from joblens.cli.options.common import complete_run, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.errors import BatchRefused, InputError, SpecError
from joblens.model.values.json_text import decode_json

if TYPE_CHECKING:
    from joblens.app.runs.spawn import LineageState
    from joblens.spec.workflows.file import SpawnReading

_MOST_BYTES = 16 << 20


@click.command("spawn-jobs", cls=GroupedCommand)
@click.argument("file", required=False)
@click.option(
    "--lineage",
    metavar="NAME",
    help="Loop that the jobs belong to. Default: the calling job's loop, else its name.",
)
@click.option("--state", metavar="JSON", help="State of the lineage; overrides the one in FILE.")
@click.option("--final", is_flag=True, help="Add no jobs and store the state as final.")
@click.option(
    "--show", is_flag=True, help="Print the iteration and state of the lineage without adding jobs."
)
@click.option(
    "--run",
    "ident",
    metavar="RUN",
    shell_complete=complete_run,
    help="With --show: run to use. Default: the run of the calling job.",
)
@shared_options
def command(
    session: Session,
    file: str | None,
    lineage: str | None,
    state: str | None,
    final: bool,
    show: bool,
    ident: str | None,
) -> None:
    """Add the jobs of FILE (or - for standard input) to the run of the calling job.

    FILE is JSON or YAML: {lineage: NAME, jobs: [...], state: ...}, or only the list of jobs. Jobs have
    the same keys as in a workflow file. They wait until the calling job has succeeded. Spawning the same
    batch twice changes nothing; an empty list of jobs stores the final state.
    """
    if show:
        _show(session, lineage, ident, is_alone=file is None and state is None and not final)
        return
    if ident is not None:
        raise InputError("--run needs --show", hint="a job adds jobs to its own run")
    if final == (file is not None):
        raise InputError(
            "give a FILE with the jobs, or - for standard input", hint="--final stores a state without jobs"
        )
    _spawn(session, file, lineage, state)


def _spawn(session: Session, file: str | None, lineage: str | None, state: str | None) -> None:
    import os

    from joblens.app.runs.spawn import Caller, spawn_in_run
    from joblens.spec.workflows.file import SpawnReading

    caller = Caller.of(os.environ)
    own_state = _parsed_state(state) if state is not None else None
    reading = SpawnReading() if file is None else _read(file)
    spawned = _located_errors(
        file,
        lambda: spawn_in_run(
            session.store,
            session.settings,
            caller,
            reading.jobs,
            lineage=lineage if lineage is not None else reading.lineage,
            state=own_state if state is not None else reading.state,
        ),
    )
    if session.json:
        session.write_json(msgspec.to_builtins(spawned))
        return
    count = len(spawned.created)
    what = f"Added {count:,} {'job' if count == 1 else 'jobs'}" if count else "Stored the final state"
    if spawned.existing:
        what = f"All {len(spawned.existing):,} jobs already exist: nothing changed"
    from joblens.views.text.style import clean

    session.write(f"{what} (lineage {clean(spawned.lineage)}, iteration {spawned.iteration})\n")


def _parsed_state(text: str) -> Any:
    try:
        return decode_json(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InputError(
            f"--state is not JSON ({error})", hint="""text needs its own quotes: '"like this"'"""
        ) from error


_TEXTS: dict[str, tuple[str, str]] = {}  # text and format of the file, for positions


def _read(file: str) -> "SpawnReading":
    from joblens.app.workflows.loader import read_text_of
    from joblens.spec.formats.documents import read_document
    from joblens.spec.workflows.file import placed, read_spawn

    hint = "a batch has jobs: {jobs: [{name: a, command: b}]}"
    text = sys.stdin.read(_MOST_BYTES + 1) if file == "-" else read_text_of(file, kind="batch", hint=hint)
    if len(text) > _MOST_BYTES:
        raise InputError(
            f"the batch is larger than {_MOST_BYTES >> 20} MiB", hint="add fewer jobs in each call"
        )
    if not text.strip():
        raise InputError("the batch is empty", hint=hint)
    form = _format_of(file, text)
    document = read_document(text, form)
    problems = list(document.problems)
    if not problems:
        reading = read_spawn(document.value)
        problems = placed(document, reading.problems)
        if not problems:
            _TEXTS[file] = (text, form)
            return reading
    name = "the batch" if file == "-" else file
    raise SpecError.of(name, [f"{name}:{one.mark.line}:{one.mark.column}: {one.message}" for one in problems])


def _format_of(file: str, text: str) -> str:
    from joblens.spec.formats.documents import format_of, has_known_ending

    if has_known_ending(file):
        return format_of(file, text)
    return "json" if text.lstrip()[:1] in ("{", "[") else "yaml"


def _located_errors(file: str | None, call: Any) -> Any:
    """Problems of a batch are shown with their lines."""

    try:
        return call()
    except BatchRefused as refused:
        if file not in _TEXTS:
            raise
        from joblens.app.workflows.loader import mark_of
        from joblens.spec.formats.documents import read_document

        document = read_document(*_TEXTS[file])
        is_list = isinstance(document.value, list)
        name = "the batch" if file == "-" else file
        lines = []
        for path, text in refused.found:
            mark = mark_of(document, path[1:] if is_list else path)
            lines.append(f"{name}:{mark.line}:{mark.column}: {text}")
        raise SpecError.of(name, lines) from None


def _show(session: Session, lineage: str | None, ident: str | None, *, is_alone: bool) -> None:
    import os

    from joblens.app.runs.spawn import Caller, all_lineages, check_lineage, lineage_state
    from joblens.app.runs.user_data import run_or_own

    if not is_alone:
        raise InputError("--show cannot be combined with FILE, --state or --final")
    run = run_or_own(session.store, ident)
    if lineage is not None:
        if ident is not None:
            check_lineage(run, lineage)
        found = [lineage_state(run, lineage, session.settings)]
    elif ident is None:
        found = [lineage_state(run, Caller.of(os.environ).lineage, session.settings)]
    else:
        found = all_lineages(run, session.settings)
    if session.json:
        form = [msgspec.to_builtins(one) for one in found]
        session.write_json(form if ident is not None and lineage is None else form[0])
        return
    if not found:
        session.write("No job has added any.\n")
    for one in found:
        session.write(_line(one))


def _line(found: "LineageState") -> str:
    from joblens.views.text.style import clean

    end = ", final" if found.is_final else ""
    state = clean(msgspec.json.encode(found.state).decode())
    return f"{clean(found.lineage)}: iteration {found.iteration}{end}, state {state}\n"
