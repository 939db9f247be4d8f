"""Top-level command: finds commands by name and imports them only when called."""

import importlib
from typing import Any

import click
from msgspec import Struct

import joblens
from joblens.cli.options.common import global_options, remember_globals


class CommandEntry(Struct, frozen=True):
    module: str  # below joblens.cli.commands
    attribute: str
    summary: str


def _entry(module: str, summary: str, attribute: str = "command") -> CommandEntry:
    return CommandEntry(module, attribute, summary)


# Sections in the order `joblens --help` shows them. The summaries are here so that help imports no command.
SECTIONS: dict[str, dict[str, CommandEntry]] = {
    "Run": {
        "run": _entry("run_command", "Run a command or a workflow file."),
        "map": _entry("map_", "Run a command once per value."),
        "attach": _entry("attach", "Measure a running process, container or cgroup."),
        "process": _entry("process", "Run a recipe: operators over a dataset."),
        "submit": _entry("submit", "Run a command, a tool's script or a workflow file in the background."),
        "submit-workflow": _entry("submit_workflow", "Submit several tool tasks to a queue."),
        "resume": _entry("resume", "Continue a stopped or killed run."),
        "recover": _entry("recover", "Rerun failed jobs with more memory or time."),
        "rerun": _entry("rerun", "Run part of a run again, or one job."),
        "run-jobs": _entry("run_jobs", "Run a stored workflow."),
    },
    "Monitor": {
        "list": _entry("list_", "List queued and running jobs."),
        "top": _entry("top", "Show running jobs live."),
        "status": _entry("status", "Show the status and result of a queued job."),
        "workflow-status": _entry("workflow_status", "Show the status of tasks submitted together."),
        "logs": _entry("logs", "Print a job's output."),
        "metrics": _entry("metrics", "Print a job's samples, then follow it."),
        "watch": _entry("watch", "Follow a run; optionally recover it when it fails."),
        "wait": _entry("wait", "Wait for jobs or runs to end."),
        "cancel": _entry("cancel", "Cancel jobs or runs."),
    },
    "Workflow files": {
        "validate": _entry("validate", "Check workflow files without running them."),
        "expand": _entry("expand", "Print a workflow file with every job expanded."),
        "plan": _entry("plan", "Show the stages of a workflow and the allocations each needs."),
        "graph": _entry("graph", "Draw job dependencies as text, SVG or Mermaid."),
        "user-data": _entry("user_data", "Share JSON values between jobs of a workflow."),
        "datasets": _entry("datasets", "Show directories that jobs of a workflow share."),
        "spawn-jobs": _entry("spawn_jobs", "Add jobs to a run from inside one of its jobs."),
        "schema": _entry("schema", "Print the JSON Schema of workflow files, for editors."),
    },
    "Results": {
        "history": _entry("history", "List jobs, newest first."),
        "show": _entry("show", "Show everything about one job."),
        "stats": _entry("stats", "Show totals and percentiles, overall and by tool."),
        "workflows": _entry("workflows", "List workflows and the status of their runs."),
        "results": _entry("results", "List the jobs of a run and their resource usage."),
        "jobs": _entry("jobs", "Reset jobs of a run; list or show them."),
        "reports": _entry("reports", "Summarize a run."),
        "check": _entry("check", "Check whether jobs stayed within their requests."),
        "rightsize": _entry("rightsize", "Suggest resource requests from past runs; update the file."),
        "seff": _entry("seff", "Show the efficiency of a Slurm job."),
        "diff": _entry("diff", "Compare two runs or two jobs."),
        "plot": _entry("plot", "Plot runs and jobs."),
        "report": _entry("report", "Write jobs and runs to one HTML file to share."),
        "snapshot": _entry("snapshot", "Show the progress of a recipe's job from its directory."),
        "bench": _entry("bench", "Compare commands; run tools' benchmarks."),
    },
    "Tools and data": {
        "list-tools": _entry("list_tools", "List tools that run scripts with parameters."),
        "operators": _entry("operators", "List the operators that recipes can use."),
        "export": _entry("export", "Export records or samples to files."),
        "import": _entry("import_", "Import records or samples from other systems."),
        "delete": _entry("delete", "Delete jobs with their samples and output."),
        "sql": _entry("sql", "Query the store with SQL."),
        "prune": _entry("prune", "Delete old samples and logs; records stay."),
        "store": _entry("store", "Check, back up, compact or copy the store."),
    },
    "Setup": {
        "config": _entry("config", "Show the settings and where each comes from."),
        "doctor": _entry("doctor", "Show what can be measured on this machine."),
        "worker": _entry("worker", "Run queued jobs on this machine."),
        "serve": _entry("serve", "Serve the dashboard and the API over HTTP."),
        "token": _entry("token", "Create and revoke access tokens of the server."),
        "mcp": _entry("mcp", "Serve jobs to an AI assistant (Model Context Protocol)."),
        "exporter": _entry("exporter", "Serve metrics of jobs to Prometheus."),
        "supervisor": _entry("supervisor", "Run background jobs, under a service manager."),
        "health": _entry("health", "Check the store, the broker and the workers."),
        "completion": _entry("completion", "Print a shell completion script."),
        "help": _entry("help_", "Show the help of a command."),
    },
    "Other names": {
        "job-history": _entry("history", "Like history, one paragraph per job.", "job_history"),
        "job-stats": _entry("stats", "Like stats, in sentences.", "job_stats"),
        "job-details": _entry("show", "Like show, the main fields.", "job_details"),
        "job": _entry("other_names", "'job metrics ID' is 'metrics ID'.", "job"),
        "create": _entry("workflows", "Same as 'workflows create-from-spec'.", "create_from_spec"),
        "plot-resources": _entry("plot", "Same as plot."),
        "completions": _entry("completion", "Same as completion."),
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from joblens.cli.commands.other_names import no_such_command

            raise no_such_command("", args[0], ctx) or unknown_command(args[0], ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes commands first: users look for them."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in COMMANDS)
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), entry.summary) for name, entry in entries.items()])


def unknown_command(name: str, ctx: click.Context) -> click.UsageError:
    import difflib

    alike = [command for command in COMMANDS if name and command.startswith(name)]
    near = alike or difflib.get_close_matches(name, COMMANDS, n=2, cutoff=0.6)
    meant = " or ".join(f"'joblens {word}'" for word in near)
    hint = f"did you mean {meant}?" if near else "'joblens help' lists all commands"
    return click.UsageError(f"joblens has no command '{name}'; {hint}", ctx)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="See 'joblens help COMMAND' for the options of a command. Write -- before a command of your own: "
    "joblens run -- make. A workflow file needs no --: joblens run pipeline.yaml",
)
@click.version_option(
    joblens.__version__, "-V", "--version", prog_name="joblens", message="%(prog)s %(version)s"
)
@global_options
@click.pass_context
def cli(ctx: click.Context, /, **values: Any) -> None:
    """Run jobs, measure exactly what each one used, record it, and suggest improvements."""
    remember_globals(ctx, values)
