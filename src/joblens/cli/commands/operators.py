"""`joblens operators`: what recipes can do to rows."""

import click
from msgspec import to_builtins

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options


@click.command("operators")
@click.argument("name", metavar="[NAME]", required=False)
@click.option(
    "--path",
    "paths",
    metavar="PATH",
    multiple=True,
    help="Operators of your own: a Python file, or a folder of them. May be given several times.",
)
@shared_options
def command(session: Session, name: str | None, paths: tuple[str, ...]) -> None:
    """The operators that recipes can use, or everything about one.

    Operators of installed packages are found by themselves, those of your own files by --path.
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
