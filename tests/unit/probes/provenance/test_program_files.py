"""Which files a command starts, and what Python has installed, told from files alone."""

import hashlib
import importlib.metadata
import os
import platform
import re
import sys
import sysconfig
from pathlib import Path

import pytest

from joblens.probes.provenance.program_files import (
    find_program,
    is_python,
    package_folders,
    packages_in,
    program_paths,
    python_path_folders,
    python_version,
    sha256_of,
    starting_words,
    version_of,
)


@pytest.mark.parametrize(
    ("argv", "is_shell", "words"),
    [
        (("./tool", "a", "b"), False, ("./tool",)),
        (("python3", "fit.py", "7"), False, ("python3", "fit.py")),
        (
            ("python3.11", "-u", "-X", "dev", "fit.py", "7"),
            False,
            ("python3.11", "-u", "-X", "dev", "fit.py"),
        ),
        (("python", "-c", "print(1)"), False, ("python",)),
        (("python", "-m", "pytest", "x"), False, ("python",)),
        (("bash", "-e", "do.sh", "x"), False, ("bash",)),
        (("bash", "do.sh", "x"), False, ("bash", "do.sh")),
        (("python fit.py 7",), True, ("python", "fit.py")),
        (("a | b",), True, ("/bin/sh",)),
        ((), False, ()),
    ],
)
def test_words_that_decide_what_is_started(
    argv: tuple[str, ...], is_shell: bool, words: tuple[str, ...]
) -> None:
    assert starting_words(argv, is_shell=is_shell) == words


def test_the_version_of_an_interpreter_is_reported_by_its_name(tmp_path: Path) -> None:
    for real, name in (("perl5.36.0", "perl"), ("node20", "node"), ("tool-3", "tool"), ("lua5.4", "lua")):
        (tmp_path / real).write_text("")
        (tmp_path / name).symlink_to(real)
    found = {name: version_of(str(tmp_path / name)) for name in ("perl", "node", "tool", "lua")}
    assert found == {"perl": "5.36.0", "node": "20", "tool": "", "lua": "5.4"}


def _program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_script_comes_with_what_interprets_it(tmp_path: Path) -> None:
    script = _program(tmp_path / "own", "#!/bin/sh -e\ntrue\n")
    by_name = _program(tmp_path / "other", "#!/usr/bin/env own\n")
    search = str(tmp_path)
    assert program_paths(("own",), "/", search) == (str(script), "/bin/sh")
    assert program_paths(("./other",), str(tmp_path), search) == (str(by_name), str(script))
    assert program_paths(("nobody",), str(tmp_path), search) == ()


def test_an_interpreter_comes_with_its_script(tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text("1\n")
    words = starting_words(("python3", "fit.py", "7"), is_shell=False)
    _program(tmp_path / "python3", "")
    assert program_paths(words, str(tmp_path), str(tmp_path)) == (
        str(tmp_path / "python3"),
        str(tmp_path / "fit.py"),
    )


def test_what_may_not_be_executed_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "tool").write_text("")
    good = _program(tmp_path / "tool", "")
    assert find_program("tool", "/", f"{tmp_path}/one:{tmp_path}") == str(good)


def test_digests_of_plain_files_up_to_a_size(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc" * 1000)
    assert sha256_of(str(path), 3000) == (hashlib.sha256(b"abc" * 1000).hexdigest(), 3000)
    assert sha256_of(str(path), 2999) == ("", 3000)
    os.mkfifo(tmp_path / "pipe")
    assert sha256_of(str(tmp_path / "pipe"), 3000) == ("", None)
    assert sha256_of(str(tmp_path / "gone"), 3000) == ("", None)


def test_packages_of_a_virtual_environment(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    for name in (
        "numpy-2.3.1.dist-info",
        "Typing_Extensions-4.1.dist-info",
        "old-1.0-py3.12.egg-info",
        "numpy",
    ):
        (packages / name).mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/usr/bin/env")
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.12.4.final.0\n")
    python = str(tmp_path / "bin" / "python")
    assert packages_in(package_folders(python)) == {
        "numpy": "2.3.1",
        "typing-extensions": "4.1",
        "old": "1.0",
    }
    assert python_version(python) == "3.12.4"


def test_this_python_is_known_exactly() -> None:
    assert is_python(sys.executable)
    assert python_version(sys.executable) == platform.python_version()
    own = sysconfig.get_path("purelib")
    installed = [one.metadata["Name"].lower() for one in importlib.metadata.distributions(path=[own])]
    assert {re.sub(r"[_.]", "-", name) for name in installed} <= packages_in(
        package_folders(sys.executable)
    ).keys()


def test_packages_in_folders_of_the_python_path_come_first(tmp_path: Path) -> None:
    (tmp_path / "more" / "own_thing-3.1.dist-info").mkdir(parents=True)
    (tmp_path / "more" / "pip-0.1.dist-info").mkdir()
    folders = python_path_folders("more::/nowhere", str(tmp_path))
    assert folders == [str(tmp_path / "more"), "/nowhere"]
    found = packages_in((*folders, *package_folders(sys.executable)))
    assert (found["own-thing"], found["pip"]) == ("3.1", "0.1")


@pytest.mark.parametrize("option", ["-I", "-E", "-IS"])
def test_options_of_the_interpreter_that_make_it_ignore_the_python_path(option: str) -> None:
    assert python_path_folders("/more", "/", ["-u", option]) == []
    assert python_path_folders("/more", "/", ["-u", "--Ignore"]) == ["/more"]


def test_other_programs_are_no_python() -> None:
    assert not any(map(is_python, ("/usr/bin/pythonic", "python-config", "ipython", "sh")))
