"""Files of a program: which ones a command starts, with version and packages."""

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache

from msgspec import Struct

from joblens.model.values.ids import sha256

_MOST_PACKAGES = 2000


def is_python(path: str) -> bool:
    return _python_number(path) is not None


def _python_number(path: str) -> str | None:
    """Returns 3.11 of python3.11 and python3.11t, '' of python; None: it is something else. Without a regular
    expression: compiling one costs a short job a millisecond."""
    name = os.path.basename(path)
    number = name.removeprefix("python").removesuffix("t")
    parts = number.split(".") if number else []
    is_number = len(parts) <= 2 and all(part.isdecimal() for part in parts)
    return number if name.startswith("python") and is_number else None


def python_version(path: str) -> str:
    """Returns '' if its files do not say."""
    real = os.path.realpath(path)
    if real == os.path.realpath(sys.executable):
        return sys.version.split()[0]
    settings = _settings_of_environment(path)
    for key in ("version_info", "version"):
        if key in settings:
            return settings[key].removesuffix(".final.0")
    return _python_number(real) or ""


def packages_in(folders: Iterable[str]) -> dict[str, str]:
    """Returns names with versions of the packages in these folders; the first of a name counts."""
    found: dict[str, str] = {}
    for folder in folders:
        for name, version in _installed(folder):
            found.setdefault(name, version)
            if len(found) == _MOST_PACKAGES:
                return found
    return found


def python_path_folders(python_path: str, cwd: str, options: Sequence[str] = ()) -> list[str]:
    """Returns the folders that PYTHONPATH names, in its order. `options`: of the interpreter; -E and -I make
    it ignore the variable."""
    if any(word[:1] == "-" != word[1:2] and {"E", "I"} & set(word) for word in options):
        return []
    return [os.path.join(cwd, each) for each in python_path.split(os.pathsep) if each]


def package_folders(path: str) -> Iterator[str]:
    """Yields the folders of a Python's packages in its search order: of a virtual environment, then, if
    configured, of its base."""
    settings = _settings_of_environment(path)
    if settings:
        yield from _of_prefix(os.path.dirname(os.path.dirname(os.path.abspath(path))))
        if settings.get("include-system-site-packages", "").lower() != "true":
            return
    real = os.path.realpath(path)
    prefix = os.path.dirname(os.path.dirname(real))
    if prefix == "/usr":  # of the system: additional packages come first
        yield from _of_prefix("/usr/local")
    yield from _of_prefix(prefix, _python_number(real) or "")


def _of_prefix(prefix: str, number: str = "") -> Iterator[str]:
    library = os.path.join(prefix, "lib")
    version_wanted = f"python{number}" if "." in number else ""
    for name in _sorted(library):
        if is_python(name) and (not version_wanted or name in (version_wanted, "python3")):
            for packages in ("site-packages", "dist-packages"):
                folder = os.path.join(library, name, packages)
                if os.path.isdir(folder):
                    yield folder


def _settings_of_environment(path: str) -> dict[str, str]:
    """pyvenv.cfg; empty where there is none."""
    folder = os.path.dirname(os.path.abspath(path))
    for folder_tried in (os.path.dirname(folder), folder):
        try:
            with open(os.path.join(folder_tried, "pyvenv.cfg"), encoding="utf-8", errors="replace") as file:
                pairs = (line.partition("=") for line in file)
                return {key.strip(): value.strip() for key, _, value in pairs}
        except OSError:
            continue
    return {}


def _installed(folder: str) -> Iterator[tuple[str, str]]:
    for entry in _sorted(folder):
        stem, _, kind = entry.rpartition(".")
        if kind in ("dist-info", "egg-info"):
            name, _, rest = stem.partition("-")
            version, _, python = rest.partition("-")  # …-py3.11
            if name and version and (not python or python.startswith("py")):
                yield name.lower().replace("_", "-"), version


