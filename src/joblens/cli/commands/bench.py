"""`joblens bench`: compares commands, runs benchmarks of tools, and shows the results."""

from typing import TYPE_CHECKING, Any, Self

import click

from joblens.cli.context import Session
from joblens.cli.options.common import count_from, shared_options
from joblens.cli.options.groups import BENCH_GROUPS, GroupOfCommands
from joblens.model.errors import BenchmarkError, InputError
from joblens.model.history import BENCH_TAG

if TYPE_CHECKING:
    from joblens.app.bench.comparison import AbPlan, AbProgress
    from joblens.app.bench.runner import BenchmarkRunner

_NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_GIVES_COMMANDS = ("--command", "-c", "--baseline", "-b")


class BenchGroup(GroupOfCommands):
    """`bench -- CMD` is `bench ab -- CMD`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        has_subcommand = bool(args) and args[0] in self.commands
        gives_commands = any(word == "--" or word.split("=")[0] in _GIVES_COMMANDS for word in args)
        try:
            return super().parse_args(ctx, ["ab", *args] if gives_commands and not has_subcommand else args)
        except click.NoSuchOption as error:
            raise self._behind_dashes(ctx, error) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise self._behind_dashes(ctx, error) from None

    def _behind_dashes(self, ctx: click.Context, error: click.UsageError) -> click.UsageError:
        text = error.format_message().rstrip(".")
        return click.UsageError(
            f"{text}; a command to measure goes after --: joblens bench [OPTIONS] -- COMMAND", ctx
        )


@click.group("bench", cls=BenchGroup)
def command() -> None:
    """Compare commands with each other, or run a tool's own benchmark.

    'joblens bench -- CMD' measures a command repeatedly; --baseline 'CMD' or --command 'CMD' (repeatable)
    add commands to compare it with. 'bench ab' is the long form.
    """


_results_dir = click.option(
    "--results-dir", metavar="DIR", help="Directory of results. Default: benchmarks/ next to the store."
)


@command.command("ab", groups=BENCH_GROUPS, context_settings={"allow_interspersed_args": False})
@click.option("-b", "--baseline", metavar="CMD", help="Command to compare the others with.")
@click.option(
    "-c", "--command", "lines", multiple=True, metavar="CMD", help="Command to measure. Repeatable."
)
@click.option(
    "-N",
    "--name",
    "names",
    multiple=True,
    metavar="TEXT",
    help="Name of a command, in the order given. Repeatable.",
)
@click.option("-n", "--runs", type=count_from(1), metavar="N", help="Run each command exactly N times.")
@click.option(
    "--max-runs",
    type=count_from(1),
    default=1000,
    metavar="N",
    help="Run each command at most N times. Default: 1000.",
)
@click.option("-w", "--warmup", type=count_from(0), default=1, metavar="N", help="Warm-up runs. Default: 1.")
@click.option(
    "-t",
    "--time",
    "time_text",
    default="60s",
    metavar="TIME",
    help="Time limit; starts no round that would exceed it. Default: 60s.",
)
@click.option(
    "--precision",
    default="2%",
    metavar="SHARE",
    help="Stop when the confidence interval is this narrow. Default: 2%.",
)
@click.option(
    "--confidence", default="95%", metavar="SHARE", help="Confidence level of intervals. Default: 95%."
)
@click.option("--prepare", metavar="CMD", help="Run CMD before each run, unmeasured.")
@click.option("--seed", type=int, metavar="N", help="Random seed, to repeat the same order.")
@click.option("-i", "--ignore-failure", is_flag=True, help="Count failed runs like any other.")
@click.option("--title", default="", metavar="TEXT", help="Title of the result.")
@click.option("-o", "--report", metavar="FILE", help="Write a report: .html or .md.")
@click.option("--no-save", is_flag=True, help="Do not save the result.")
@_results_dir
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND…]")
@shared_options
def ab(session: Session, /, **values: Any) -> int:
    """Run commands alternately until it is clear how they compare. Give one command after --, others as
    options.

    Every round runs each command once, in random order, and measures wall time, CPU, memory and I/O.
    Stops when the confidence interval is narrow enough, or at the time limit.
    """
    from joblens.app.bench.comparison import check_ab, run_ab
    from joblens.app.bench.runner import check_report_path

    plan = _plan(values)
    check_ab(plan)
    report = values["report"]
    if report:
        check_report_path(report)
    runner = _runner(session, values["results_dir"])
    session.own_jobs()
    with _Progress(session, plan) as progress:
        document = run_ab(plan, session.settings, progress.update)
    has_runs = document["rounds"] > 0
    if has_runs and not values["no_save"]:
        runner.save_results(document)
    if has_runs and report:
        runner.generate_report(document, report, title=plan.title or document["title"])
    if session.json:
        session.write_json(document)
    elif not has_runs and document["failure"]:
        _report_failure(session, document)
    else:
        from joblens.views.bench.text import render_result

        session.write_lines(render_result(document, session.table_width, session.palette))
        if has_runs and not values["no_save"]:
            session.note(f"joblens: saved as {document['id']}")
    return {"interrupt": 130, "failure": 1}.get(document["stopped"], 0)


def _report_failure(session: Session, document: dict[str, Any]) -> None:
    """Reports a command that failed before anything was measured: there is no table to show."""
    from joblens.views.bench.text import command_lines

    for line in command_lines(document, session.table_width) if document["comparisons"] else ():
        session.note(line)
    session.note(f"joblens: error: {document['failure']}")


@command.command("run")
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="Tool to run. Repeatable.")
@click.option(
    "--device",
    type=click.Choice(("cpu", "gpu", "intel-gpu", "all")),
    default="cpu",
    help="Device to run on; 'all' is every supported device of this machine. Default: cpu.",
)
@click.option("-n", "--runs", type=count_from(1), default=3, metavar="N", help="Number of runs. Default: 3.")
@click.option("-w", "--warmup", type=count_from(0), default=1, metavar="N", help="Warm-up runs. Default: 1.")
@click.option("-p", "--param", "params", multiple=True, metavar="K=V", help="Parameter. Repeatable.")
@click.option("--script", metavar="FILE", help="Script to run. Default: the tool's own benchmark.")
@click.option("--container", metavar="IMAGE", help="Run in a container from this image.")
@_results_dir
@shared_options
def run(session: Session, /, **values: Any) -> int:
    """Run a tool's benchmark a few times, and save the result."""
    from joblens.app.bench.runner import usable_devices
    from joblens.app.jobs.preparation import parse_params
    from joblens.app.queue.tools import find_tool
    from joblens.views.bench.text import fine_duration, render_result

    if not values["tools"]:
        raise BenchmarkError("no tool was named", hint="joblens bench run --tool NAME; list-tools shows them")
    params = parse_params(values["params"])
    runner = _runner(session, values["results_dir"])
    found = [find_tool(name) for name in values["tools"]]  # all must be known before the first runs
    session.own_jobs()
    documents = []
    for tool in found:
        devices, unusable = usable_devices(tool) if values["device"] == "all" else ([values["device"]], {})
        for device, why in unusable.items():
            session.note(f"joblens: {tool.name}: not on {device}: {why}")

        def note_run(number: int, result: Any, name: str = tool.name) -> None:
            what = f"run {number} of {values['runs']}" if number else "warm-up"
            session.note(f"joblens: {name}: {what}: {result.status}, {fine_duration(result.duration_s)}")

        for device in devices:
            document = runner.run_benchmark(
                tool.name,
                device,
                params,
                values["runs"],
                script=values["script"],
                warmup=values["warmup"],
                container=values["container"],
                tell=None if session.json else note_run,
            )
            runner.save_results(document)
            documents.append(document)
    if session.json:
        session.write_json(documents)
    else:
        for index, document in enumerate(documents):
            session.write_lines([""] if index else [])
            session.write_lines(render_result(document, session.table_width, session.palette))
            session.write_lines([f"saved as {document['id']}"])
    return 0 if all(document["error"] is None for document in documents) else 1


