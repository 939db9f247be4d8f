"""The files that a command starts, and what is in them."""

import os
import re
import stat
from collections.abc import Sequence
from functools import cache, lru_cache

from joblens.model.values.digests import sha256
from joblens.probes.provenance.python_packages import is_python, python_version

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_INTERPRETERS = frozenset({*_SHELLS, "perl", "ruby", "Rscript", "julia", "node", "lua", "octave", "php"})
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})  # options of Python with another word behind
_CODE_FOLLOWS = frozenset({"-c", "-m", "-e", "-"})
_HEAD = 256
_PIECE = 1 << 18
_NUMBERED = re.compile(r"(?P<name>[A-Za-z]+)-?(?P<version>\d+(?:\.\d+)*)")  # perl5.36.0, php8.2, node20


def starting_words(argv: Sequence[str], *, is_shell: bool, shell: str = "/bin/sh") -> tuple[str, ...]:
    """The words that decide which files are started: what comes behind them is for the program. `shell`: that
    reads the line, where it is one."""
    words = _words_of(argv, shell, is_shell=is_shell)
    if not words:
        return ()
    if not _is_interpreter(words[0]):
        return (words[0],)
    for place, word in enumerate(words[1:], 1):
        if word in _CODE_FOLLOWS or not word.startswith("-"):
            is_value = words[place - 1] in _WITH_VALUE
            if not is_value:
                return tuple(words[: place + (word not in _CODE_FOLLOWS)])
    return tuple(words)


@lru_cache(256)
def _is_interpreter(word: str) -> bool:
    return os.path.basename(word) in _INTERPRETERS or is_python(word)


def program_paths(words: Sequence[str], cwd: str, search: str) -> tuple[str, ...]:
    """Of starting words: the program, what interprets it where it is a script, and the script that it is
    given; those there are. `search`: as PATH has it."""
    if not words:
        return ()
    program = find_program(words[0], cwd, search)
    if program is None:
        return ()
    paths = [program]
    interpreter = _interpreter_of(program, search)
    if interpreter:
        paths.append(interpreter)
    script = script_of(program, words, cwd)
    if script and script not in paths:
        paths.append(script)
    return tuple(paths)


@cache
def shell_of_workflows() -> str:
    """Lines of a workflow are read by bash where there is one, those of `run --shell` by sh."""
    return find_program("bash", "", os.environ.get("PATH", os.defpath)) or "/bin/sh"


def _words_of(argv: Sequence[str], shell: str, *, is_shell: bool) -> Sequence[str]:
    """Of a shell line that is more than one command, the shell alone."""
    if not is_shell:
        return argv
    line = argv[0] if argv else ""
    if any(sign in line for sign in "|&;<>()$`\n*?[#~={}!"):
        return [shell]
    import shlex

    try:
        return shlex.split(line)
    except ValueError:
        return [shell]


def find_program(word: str, cwd: str, search: str) -> str | None:
    if "/" in word:
        path = os.path.normpath(os.path.join(cwd, word))
        return path if os.path.isfile(path) else None
    for folder in (search or os.defpath).split(os.pathsep):
        path = os.path.join(cwd, folder, word)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def script_of(program: str, words: Sequence[str], cwd: str) -> str:
    """What an interpreter is given to run; '': it is none, or the code stands in the command."""
    name = os.path.basename(program)
    is_a_python = is_python(program)
    if not is_a_python and name not in _INTERPRETERS:
        return ""
    place = 1
    while place < len(words):
        word = words[place]
        if word in _CODE_FOLLOWS:
            return ""
        if not word.startswith("-"):
            path = os.path.normpath(os.path.join(cwd, word))
            return path if os.path.isfile(path) else ""
        place += 2 if is_a_python and word in _WITH_VALUE else 1
    return ""


def _interpreter_of(program: str, search: str) -> str:
    """By its first line; '': it is no script."""
    try:
        with open(program, "rb", buffering=0) as file:
            head = file.read(_HEAD)
    except OSError:
        return ""
    if not head.startswith(b"#!"):
        return ""
    words = os.fsdecode(head[2:].split(b"\n", 1)[0]).split()
    if not words:
        return ""
    if os.path.basename(words[0]) == "env":
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return (find_program(names[0], "/", search) if names else None) or ""
    return words[0] if os.path.isfile(words[0]) else ""


def is_script(path: str) -> bool:
    """By its first two bytes: whatever its name is, another program reads it."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def version_of(path: str) -> str:
    """Of an interpreter, as far as names of files tell it; nothing is started to ask. '': they do not"""
    if is_python(path):
        return python_version(path)
    found = _NUMBERED.fullmatch(os.path.basename(os.path.realpath(path)))
    return found["version"] if found is not None and found["name"] in _INTERPRETERS else ""


def sha256_of(path: str, largest: int) -> tuple[str, int | None]:
    """-> digest ('': no plain file, too large, not readable, or changed meanwhile), size"""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would not answer
    except OSError:
        return "", None
    with open(descriptor, "rb", buffering=0) as file:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            return "", None
        if before.st_size > largest:
            return "", before.st_size
        digest = sha256(before.st_size)
        try:
            while piece := file.read(_PIECE):
                digest.update(piece)
        except OSError:
            return "", before.st_size
        after = os.fstat(descriptor)
    is_same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    return digest.hexdigest() if is_same else "", before.st_size
