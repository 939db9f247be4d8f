"""The command line's front: which commands there are, found by name and imported only when called."""

import importlib
from typing import Any

import click
from msgspec import Struct

import joblens
from joblens.cli.options.common import global_options, remember_globals


class CommandEntry(Struct, frozen=True):
    module: str  # below joblens.cli
    attribute: str
    summary: str


def _entry(module: str, summary: str, attribute: str = "command") -> CommandEntry:
    return CommandEntry(module, attribute, summary)


# Sections in the order `joblens --help` shows them. The summaries stand here so that help imports no command.
SECTIONS: dict[str, dict[str, CommandEntry]] = {
    "Run": {
        "run": _entry("run_command", "Run a command, or the jobs of a workflow file."),
        "map": _entry("map_", "Run a command for many values, without a file."),
        "attach": _entry("attach", "Measure something that runs already."),
        "process": _entry("process", "Carry out a recipe: operators over a dataset, in partitions."),
        "submit": _entry("submit", "Run a command, a tool's script or a workflow file in the background."),
        "submit-workflow": _entry("submit_workflow", "Give several tasks of tools to workers of a queue."),
        "resume": _entry("resume", "Go on with a run that was stopped or killed."),
        "recover": _entry("recover", "Give failed jobs of a run more memory or time and run the rest."),
        "rerun": _entry("rerun", "Run part of a run again, or a job."),
        "run-jobs": _entry("run_jobs", "Run the jobs of a workflow that was created."),
        "status": _entry("status", "How a job on a queue stands, and what came of it."),
        "workflow-status": _entry("workflow_status", "How tasks that were submitted together stand."),
        "list": _entry("list_", "Jobs that are queued or running now."),
        "top": _entry("top", "Live table of the running jobs."),
        "logs": _entry("logs", "What a job printed."),
        "watch": _entry("watch", "Follow a run; recover it when it fails."),
        "wait": _entry("wait", "Wait for jobs or runs to end."),
        "cancel": _entry("cancel", "End a running job, or a run."),
        "user-data": _entry("user_data", "JSON that jobs of a workflow hand to each other."),
        "datasets": _entry("datasets", "Directories that jobs of a workflow fill and read."),
        "spawn-jobs": _entry("spawn_jobs", "Add jobs to a run, from one of its jobs."),
    },
    "Workflow files": {
        "validate": _entry("validate", "Check workflow files without running them."),
        "expand": _entry("expand", "A workflow file with every job by itself."),
        "plan": _entry("plan", "Stages of a workflow, and the allocations each asks for."),
        "graph": _entry("graph", "Which job waits for which: text, SVG, Mermaid."),
    },
    "Tools": {
        "list-tools": _entry("list_tools", "Tools that run scripts with parameters, and what each takes."),
    },
    "Look back": {
        "history": _entry("history", "Jobs, newest first."),
        "stats": _entry("stats", "Totals and percentiles, overall and by tool."),
        "show": _entry("show", "Everything about one job."),
        "workflows": _entry("workflows", "Workflows and how their runs stand."),
        "results": _entry("results", "The jobs of a run and what each used."),
        "jobs": _entry("jobs", "Set jobs of a run to run again; 'jobs list RUN' is 'results RUN'."),
        "reports": _entry("reports", "One run in a few lines, and other reports."),
        "check": _entry("check", "Did the jobs of a run keep to what they asked for?"),
        "rightsize": _entry("rightsize", "What jobs should ask for, from all runs; write it into the file."),
        "seff": _entry("seff", "How well a job of Slurm used what it had, and what to ask for."),
        "diff": _entry("diff", "What differs between two runs or two jobs."),
        "metrics": _entry("metrics", "Every sample of a job, then live."),
        "snapshot": _entry("snapshot", "Where a recipe's job stands, from its folder."),
        "plot": _entry("plot", "Charts of runs and jobs: pages and pictures."),
        "bench": _entry("bench", "Commands against each other; tools' benchmarks; reports."),
    },
    "Data": {
        "operators": _entry("operators", "What recipes can do to rows: all operators, or one in detail."),
        "export": _entry("export", "Write records or samples to files."),
        "import": _entry("import_", "Read records or samples of other systems."),
        "prune": _entry("prune", "Drop old samples and logs; records stay."),
        "store": _entry("store", "Check, back up or compact the store."),
    },
    "Set up": {
        "config": _entry("config", "Settings in force and where they come from."),
        "doctor": _entry("doctor", "What can be measured on this machine."),
        "worker": _entry("worker", "Run jobs of a queue on this machine."),
        "supervisor": _entry("supervisor", "Look after background jobs, for a service manager."),
        "health": _entry("health", "Are store, broker and workers of the queue there?"),
        "schema": _entry("schema", "JSON Schema of workflow files, for editors."),
        "completion": _entry("completion", "Shell completion script."),
    },
    "Other names": {
        "job-history": _entry("history", "As history, one paragraph a job.", "job_history"),
        "job-stats": _entry("stats", "As stats, in sentences.", "job_stats"),
        "job-details": _entry("show", "As show, the main fields.", "job_details"),
        "job": _entry("other_names", "'job metrics ID' is 'metrics ID'.", "job"),
        "create": _entry("workflows", "As workflows create-from-spec.", "create_from_spec"),
        "plot-resources": _entry("plot", "As plot."),
        "completions": _entry("completion", "As completion."),
    },
}
COMMANDS: dict[str, CommandEntry] = {
    name: entry for section in SECTIONS.values() for name, entry in section.items()
}


class LazyGroup(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"joblens.cli.commands.{entry.module}")
        command: click.Command = getattr(module, entry.attribute)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`help run` is `run --help`."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from joblens.cli.commands.other_names import no_such_command

            raise no_such_command("", args[0], ctx) or unknown_command(args[0], ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in entries.items()])


def unknown_command(name: str, ctx: click.Context) -> click.UsageError:
    import difflib

    begun = [command for command in COMMANDS if command.startswith(name)]
    near = begun or difflib.get_close_matches(name, COMMANDS, n=2, cutoff=0.6)
    hint = f" Did you mean {' or '.join(repr(word) for word in near)}?" if near else ""
    return click.UsageError(f"there is no command '{name}'.{hint}", ctx)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="'joblens COMMAND --help' tells more. Your own command goes behind --, a workflow file stands by "
    "itself: joblens run -- make, joblens run pipeline.yaml",
)
@click.version_option(
    joblens.__version__, "-V", "--version", prog_name="joblens", message="%(prog)s %(version)s"
)
@global_options
@click.pass_context
def cli(ctx: click.Context, /, **given: Any) -> None:
    """Run jobs, measure exactly what each one used, remember it, and say what to change."""
    remember_globals(ctx, given)
