"""`joblens help`: the same as --help."""

import click
from click.shell_completion import CompletionItem

from joblens.cli.options.groups import GroupedCommand


def _complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    root = ctx.find_root().command
    names = root.list_commands(ctx) if isinstance(root, click.Group) else []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command("help", cls=GroupedCommand)
@click.argument("words", nargs=-1, metavar="[COMMAND]...", shell_complete=_complete)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of COMMAND; without it, list all commands. The same as COMMAND --help."""
    root = ctx.find_root()
    found: click.Command | None = root.command
    for word in words:
        if found is not None and not isinstance(found, click.Group):
            # Further words would be arguments of the command, which `run` executes.
            raise click.UsageError(f"joblens has no command '{' '.join(words)}': unexpected '{word}'", ctx)
        found = found.get_command(ctx, word) if found else None
    root.command.main([*words, "--help"], prog_name=root.info_name, standalone_mode=False)