@command.command("compare")
@click.argument("baseline", metavar="RESULT")
@click.argument("other", metavar="RESULT")
@_results_dir
@shared_options
def compare(session: Session, baseline: str, other: str, results_dir: str | None) -> int:
    """Compare a later result with an earlier one: IDs, parts of IDs, files, or 'latest'.

    The exit code is 3 if the later one is certainly slower, else 0.
    """
    from joblens.views.bench.text import comparison_lines, differences

    runner = _runner(session, results_dir)
    compared = runner.compare_results(baseline, other)
    if session.json:
        session.write_json(compared)
    else:
        lines = [f"{compared['baseline_id']} → {compared['compared_id']}", ""]
        lines += comparison_lines(compared, session.palette)
        lines += [f"! {text}" for text in differences(compared)]
        session.write_lines(lines)
    return 3 if compared["differs"] and compared["speedup"] < 1 else 0


@command.command("report")
@click.argument("results", nargs=-1, metavar="[RESULT…]")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Report file: .html with embedded plots, or .md with plots next to it.",
)
@click.option("--title", default="Benchmarks", metavar="TEXT", help="Title of the report.")
@_results_dir
@shared_options
def report(
    session: Session, results: tuple[str, ...], output: str | None, title: str, results_dir: str | None
) -> None:
    """Write a report with plots of these results, or of all: as Markdown to standard output, or to a
    file.

    Results given by name are also compared with the first of them.
    """
    runner = _runner(session, results_dir)
    text = runner.generate_report(list(results) or None, output, title=title)
    if session.json:
        session.write_json({"report": output, "markdown": text})
    elif output is None:
        session.write(text)
    else:
        session.write(f"{output}\n")


