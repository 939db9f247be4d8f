"""Names from other tools: commands that joblens accepts, and hints for the others."""

import importlib
from typing import Any

import click
from msgspec import Struct

from joblens.cli.options.groups import GroupOfCommands

_CLOSE = 0.7  # click's own 0.6 suggests --time for --memry


class OtherName(Struct, frozen=True):
    """A command under another name. `module` is below joblens.cli.commands."""

    module: str
    attribute: str = "command"

    def load(self) -> click.Command:
        command: click.Command = getattr(
            importlib.import_module(f"joblens.cli.commands.{self.module}"), self.attribute
        )
        return command


# By group and name; other names of top-level commands are in `cli.main`.
OTHER_NAMES: dict[str, dict[str, OtherName]] = {
    "datasets": {"get": OtherName("datasets", "show")},
    "job": {"metrics": OtherName("metrics")},
    "jobs": {
        "list": OtherName("results"),
        "get": OtherName("show"),
        "logs": OtherName("logs"),
    },
    "reports": {
        "check-resource-utilization": OtherName("check", "check_resource_utilization"),
        "results": OtherName("results"),
    },
    "workflows": {
        "create": OtherName("workflows", "create_from_spec"),
        "get": OtherName("workflows", "show"),
        "run": OtherName("run_jobs"),
        "status": OtherName("reports", "summary"),
        "check-resources": OtherName("check", "check_resource_utilization"),
    },
}
# Habits of other tools: what people type, and the joblens command that does it.
SUGGESTED: dict[str, str] = {
    "abort": "cancel",
    "compare": "diff",
    "dag": "graph",
    "info": "show",
    "inspect": "show",
    "kill": "cancel",
    "log": "logs",
    "ls": "list",
    "monitor": "top",
    "ps": "list",
    "queue": "list",
    "queues": "health",
    "sacct": "history",
    "sbatch": "submit",
    "scancel": "cancel",
    "server": "serve",
    "settings": "config",
    "squeue": "list",
    "srun": "run",
    "stat": "stats",
    "start": "run",
    "stop": "cancel",
    "summary": "reports summary",
    "tail": "logs",
    "tasks": "list",
    "usage": "stats",
    "version": "--version",
    "workers": "health",
}
_SLURM = "use 'joblens run FILE --engine slurm', which creates allocations from the jobs' requests"
_DELETE = "use 'joblens delete ID' for jobs; 'joblens prune' deletes old samples and output only"
# Names without one equivalent command. `*`: every other name of the group.
INSTEAD: dict[str, dict[str, str]] = {
    "": {
        "exec": "use 'joblens run -- CMD', or joblens map '{}' :::: FILE for each line of a file",
        "clean": _DELETE,
        "remove": _DELETE,
        "rm": _DELETE,
        "retry": "use 'joblens rerun RUN --failed', 'joblens rerun JOB' or 'joblens resume RUN'",
        "restart": "use 'joblens rerun RUN --all', 'joblens rerun JOB' or 'joblens resume RUN'",
        "init": "no set-up is needed; start with 'joblens run -- COMMAND'",
        "tui": "use 'joblens top' for running jobs, or 'joblens watch RUN' for a run",
        "events": "use 'joblens watch RUN --json', which prints one object per poll",
        "files": "use 'joblens expand FILE' to list files, or 'joblens graph FILE' to see their producers",
        "job-dependencies": "use 'joblens graph RUN'",
        "resource-requirements": "use 'joblens rightsize WORKFLOW --write' to change them in the file",
        "compute-nodes": "use 'joblens health', which lists workers",
        "scheduled-compute-nodes": "use 'joblens results RUN', which shows where jobs wait",
        "remote": "start 'joblens worker' on each machine with a shared store",
        "slurm": f"{_SLURM}; 'joblens seff JOBID' shows what Slurm recorded",
        "submit-slurm": _SLURM,
        "hpc": "use 'joblens doctor', which shows what Slurm offers here",
        "ro-crate": "use 'joblens export ro-crate RUN -o DIR'",
    },
    "jobs": {"*": "use 'joblens results RUN' to list jobs, or 'joblens show ID' for one job"},
    "reports": {"*": "use 'joblens results RUN --json' for the numbers of every job"},
    "workflows": {
        "submit": "use 'joblens run-jobs WORKFLOW --detach'",
        "archive": "'joblens workflows delete ID' removes it; 'joblens export ro-crate RUN' keeps a copy",
        "init": "use 'joblens run-jobs WORKFLOW'; no other step is needed",
        "reinit": "use 'joblens rerun RUN --changed'",
        "reinitialize": "use 'joblens rerun RUN --changed'",
        "restart": "use 'joblens rerun RUN --all'",
        "sync-status": "use 'joblens resume RUN'; every command updates jobs whose process has died",
        "correct-resources": "use 'joblens rightsize WORKFLOW --write'",
        "execution-plan": "use 'joblens graph FILE' or 'joblens run FILE --dry-run'",
        "is-complete": "use 'joblens wait RUN'; it exits with 0 when every job succeeded",
        "new": "use 'joblens workflows create-from-spec FILE'",
        "export": "use 'joblens expand FILE', which writes a workflow with every job listed",
    },
}
# The same for options; the first that the command has is suggested.
SUGGESTED_OPTIONS: dict[str, tuple[str, ...]] = {
    "-C": ("--cwd",),
    "-J": ("--name",),
    "-N": ("--nodes",),
    "-c": ("--cpus",),
    "-d": ("--detach", "--interval"),
    "-e": ("--env",),
    "-m": ("--memory",),
    "-n": ("--nodes", "--limit", "--dry-run", "--tail", "--once"),
    "-t": ("--timeout", "--time"),
    "--background": ("--detach",),
    "--cores": ("--cpus",),
    "--cpu": ("--cpus",),
    "--cpus-per-task": ("--cpus",),
    "--deadline": ("--timeout", "--time"),
    "--gpu": ("--gpus",),
    "--gres": ("--gpus",),
    "--image": ("--container",),
    "--job-name": ("--name",),
    "--mem": ("--memory",),
    "--mem-limit": ("--memory",),
    "--max-jobs": ("--jobs",),
    "--parallel": ("--jobs",),
    "--time": ("--timeout",),
    "--time-limit": ("--timeout", "--time"),
    "--timeout": ("--time",),
    "--watch": ("--follow", "--monitor"),
    "--workdir": ("--cwd",),
}


