"""Whose CPU time is the engine's: whoever listens at its socket, where that is an engine."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.probes.containers.api import peer_pid

_LISTENS = """
import socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1]); server.listen(); print(flush=True); sys.stdin.read()
"""


@pytest.fixture
def listener(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Listens at `engine.sock`; the kernel knows it as dockerd."""
    program = tmp_path / "dockerd"
    shutil.copy(Path(sys.executable).resolve(), program)
    command = [str(program), "-S", "-c", _LISTENS, str(tmp_path / "engine.sock")]
    env = {"PYTHONHOME": sys.base_prefix}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"\n":
            pytest.skip("this Python does not run from another place")
        yield process
        process.kill()


def test_an_engine_that_listens_itself_is_found(tmp_path: Path, listener: "subprocess.Popen[bytes]") -> None:
    assert peer_pid(str(tmp_path / "engine.sock")) == listener.pid