@command.command("list")
@_results_dir
@shared_options
def list_results(session: Session, results_dir: str | None) -> None:
    """List saved results, oldest first."""
    from joblens.views.bench.text import render_list

    runner = _runner(session, results_dir)
    documents = runner.load_results(warn=session.warn)
    if session.json:
        session.write_json(documents)
    elif documents:
        session.write_lines(render_list(documents, session.table_width, session.palette))
    else:
        session.note(f"joblens: no results in {runner.results_dir}")


def _runner(session: Session, results_dir: str | None) -> "BenchmarkRunner":
    from joblens.app.bench.runner import BenchmarkRunner

    return BenchmarkRunner(results_dir, settings=session.settings)


def _plan(values: dict[str, Any]) -> "AbPlan":
    from joblens.app.bench.comparison import AbPlan, command_of_argv, command_of_line
    from joblens.app.jobs.preparation import parse_notify
    from joblens.app.jobs.requests import seconds_of

    lines, argv = values["lines"], values["words"]
    made: list[tuple[Any, Any]] = []
    if values["baseline"] is not None:
        made.append((command_of_line, values["baseline"]))
    made += [(command_of_line, line) for line in lines]
    if argv:
        made.append((command_of_argv, argv))
    names = list(values["names"])
    if len(names) > len(made):
        raise InputError(f"--name: {len(names)} names for {len(made)} commands")
    if len(made) > len(_NAMES):
        raise InputError(f"{len(made)} commands are too many to compare", hint=f"at most {len(_NAMES)}")
    for number in range(len(names), len(made)):
        from_here = _NAMES[number:] + _NAMES[:number]
        names.append(next(letter for letter in from_here if letter not in names))
    return AbPlan(
        commands=tuple(
            make(name, what, tags=(BENCH_TAG,)) for name, (make, what) in zip(names, made, strict=True)
        ),
        title=values["title"],
        warmup=values["warmup"],
        rounds=values["runs"],
        most_rounds=values["max_runs"],
        time_s=seconds_of("--time", values["time_text"]) or 0.0,
        precision=_share("--precision", values["precision"]),
        confidence=_share("--confidence", values["confidence"]),
        seed=values["seed"],
        accepts_failures=values["ignore_failure"],
        prepare=parse_notify(values["prepare"]),
    )


def _share(option: str, text: str) -> float:
    """Parses '2%' or '0.02'."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise InputError(f"{option} {text}: expected a share such as 2% or 0.02")
    return value


class _Progress:
    """One line that is redrawn, on a terminal only."""

    def __init__(self, session: Session, plan: "AbPlan") -> None:
        import sys

        self._is_shown = sys.stderr.isatty() and not session.json
        self._plan = plan

    def __enter__(self) -> Self:
        return self

    def update(self, at: "AbProgress") -> None:
        if not self._is_shown:
            return
        import sys

        what = f"round {at.round}" if at.round else "warm-up"
        width = "" if at.half_width is None else f", ±{100 * at.half_width:.1f}%"
        goal = f" (wanted ±{100 * self._plan.precision:g}%)" if width and self._plan.rounds is None else ""
        sys.stderr.write(f"\r\x1b[Kjoblens: {what}: {at.name}, {at.spent_s:.0f} s{width}{goal}")
        sys.stderr.flush()

    def __exit__(self, *_error: object) -> None:
        if self._is_shown:
            import sys

            sys.stderr.write("\r\x1b[K")
