"""`joblens completion`: the shell script that completes commands, options and job ids."""

import os

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.errors import InputError

_SHELLS = ("bash", "fish", "zsh")

# Uses click's protocol, like click's own script. In addition, a command after `--` is completed as
# without joblens, and file names are completed where joblens has nothing to offer.
_BASH = """\
_joblens_completion() {
    local IFS=$'\\n' index kind value
    COMPREPLY=()
    for ((index = 1; index < COMP_CWORD; index++)); do
        if [[ ${COMP_WORDS[index]} == -- ]]; then
            if ((index + 1 == COMP_CWORD)); then
                COMPREPLY=($(compgen -c -- "${COMP_WORDS[COMP_CWORD]}" | sort -u))
            fi
            return 0
        fi
    done
    while IFS=, read -r kind value; do
        case $kind in
            plain) COMPREPLY+=("$value") ;;
            file) COMPREPLY+=($(compgen -f -- "$value")) && compopt -o filenames 2>/dev/null ;;
        esac
    done < <(
        COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _JOBLENS_COMPLETE=bash_complete "$1" 2>/dev/null
    )
    return 0
}
complete -o nosort -o default -F _joblens_completion joblens 2>/dev/null ||
    complete -o default -F _joblens_completion joblens
"""


@click.command("completion", cls=GroupedCommand)
@click.argument("shell", metavar="[bash|fish|zsh]", required=False, type=click.Choice(_SHELLS))
@shared_options
def command(session: Session, shell: str | None) -> None:
    """Print the completion script for bash, zsh or fish. Default: the shell in $SHELL.

    \b
    bash  eval "$(joblens completion bash)"   in ~/.bashrc
    zsh   eval "$(joblens completion zsh)"    in ~/.zshrc, after compinit
    fish  joblens completion fish > ~/.config/fish/completions/joblens.fish
    """
    shell = shell or _own_shell()
    if shell == "bash":
        session.write(_BASH)
        return
    from click.shell_completion import FishComplete, ZshComplete

    kinds = {"fish": FishComplete, "zsh": ZshComplete}
    session.write(
        kinds[shell](
            click.get_current_context().find_root().command, {}, "joblens", "_JOBLENS_COMPLETE"
        ).source()
        + "\n"
    )


def _own_shell() -> str:
    shell = os.path.basename(os.environ.get("SHELL", ""))
    if shell not in _SHELLS:
        raise InputError(
            "no shell given, and $SHELL is not bash, zsh or fish",
            hint="joblens completion bash (or zsh, fish)",
        )
    return shell