def no_such_command(group: str, name: str, ctx: click.Context) -> click.UsageError | None:
    """Returns the error for a name that other tools have; None if it is unknown there too."""
    known = INSTEAD.get(group, {})
    advice = known.get(name) or known.get("*")
    if advice is None and not group and name in SUGGESTED:
        advice = f"did you mean 'joblens {SUGGESTED[name]}'?"
    if advice is None:
        return None
    return click.UsageError(f"joblens has no '{f'{group} {name}'.strip()}'; {advice}", ctx)


def no_such_option(error: click.NoSuchOption) -> str:
    """Describes the option that does not exist, with the one that was probably meant."""
    command = error.ctx.command if error.ctx else None
    flags = {flag for parameter in command.params for flag in parameter.opts} if command else set()
    meant = [flag for flag in SUGGESTED_OPTIONS.get(error.option_name, ()) if flag in flags][:1]
    matches = sorted(flag for flag in flags if flag.startswith("--") and flag.startswith(error.option_name))
    import difflib

    close = difflib.get_close_matches(error.option_name, error.possibilities or (), n=2, cutoff=_CLOSE)
    near = meant or matches[:2] or [flag for flag in close if flag in flags]
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"no such option: {error.option_name}{hint}"


class CommandGroup(GroupOfCommands):
    """Its own commands, and those of the table."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._others = OTHER_NAMES.get(self.name or "", {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *self._others]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in self._others:
            return own
        return self._others[cmd_name].load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in names:
            advice = f"its commands are {', '.join(names)}"
            raise no_such_command(self.name or "", args[0], ctx) or click.UsageError(
                f"joblens has no '{self.name} {args[0]}'; {advice}", ctx
            )
        return super().resolve_command(ctx, args)


@click.group("job", cls=CommandGroup)
def job() -> None:
    """Other names: 'job metrics ID' is 'metrics ID'."""
