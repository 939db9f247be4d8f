"""Commands that work on a server in place of a store (`--server`), and those that need no store at all."""

import click

from joblens.cli.context import Session

# By their words after `joblens`.
ON_SERVER = frozenset(
    {
        *("submit", "cancel", "rerun", "resume", "delete", "workflows delete", "workflows cancel"),
        *("list", "top", "status", "workflow-status", "logs", "metrics", "job metrics", "watch", "wait"),
        *(
            "history",
            "job-history",
            "show",
            "job-details",
            "stats",
            "job-stats",
            "results",
            "reports summary",
        ),
        *("reports results", "reports check-resource-utilization", "check", "rightsize", "seff", "diff"),
        *("workflows list", "workflows show", "workflows get", "workflows status"),
        *("workflows check-resources", "jobs list", "jobs get", "jobs logs"),
        *("user-data get", "user-data list", "datasets get", "datasets list", "datasets show"),
        *(
            "plot",
            "plot-resources",
            "report",
            "snapshot",
            "export",
            "sql",
            "graph",
            "workflows execution-plan",
        ),
        *("plan", "mcp", "exporter"),
    }
)
WITHOUT_STORE = frozenset(
    {
        *("validate", "expand", "schema", "list-tools", "operators", "config show", "config path"),
        *("completion", "completions", "help"),
    }
)


def check_server(session: Session, ctx: click.Context) -> None:
    """Raises InputError for a command that does not work on a server, if one was chosen."""
    words: list[str] = []
    at: click.Context | None = ctx
    while at is not None and at.parent is not None:
        words.insert(0, at.info_name or "")
        at = at.parent
    command = " ".join(words)
    if command not in ON_SERVER and command not in WITHOUT_STORE:
        session.refuse_server(command)
