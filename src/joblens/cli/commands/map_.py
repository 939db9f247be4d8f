"""`joblens map`: one command for many values, without a workflow file."""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from joblens.cli.context import Session
from joblens.cli.options.common import click_options, count_from, shared_options
from joblens.cli.options.groups import MAP_GROUPS, GroupedCommand
from joblens.cli.options.request import ENGINE_OPTIONS_OF_RUNS, QUEUE_OPTIONS_OF_RUNS, engine_options
from joblens.cli.options.run import check_offer, checked_probes, take_queue_options
from joblens.model.errors import InputError, JoblensError

if TYPE_CHECKING:
    from joblens.agent.runs.view import RunView
    from joblens.app.workflows.loader import LoadedSpec
    from joblens.engine.schedule.capacity import RunCapacity
    from joblens.model.runs.plan import Plan
    from joblens.model.runs.run import Run


@click.command(
    "map", context_settings={"allow_interspersed_args": False}, cls=GroupedCommand, groups=MAP_GROUPS
)
@click.option("-j", "--jobs", type=count_from(1), metavar="N", help="Run at most N jobs at once.")
@click.option("--cpus", type=float, metavar="N", help="CPU request and limit per job.")
@click.option("--memory", metavar="SIZE", help="Memory request and limit per job: 512m, 2g.")
@click.option("--timeout", metavar="TIME", help="Time limit per job: 90, 30s, 1h30m.")
@click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUES",
    help="Values for {NAME}: x=1:10, x=a,b,c.",
)
@click.option("--name", metavar="TEXT", help="Workflow name; an existing workflow gets another run.")
@click.option(
    "--probes", metavar="LIST", help="Optional probes: all, none, a list of names, +memory, -network."
)
@click.option("-k", "--keep-order", is_flag=True, help="Print output in the order of the values.")
@click.option(
    "-o", "--output-dir", metavar="DIR", help="Directory for job output. Default: next to the store."
)
@click.option(
    "-n", "--dry-run", is_flag=True, help="Check everything and print the commands without running them."
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the jobs' output.")
@click_options((*ENGINE_OPTIONS_OF_RUNS, *QUEUE_OPTIONS_OF_RUNS))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND ::: VALUES")
@shared_options
def command(
    session: Session,
    /,
    *,
    arguments: tuple[str, ...],
    jobs: int | None,
    cpus: float | None,
    memory: str | None,
    timeout: str | None,
    params: tuple[str, ...],
    name: str | None,
    probes: str | None,
    keep_order: bool,
    output_dir: str | None,
    dry_run: bool,
    quiet: bool,
    **of_engine: Any,
) -> int:
    """Run COMMAND once per value: joblens map 'gzip -k {}' ::: *.txt

    ::: a b ::: c d makes all pairs; :::+ pairs values with the source before it; :::: FILE reads values
    from a file, one per line (:::: - from standard input).

    {} is the value, {1} the value of the first source, {name} the value of a --param or of a source with
    named values. A COMMAND of one word is a shell line, and values are quoted; several words run without
    a shell. The COMMAND '{}' runs the values themselves: joblens map '{}' :::: commands.txt
    """
    from joblens.app.driving.checks import RunRequest
    from joblens.app.driving.sweep import (
        EachJob,
        lines_of_file,
        output_dir_of,
        parameter_sources,
        spec_of,
        workflow_without_file,
    )
    from joblens.app.jobs.requests import current_dir, seconds_of
    from joblens.app.queue.notifiers import with_broker
    from joblens.model.runs.run import RunOptions
    from joblens.plan.commands.command_lines import mapped_jobs, refuse_misplaced, split_words

    refuse_misplaced(arguments, _long_options())
    check_offer({"cpus": cpus, "memory": memory, "time": None, "output_dir": output_dir})
    timeout_s = seconds_of("--timeout", timeout)
    if timeout_s is not None and not timeout_s > 0:
        raise InputError(f"--timeout {timeout}: must be more than 0")
    engine = engine_options(of_engine)
    session.own_runs()
    take_queue_options(session, of_engine)
    probe_choice = checked_probes(probes)
    words, sources = split_words(arguments, lines_of_file)
    mapped = mapped_jobs(words, [*parameter_sources(params), *sources])
    title = name or os.path.basename(words[0].split()[0] if words[0].split() else "map")
    loaded = spec_of(title, mapped, EachJob(cpus=cpus, memory=memory, timeout=timeout))
    options = RunOptions(
        output_dir=output_dir_of(session.settings, output_dir),
        cwd=current_dir(),
        most_jobs=jobs,
        probes=probe_choice,
        **engine,
    )
    options = with_broker(options, session.settings)
    store = session.store_if_exists if name is not None else None
    workflow = None if store is None else workflow_without_file(store, loaded.plan.name)
    request = RunRequest(loaded=loaded, options=options, workflow=workflow or "")
    if dry_run:
        with session.runs.validated(request):
            pass
        if session.json:
            session.write_json([{"name": job.name, "command": job.command} for job in mapped])
        else:
            session.write_lines([job.command for job in mapped])
        return 0
    run = session.runs.prepare(request)
    return _drive(session, run, loaded, keeps_order=keep_order, quiet=quiet)


def _long_options() -> frozenset[str]:
    """Returns long options of map itself; short ones such as -n may well be values."""
    options = click.get_current_context().command.params
    return frozenset(name for option in options for name in option.opts if name.startswith("--"))


def _drive(session: Session, run: "Run", loaded: "LoadedSpec", *, keeps_order: bool, quiet: bool) -> int:
    from joblens.agent.runs.view import NoView
    from joblens.analysis.runs.status import run_label
    from joblens.app.driving.summary import ending_document
    from joblens.cli.commands.run_spec import exit_code_of
    from joblens.cli.ui.sweep import MapView
    from joblens.model.runs.run import JobState

    def say(text: str) -> None:
        session.note(f"joblens: {text}")

    def make_view(_run: "Run", plan: "Plan", _offer: "RunCapacity") -> "RunView":
        if session.json:
            return NoView()
        return MapView(keeps_order=keeps_order, count=len(plan.jobs), say=None if quiet else say)

    session.own_jobs()
    driven = session.runs.drive(run, loaded.plan, make_view=make_view)
    if session.json:
        try:
            session.write_json(ending_document(session.store, driven))
        except JoblensError as error:  # the store is gone, but the outcome of the run is known
            session.warn(str(error))
    elif not quiet:
        completed = driven.counts().get(JobState.COMPLETED, 0)
        if completed < len(loaded.plan.jobs) or sys.stderr.isatty():
            say(f"{completed:,} of {len(loaded.plan.jobs):,} jobs done: joblens results {run_label(run)}")
    return exit_code_of(driven)
