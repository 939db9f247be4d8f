"""`joblens rightsize`: suggests resource requests for a workflow's jobs, and writes them to its file."""

from typing import TYPE_CHECKING

import click

from joblens.cli.context import Session
from joblens.cli.options.common import complete_run, count_from, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.errors import InputError

if TYPE_CHECKING:
    from joblens.analysis.sizing.observations import Strategy
    from joblens.app.reports.rightsize_files import EditedSpec, SpecFile
    from joblens.app.reports.rightsizing import Sizing

_THE_SAME = "\0"  # --write without a file: the workflow's own file


@click.command("rightsize", cls=GroupedCommand)
@click.argument("ident", metavar="RUN", required=False, shell_complete=complete_run)
@click.option(
    "--jobs",
    "names",
    metavar="NAME",
    multiple=True,
    help="Use jobs with this name, not a run: single commands or imported jobs; * and ? match.",
)
@click.option(
    "--write",
    "write_to",
    metavar="[SPEC]",
    is_flag=False,
    flag_value=_THE_SAME,
    help="Write the advice to the workflow file, or to SPEC. Keeps comments and order.",
)
@click.option("--diff", is_flag=True, help="Print the changes of --write as a unified diff, without writing.")
@click.option("--add", is_flag=True, help="Also add requests that the file does not set.")
@click.option("--force", is_flag=True, help="Also lower requests that rest on few runs (low confidence).")
@click.option(
    "--strategy",
    type=click.Choice(["max-seen", "min-waste", "max-throughput"]),
    default="max-seen",
    show_default=True,
    help="How to choose memory. All but 'max-seen' rely on retrying jobs with more memory.",
)
@click.option("--runs", type=count_from(1), metavar="N", help="Use only the newest N runs.")
@shared_options
def command(
    session: Session,
    *,
    ident: str | None,
    names: tuple[str, ...],
    write_to: str | None,
    diff: bool,
    add: bool,
    force: bool,
    strategy: str,
    runs: int | None,
) -> None:
    """Suggest resource requests for the jobs of a workflow, from all its runs; or for jobs with a name.

    Memory is 10 to 20 % above the peak, runtime 15 to 30 % above the longest, CPUs the next whole number;
    more after a job ran out of memory or time.
    """
    from joblens.analysis.sizing.observations import Strategy
    from joblens.app.reports.rightsize_files import edited, open_spec, replace_file
    from joblens.app.reports.rightsizing import size_workflow
    from joblens.app.runs.lookup import find_named_run

    store = session.current_store
    if names or ident is None:
        if ident is not None or not names:
            raise InputError("give a RUN, or --jobs NAME")
        if write_to is not None or diff or add or force or runs is not None:
            raise InputError(
                "--jobs selects jobs without a workflow file: --write, --diff and --runs need a run"
            )
        _size_jobs(session, names, Strategy(strategy))
        return
    run = find_named_run(store, ident, session.note)
    wants_file = diff or write_to is not None
    file = None
    if wants_file:
        path = None if write_to in (None, _THE_SAME) else write_to
        file = open_spec(path, store.find_workflow(run.workflow_uuid), run)
    elif add or force:
        name = "--add" if add else "--force"
        raise InputError(f"{name} needs --write or --diff")
    sizing = size_workflow(
        store,
        run,
        strategy=Strategy(strategy),
        most_runs=runs,
        file=file if file is not None and file.is_changed else None,
    )
    forces = force or _is_set("strategy")
    change = None if file is None else edited(file, sizing.groups, adds=add, forces=forces)
    if file is not None and change is not None and not diff and change.text != file.text:
        replace_file(file, change.text)
    if session.json:
        session.write_json(_form(sizing, file, change, is_written=wants_file and not diff))
    elif file is not None and change is not None and diff:
        _show_diff(session, file, change.text)
        is_unchanged = change.text == file.text and not change.kept
        if is_unchanged and not _report_skipped(session, sizing, adds=add):
            session.note(f"joblens: {file.path} already has these values")
        _report_reused(session, change)
        if write_to is not None:
            session.note(f"joblens: --diff writes nothing; {file.path} is unchanged")
    else:
        _show(session, sizing)
        if file is not None and change is not None:
            _report_written(session, sizing, file, change, adds=add)


