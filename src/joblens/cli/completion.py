"""`joblens completion`: the script a shell needs to complete joblens commands, options and job ids."""

import click

from joblens.cli.context import Session
from joblens.cli.options import shared_options


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
@shared_options
def command(session: Session, shell: str) -> None:
    """Print the completion script for bash, zsh or fish.

    \b
    bash  eval "$(joblens completion bash)"   in ~/.bashrc
    zsh   eval "$(joblens completion zsh)"    in ~/.zshrc, after compinit
    fish  joblens completion fish > ~/.config/fish/completions/joblens.fish
    """
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    from joblens.cli.main import cli

    kinds = {"bash": BashComplete, "fish": FishComplete, "zsh": ZshComplete}
    session.write(kinds[shell](cli, {}, "joblens", "_JOBLENS_COMPLETE").source() + "\n")
