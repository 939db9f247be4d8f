"""`joblens mcp`: tools for AI assistants on standard input and output."""

import signal
import sys

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand


@click.command("mcp", cls=GroupedCommand)
@click.option("--allow-changes", is_flag=True, help="Also offer tools that submit and cancel jobs.")
@shared_options
def command(session: Session, allow_changes: bool) -> None:
    """Serve jobs to an AI assistant over the Model Context Protocol, on standard input and output.

    For assistants to start, not for terminals. Read-only unless --allow-changes.
    """
    from joblens.app.assistants.server import make_server
    from joblens.app.assistants.tools import ChangingTools, JobTools
    from joblens.app.wiring.drivers import SystemClock

    store = session.writable_store if allow_changes else session.store
    tools = JobTools(store, SystemClock().now_us, session.open_output)
    changing = None
    if allow_changes:
        changing = ChangingTools(store, session.settings, session.options.config, tools.lock)
    if sys.stdin.isatty():
        session.note("joblens: waiting for an AI assistant, which starts this command itself; Ctrl-C ends it")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the SDK would wait for a line of input first
    make_server(tools, changing).run("stdio")
