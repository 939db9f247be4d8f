"""The command of a planned job as the kernel is given it: words where they are plain, else a shell line."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from joblens.model.runs.plan import PlannedJob
from joblens.plan.commands.references import put_user_data

# Words of these characters mean the same to every shell and to nobody else.
_PLAIN = re.compile(r"[\w@%+=:,./ -]+", re.ASCII)
_QUOTED = re.compile(r"[\w@%+=:,./ '-]+", re.ASCII)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
# What a shell does itself, or does differently from a program of that name.
_SHELL_WORDS = frozenset(
    ". : alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare "  # noqa: SIM905
    "dirs disown do done elif else enable esac eval exec exit export fc fg fi for function getopts hash help "
    "history if in jobs kill let local logout mapfile popd pushd read readarray readonly return select set "
    "shift shopt source suspend then time times trap type typeset ulimit umask unalias unset until wait "
    "while".split()
)


def command_line(
    planned: PlannedJob, data: Mapping[str, Any], shell: str
) -> tuple[str, bool, tuple[str, ...]]:
    """Returns the line, whether a shell reads it, and what runs. InputError: user data cannot stand there."""
    line = f"{planned.invocation_script} {planned.command}" if planned.invocation_script else planned.command
    if "${user_data." in line:
        line = put_user_data(line, data)
    if not planned.invocation_script:
        words = plain_words(line)
        if words:
            return line, False, words
    return line, True, (shell, "-c", line)


def plain_words(line: str) -> tuple[str, ...]:
    """The words of a line that needs no shell; none: it does."""
    if _PLAIN.fullmatch(line):
        words = line.split()
    elif _QUOTED.fullmatch(line) and line.count("'") % 2 == 0:
        words = shlex.split(line)
    else:
        return ()
    if not words or words[0] in _SHELL_WORDS or _ASSIGNMENT.match(words[0]):
        return ()
    return tuple(words)
