"""Which Python a program is, and what is installed for it: from names of files, without starting it."""

import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence

_PYTHON = re.compile(r"python(\d+(?:\.\d+)?)?t?")
_METADATA = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+?)(?:-py[\d.]+)?\.(?:dist|egg)-info")
_MOST_PACKAGES = 2000


def is_python(path: str) -> bool:
    return _PYTHON.fullmatch(os.path.basename(path)) is not None


def python_version(path: str) -> str:
    """'': its files do not say"""
    real = os.path.realpath(path)
    if real == os.path.realpath(sys.executable):
        return platform.python_version()
    told = _settings_of_environment(path)
    for key in ("version_info", "version"):
        if key in told:
            return told[key].removesuffix(".final.0")
    found = _PYTHON.fullmatch(os.path.basename(real))
    return (found[1] or "") if found else ""


def packages_of(path: str, more_folders: Sequence[str] = ()) -> dict[str, str]:
    """Returns names with versions of the packages that the Python at that path can import. `more_folders`
    come first, as PYTHONPATH does."""
    found: dict[str, str] = {}
    for folder in (*more_folders, *_package_folders(path)):
        for name, version in _installed(folder):
            found.setdefault(name, version)
            if len(found) == _MOST_PACKAGES:
                return found
    return found


def package_folders(path: str) -> list[str]:
    return list(_package_folders(path))


def python_path_folders(python_path: str, cwd: str, options: Sequence[str] = ()) -> list[str]:
    """Returns the folders that PYTHONPATH names, in its order. `options`: of the interpreter; -E and -I make
    it ignore the variable."""
    if any(word[:1] == "-" != word[1:2] and {"E", "I"} & set(word) for word in options):
        return []
    return [os.path.join(cwd, each) for each in python_path.split(os.pathsep) if each]


def _package_folders(path: str) -> Iterator[str]:
    """As its start-up would come to them: of a virtual environment, then, if that says so, of its origin."""
    told = _settings_of_environment(path)
    if told:
        yield from _of_prefix(os.path.dirname(os.path.dirname(os.path.abspath(path))))
        if told.get("include-system-site-packages", "").lower() != "true":
            return
    real = os.path.realpath(path)
    prefix = os.path.dirname(os.path.dirname(real))
    if prefix == "/usr":  # of the system: what was installed beside it comes first
        yield from _of_prefix("/usr/local")
    yield from _of_prefix(prefix, _PYTHON.fullmatch(os.path.basename(real)))


def _of_prefix(prefix: str, named: "re.Match[str] | None" = None) -> Iterator[str]:
    library = os.path.join(prefix, "lib")
    wanted = f"python{named[1]}" if named is not None and named[1] and "." in named[1] else ""
    for name in _sorted(library):
        if _PYTHON.fullmatch(name) and (not wanted or name in (wanted, "python3")):
            for packages in ("site-packages", "dist-packages"):
                folder = os.path.join(library, name, packages)
                if os.path.isdir(folder):
                    yield folder


def _settings_of_environment(path: str) -> dict[str, str]:
    """pyvenv.cfg; empty where there is none."""
    folder = os.path.dirname(os.path.abspath(path))
    for place in (os.path.dirname(folder), folder):
        try:
            with open(os.path.join(place, "pyvenv.cfg"), encoding="utf-8", errors="replace") as file:
                pairs = (line.partition("=") for line in file)
                return {key.strip(): value.strip() for key, _, value in pairs}
        except OSError:
            continue
    return {}


def _installed(folder: str) -> Iterator[tuple[str, str]]:
    for entry in _sorted(folder):
        found = _METADATA.fullmatch(entry)
        if found is not None:
            yield found["name"].lower().replace("_", "-"), found["version"]


def _sorted(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
