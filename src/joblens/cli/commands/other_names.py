"""Names that commands have in other tools: one table of those that joblens takes too, and of the joblens
command to use where there is no command of the same meaning."""

import importlib
from typing import Any

import click
from msgspec import Struct


class OtherName(Struct, frozen=True):
    """A command under another name. `module` is below joblens.cli."""

    module: str
    attribute: str = "command"

    def load(self) -> click.Command:
        command: click.Command = getattr(
            importlib.import_module(f"joblens.cli.commands.{self.module}"), self.attribute
        )
        return command


# By group and name; those of joblens itself are in `cli.main`.
OTHER_NAMES: dict[str, dict[str, OtherName]] = {
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
_NO_SERVER = "joblens has no server: commands read the store"
_SLURM = "joblens run FILE --engine slurm makes allocations from what jobs ask for"
# The command to use instead. `*`: for every other word of the group.
INSTEAD: dict[str, dict[str, str]] = {
    "": {
        "exec": "joblens map '{}' :::: FILE runs each line of a file, joblens run -- CMD one command",
        "delete": "joblens keeps records; joblens prune drops old samples and output",
        "tui": "joblens top shows running jobs, joblens watch RUN a run",
        "events": "joblens watch RUN --json prints an object for each poll of a run",
        "files": "joblens expand FILE lists files of a workflow, joblens graph FILE what makes them",
        "job-dependencies": "joblens graph RUN shows which job waits for which",
        "resource-requirements": "joblens rightsize WORKFLOW --write changes them in the file",
        "compute-nodes": "joblens health lists workers",
        "scheduled-compute-nodes": "joblens results RUN shows where jobs wait",
        "remote": "joblens worker on each machine takes jobs of a shared store",
        "slurm": f"{_SLURM}; joblens seff JOBID has the numbers of sacct",
        "submit-slurm": _SLURM,
        "hpc": "joblens doctor shows what Slurm offers here",
        "ro-crate": "joblens export crate RUN writes one",
        "server": _NO_SERVER,
    },
    "jobs": {"*": "joblens results RUN lists jobs, joblens show ID one of them"},
    "reports": {"*": "joblens results RUN --json has the numbers of every job"},
    "workflows": {
        "submit": "joblens run-jobs WORKFLOW --detach",
        "delete": "joblens keeps records; joblens prune drops old samples and output",
        "archive": "joblens keeps records; joblens prune drops old samples and output",
        "init": "joblens run-jobs WORKFLOW needs no other step",
        "reinit": "joblens rerun RUN --changed runs what has changed since",
        "reinitialize": "joblens rerun RUN --changed runs what has changed since",
        "restart": "joblens rerun RUN --all",
        "sync-status": "every joblens command settles jobs whose process is gone; use joblens resume RUN",
        "correct-resources": "joblens rightsize WORKFLOW --write",
        "execution-plan": "joblens graph FILE, joblens run FILE --dry-run",
        "is-complete": "joblens wait RUN ends with 0 when every job succeeded",
        "new": "joblens workflows create-from-spec FILE",
        "export": "joblens expand FILE writes a workflow with every job by itself",
    },
}


def no_such_command(group: str, name: str, ctx: click.Context) -> click.UsageError | None:
    """The error for a name that other tools have; None: it is unknown there too."""
    known = INSTEAD.get(group, {})
    instead = known.get(name) or known.get("*")
    if instead is None:
        return None
    words = f"{group} {name}".strip()
    return click.UsageError(f"there is no command '{words}'. {instead}.", ctx)


class GroupWithOtherNames(click.Group):
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
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            error = no_such_command(self.name or "", args[0], ctx)
            if error is not None:
                raise error
        return super().resolve_command(ctx, args)


@click.group("job", cls=GroupWithOtherNames)
def job() -> None:
    """Other names: 'job metrics ID' is 'metrics ID'."""
