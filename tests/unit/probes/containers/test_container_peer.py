"""Whose CPU time is the engine's: whoever listens at its socket, where that is an engine."""

import socket
from pathlib import Path

from joblens.probes.containers.api import peer_pid


def test_who_listens_for_an_engine_is_not_taken_for_it(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "engine.sock"))
        server.listen()
        assert peer_pid(str(tmp_path / "engine.sock")) is None
