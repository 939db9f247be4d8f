"""Asking systemd for a delegated group, with a systemd-run that only writes down what it was told."""

import os
import subprocess
from pathlib import Path

import pytest

from joblens.agent.systemd_scope import scope_argv, user_systemd_available


@pytest.fixture
def fake_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemd-run first on PATH that notes its arguments and runs what follows '--'."""
    folder = tmp_path / "bin"
    folder.mkdir()
    noted = tmp_path / "noted"
    script = folder / "systemd-run"
    script.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {noted}\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return noted


def test_the_command_runs_in_a_delegated_scope_of_that_name(fake_systemd: Path) -> None:
    done = subprocess.run(
        scope_argv(["echo", "a b", "--", "-x"], "joblens-7"), capture_output=True, text=True, check=True
    )
    assert done.stdout == "a b -- -x\n"
    told = fake_systemd.read_text().splitlines()
    assert "--scope" in told
    assert "--unit=joblens-7" in told
    assert told[told.index("-p") + 1] == "Delegate=yes"


def test_the_exit_code_is_the_commands(fake_systemd: Path) -> None:
    assert subprocess.run(scope_argv(["sh", "-c", "exit 7"], "x"), check=False).returncode == 7


def test_an_ordinary_user_asks_the_managers_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "--user" in scope_argv(["true"], "x")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--user" not in scope_argv(["true"], "x")


@pytest.mark.parametrize(
    ("uid", "socket"), [(0, "systemd/private"), (1000, "user/1000/bus"), (1000, "user/1000/systemd/private")]
)
def test_systemd_is_available_when_its_socket_and_its_command_are(
    uid: int, socket: str, fake_systemd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    run = tmp_path / "run"
    variables = {"PATH": os.environ["PATH"]}
    assert not user_systemd_available(variables, str(run))
    (run / socket).parent.mkdir(parents=True)
    (run / socket).touch()
    assert user_systemd_available(variables, str(run))
    assert not user_systemd_available({"PATH": str(tmp_path)}, str(run))


def test_the_runtime_directory_of_the_session_is_looked_in(
    fake_systemd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "session" / "systemd").mkdir(parents=True)
    (tmp_path / "session" / "systemd" / "private").touch()
    variables = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(tmp_path / "session")}
    assert user_systemd_available(variables, str(tmp_path / "none"))
