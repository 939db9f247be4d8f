"""Help of commands with many options: options in titled groups, and a usage line per form."""

import re
from collections.abc import Mapping
from typing import Any

import click

Groups = Mapping[str, tuple[str, ...]]  # title -> a flag of each option

GLOBAL = "Global options"
_OTHERS = "Options"
_SENTENCE = 200  # characters; no first sentence of a command's help is longer
_EXTRA = re.compile(r"\s+\[(?:default: ([^;\]]+))?(?:; )?(?:x>=[01]|(\d+)<=x<=(\d+))?\]$")
_WIDEST_COLUMN = 30  # click's own limit; longer options get a line of their own

_CLUSTER_FLAGS = (
    "--engine",
    "--queue",
    "--broker",
    "--retry-lost",
    "--label",
    "--address",
    "--partition",
    "--account",
    "--qos",
    "--constraint",
    "--nodes",
    "--walltime",
    "--packing",
    "--allocations",
    "--sbatch",
)
RUN_GROUPS: Groups = {
    "What to run": (
        "--shell",
        "--cwd",
        "--env",
        "--name",
        "--tag",
        "--param",
        "--id",
        "--tool",
        "--script",
        "--input",
        "--output",
    ),
    "Limits": (
        "--cpus",
        "--memory",
        "--timeout",
        "--pids",
        "--gpus",
        "--cpu-list",
        "--signal",
        "--grace",
        "--no-enforce",
    ),
    "Measurement": (
        "--interval",
        "--no-monitor",
        "--probes",
        "--accounting",
        "--granularity",
        "--output-dir",
    ),
    "Container": (
        "--container",
        "--container-engine",
        "--container-socket",
        "--container-name",
        "--volume",
        "--device",
        "--container-network",
        "--container-user",
        "--container-workdir",
        "--entrypoint",
        "--pull",
    ),
    "Output": ("--quiet", "--verbose", "--wait", "--wait-timeout", "--report", "--no-capture", "--notify"),
    "Workflow files": (
        "--jobs",
        "--time",
        "--only",
        "--skip",
        "--until",
        "--rerun-changed",
        "--dry-run",
        "--detach",
        "--on-interrupt",
        "--no-resource-monitoring",
    ),
    "Workers and clusters": _CLUSTER_FLAGS,
}
DRIVE_GROUPS: Groups = {
    "Capacity": ("--jobs", "--cpus", "--memory", "--gpus", "--time"),
    "How to run": ("--dry-run", "--detach", "--quiet", "--probes", "--output-dir", "--notify"),
    "Workers and clusters": _CLUSTER_FLAGS,
}
RERUN_GROUPS: Groups = {
    "Jobs to run again": ("--failed", "--changed", "--all", "--only"),
    "One job": ("--env", "--cwd"),
    **DRIVE_GROUPS,
}
MAP_GROUPS: Groups = {
    "What to run": ("--param", "--name"),
    "Limits": ("--jobs", "--cpus", "--memory", "--timeout"),
    "Output": ("--keep-order", "--output-dir", "--probes", "--dry-run", "--quiet"),
    "Workers and clusters": _CLUSTER_FLAGS,
}
FILTER_GROUPS: Groups = {
    "Jobs to include": (
        "--tool",
        "--status",
        "--tag",
        "--name",
        "--since",
        "--until",
        "--user",
        "--run",
        "--contains",
        "--host",
        "--finding",
        "--over-limit",
        "--bench",
        "--job",
        "--limit",
    ),
    "Deletion": ("--dry-run", "--yes"),
    "Output": (
        *("--profiles", "--compose", "--sort", "--reverse", "--output", "--samples", "--with-files"),
        *("--files-limit", "--license", "--pdf", "--title", "--points", "--log-lines", "--redact-paths"),
    ),
}
BENCH_GROUPS: Groups = {
    "Commands": ("--baseline", "--command", "--name", "--prepare"),
    "How long to measure": (
        "--runs",
        "--max-runs",
        "--warmup",
        "--time",
        "--precision",
        "--confidence",
        "--seed",
        "--ignore-failure",
    ),
    "Result": ("--title", "--report", "--no-save", "--results-dir"),
}


class GroupedCommand(click.Command):
    """`groups`: titles of the help, in order. `forms`: usage lines, if one line cannot show them."""

    def __init__(
        self, *args: Any, groups: Groups | None = None, forms: tuple[str, ...] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups or {}
        self.forms = forms

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.forms:
            super().format_usage(ctx, formatter)
        for index, form in enumerate(self.forms):
            formatter.write_usage(ctx.command_path, form, prefix=" " * len("Usage: ") if index else None)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = self.help_sections(ctx)
        rows = [row for records in sections.values() for row in records]
        width = min(_WIDEST_COLUMN, max(len(words) for words, _ in rows))
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl([(words.ljust(width), meaning) for words, meaning in records])

    def help_sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Help records by title, in the order of `groups`; options of every command come last."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in (_OTHERS, *self.groups, GLOBAL)}
        order = {
            flag: (title, rank) for title, flags in self.groups.items() for rank, flag in enumerate(flags)
        }
        ranked = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                record = (record[0], with_default(record[1]))
                default = GLOBAL if is_global(parameter) else _OTHERS
                found = (order[flag] for flag in parameter.opts if flag in order)
                ranked.append((*next(found, (default, 0)), record))
        for title, _, record in sorted(ranked, key=lambda each: each[1]):
            sections[title].append(record)
        return {title: records for title, records in sections.items() if records}


def with_default(meaning: str) -> str:
    """Returns the help of an option with click's `[default: 2; 1<=x<=9]` as sentences; that a count is at
    least 1 goes without saying."""
    match = _EXTRA.search(meaning)
    if match is None:
        return meaning
    default, low, high = match.groups()
    facts = [f" Default: {default}."] if default else []
    if high:
        facts.append(f" From {low} to {high}.")
    return meaning[: match.start()] + "".join(facts)


def is_global(parameter: click.Parameter) -> bool:
    """Whether every command has it."""
    return (parameter.name or "").startswith("global_") or "--help" in parameter.opts


class GroupOfCommands(click.Group):
    """Lists its commands with whole sentences, which click would cut to one line."""

    command_class = GroupedCommand

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(_SENTENCE)) for name, each in commands if each]
            )