def _sorted(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_INTERPRETERS = frozenset({*_SHELLS, "perl", "ruby", "Rscript", "julia", "node", "lua", "octave", "php"})
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})  # options of Python that take another word
_CODE_FOLLOWS = frozenset({"-c", "-m", "-e", "-"})
_HEAD = 256
_PIECE = 1 << 18


def starting_words(argv: Sequence[str], *, is_shell: bool, shell: str = "/bin/sh") -> tuple[str, ...]:
    """Returns the words that decide which files are started; later ones are arguments.

    `shell`: the shell that parses the line, if it is one.
    """
    words = _words_of(argv, shell, is_shell=is_shell)
    if not words:
        return ()
    if not _is_interpreter(words[0]):
        return (words[0],)
    for folder_tried, word in enumerate(words[1:], 1):
        if word in _CODE_FOLLOWS or not word.startswith("-"):
            is_value = words[folder_tried - 1] in _WITH_VALUE
            if not is_value:
                return tuple(words[: folder_tried + (word not in _CODE_FOLLOWS)])
    return tuple(words)


@lru_cache(256)
def _is_interpreter(word: str) -> bool:
    return os.path.basename(word) in _INTERPRETERS or is_python(word)


def program_paths(words: Sequence[str], cwd: str, search: str) -> tuple[str, ...]:
    """Returns existing files of starting words:
    the program, its interpreter if it is a script, and its script.

    `search`: value of PATH.
    """
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
    """Returns bash for workflow commands, if installed; `run --shell` uses sh."""
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
    """Returns the script of an interpreter; '': none, or the code is in the command."""
    name = os.path.basename(program)
    is_a_python = is_python(program)
    if not is_a_python and name not in _INTERPRETERS:
        return ""
    folder_tried = 1
    while folder_tried < len(words):
        word = words[folder_tried]
        if word in _CODE_FOLLOWS:
            return ""
        if not word.startswith("-"):
            path = os.path.normpath(os.path.join(cwd, word))
            return path if os.path.isfile(path) else ""
        folder_tried += 2 if is_a_python and word in _WITH_VALUE else 1
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
    """Checks the first two bytes: a script is run by another program."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def version_of(path: str) -> str:
    """Returns the version of an interpreter from file names, without starting it. ''  if unknown."""
    if is_python(path):
        return python_version(path)
    name = os.path.basename(os.path.realpath(path))  # perl5.36.0, php8.2, node20
    bare = name.rstrip("0123456789.-")
    return name[len(bare) :].lstrip("-") if bare in _INTERPRETERS else ""


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


Mark = tuple[int, int, int] | None  # None: it is not there


def mark_of(path: str) -> Mark:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def marks_of(paths: Iterable[str]) -> dict[str, Mark]:
    return {path: mark_of(path) for path in paths}


def are_unchanged(marks: Mapping[str, Mark]) -> bool:
    return all(mark_of(path) == mark for path, mark in marks.items())


_ESCAPED = r"\\x([89a-f][0-9a-f])"


def as_text(name: str) -> str:
    """Bytes that are no text become \\xff."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")


def remembered_name(name: str, cwd: str) -> str:
    """The name of the file that is remembered by this one; as it is where none is there."""
    if "\\x" not in name or os.path.lexists(os.path.join(cwd, name)):
        return name
    written = re.sub(_ESCAPED, lambda found: os.fsdecode(bytes.fromhex(found[1])), name)
    return written if os.path.lexists(os.path.join(cwd, written)) else name


def remembered_path(name: str, cwd: str) -> str:
    """Where that file is."""
    return os.path.join(cwd, remembered_name(name, cwd))


class CommandKind(Struct, frozen=True):
    """Commands that start the same files in the same folder."""

    cwd: str
    words: tuple[str, ...]  # of `starting_words`
    search: str  # PATH
    environment: tuple[tuple[str, str], ...] | None = None  # None: that of this process
    is_one_of_many: bool = False  # its children are not measured
