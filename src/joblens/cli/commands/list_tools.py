"""`joblens list-tools`: lists the tools that run scripts here."""

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand


@click.command("list-tools", cls=GroupedCommand)
@click.argument("name", metavar="[NAME]", required=False)
@shared_options
def command(session: Session, name: str | None) -> None:
    """List tools and their scripts, and whether they are available here; or show one in detail.

    A few tools are built in. Your own are in ~/.config/joblens/tools, those of a project in
    .joblens/tools.
    """
    from joblens.app.queue.tools import find_tool, list_tools, tool_shelf, tool_standing
    from joblens.views.setup.tools import render_tool, render_tools, tool_form

    if name is not None:
        standing = tool_standing(find_tool(name))
        for folder in tool_shelf().skipped:
            session.warn(folder)
        if session.json:
            session.write_json(tool_form(standing))
        else:
            session.write_lines(render_tool(standing, width=session.width, paint=session.palette))
        return
    standings, skipped = list_tools()
    for folder in skipped:
        session.warn(folder)
    if session.json:
        session.write_json([tool_form(each) for each in standings])
    else:
        session.write_lines(render_tools(standings, width=session.width, paint=session.palette))
