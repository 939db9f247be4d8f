"""`joblens operators`: lists the operators of recipes."""

import click
from msgspec import to_builtins

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand


@click.command("operators", cls=GroupedCommand)
@click.argument("name", metavar="[NAME]", required=False)
@click.option(
    "--path",
    "paths",
    metavar="PATH",
    multiple=True,
    help="Python file or directory with your own operators. Repeatable.",
)
@shared_options
def command(session: Session, name: str | None, paths: tuple[str, ...]) -> None:
    """List the operators that recipes can use, or show one in detail.

    Operators of installed packages are found automatically, those of your own files with --path.
    """
    from joblens.app.recipes.loader import describe_operator, list_operators
    from joblens.views.recipes.operators import render_operator, render_operators

    if name is not None:
        info = describe_operator(name, paths)
        if session.json:
            session.write_json(to_builtins(info))
        else:
            session.write_lines(render_operator(info, width=session.width, paint=session.palette))
        return
    infos = list_operators(paths)
    if session.json:
        session.write_json([to_builtins(info) for info in infos])
    else:
        session.write_lines(render_operators(infos, width=session.width, paint=session.palette))