def _size_jobs(session: Session, names: tuple[str, ...], strategy: "Strategy") -> None:
    from joblens.analysis.slurm.efficiency import is_rounded_for_sbatch, sbatch_options
    from joblens.app.reports.rightsizing import size_jobs
    from joblens.model.values.units import counted
    from joblens.views.runs.rightsize import group_form, render_group

    sizing = size_jobs(session.current_store, names, strategy=strategy)
    if session.json:
        forms = [{**group_form(group), "sbatch": sbatch_options(group)} for group in sizing.groups]
        session.write_json({"jobs": sizing.jobs, "groups": forms})
        return
    session.write(f"{counted(sizing.jobs, 'job')} by name\n")
    for group in sizing.groups:
        session.write_lines(["", *render_group(group, width=session.width, paint=session.palette)])
        if options := sbatch_options(group):
            session.write(f"  for sbatch: {options}\n")
            if is_rounded_for_sbatch(group):
                session.write("    Slurm's times are whole minutes.\n")
    if not sizing.groups:
        session.write("\nNone of them was measured.\n")


def _is_set(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is not click.core.ParameterSource.DEFAULT


def _show(session: Session, sizing: "Sizing") -> None:
    from joblens.model.values.units import counted
    from joblens.views.jobs.summary import finding_lines
    from joblens.views.runs.rightsize import render_group
    from joblens.views.text.style import clean

    runs = counted(len(sizing.runs), "run")
    session.write(f"Workflow {clean(sizing.workflow.name)} ({sizing.workflow.number}), {runs}\n")
    for group in sizing.groups:
        lines = render_group(group, width=session.width, paint=session.palette)
        session.write_lines(["", *lines])
    if not sizing.groups:
        session.write("\nNothing was measured yet: none of its jobs has ended.\n")
    if sizing.groups and sizing.unseen:
        session.write(f"\nNever measured: {', '.join(map(clean, sizing.unseen))}\n")
    for finding in sizing.findings:
        session.write_lines(["", *finding_lines(finding, session.palette, session.width, indent="")])


def _show_diff(session: Session, file: "SpecFile", text: str) -> None:
    import difflib

    lines = difflib.unified_diff(
        file.text.splitlines(keepends=True), text.splitlines(keepends=True), file.path, file.path
    )
    colours = {"-": "red", "+": "green", "@": "cyan"}
    for line in lines:
        body, end = line.rstrip("\r\n"), "" if line.endswith("\n") else "\n\\ No newline at end of file"
        colour = colours.get(line[:1])
        session.write(f"{session.palette.paint(body, colour) if colour else body}{end}\n")


def _report_written(
    session: Session, sizing: "Sizing", file: "SpecFile", change: "EditedSpec", *, adds: bool
) -> None:
    from joblens.views.text.style import clean

    session.write("\n")
    if change.text == file.text:
        session.write(f"{file.path}: nothing to change\n")
    else:
        session.write(f"{file.path}: written\n")
        for one in change.changes:
            before = "not written" if one.before is None else one.before
            session.write(f"  {clean(one.group)}: {one.key} {before} → {one.after}\n")
    for note in change.notes:
        session.write(f"  {note}\n")
    _report_reused(session, change)
    if file.is_changed:
        session.note(
            f"joblens: {file.path} has changed since run {sizing.run.number}; "
            "groups and jobs were matched by name"
        )
    _report_skipped(session, sizing, adds=adds)


def _report_skipped(session: Session, sizing: "Sizing", *, adds: bool) -> bool:
    """Returns whether the file lacks requests that there is advice for."""
    bare = [
        group.group.name
        for group in sizing.groups
        if any(part.current is None for part in group.advice) and not adds
    ]
    if bare:
        session.note(
            f"joblens: requests missing from the file were skipped; use --add to add them: {', '.join(bare)}"
        )
    return bool(bare)


def _report_reused(session: Session, change: "EditedSpec") -> None:
    if change.kept:
        session.note(
            f"joblens: too few runs to lower requests of: {', '.join(change.kept)}; "
            "run it again, or use --force"
        )


def _form(
    sizing: "Sizing", file: "SpecFile | None", change: "EditedSpec | None", *, is_written: bool
) -> dict[str, object]:
    from msgspec import to_builtins

    from joblens.views.runs.rightsize import group_form

    form: dict[str, object] = {
        "workflow_id": sizing.workflow.number,
        "workflow": sizing.workflow.name,
        "runs": list(sizing.runs),
        "groups": [group_form(group) for group in sizing.groups],
        "unseen": list(sizing.unseen),
        "findings": to_builtins(sizing.findings),
    }
    if file is not None and change is not None:
        changed = change.text != file.text
        form["file"] = {
            "path": file.path,
            "changed": changed,
            "written": changed and is_written,
            "retries": list(change.notes),
            "kept": list(change.kept),
            "changes": to_builtins(change.changes),
            "text": change.text,
        }
    return form
