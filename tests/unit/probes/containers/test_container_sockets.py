"""Which engine is asked, and what is said when none answers."""

from pathlib import Path

import pytest

from joblens.model.errors import ContainerError
from joblens.probes.containers import api as container_api
from joblens.probes.containers.api import connect


@pytest.fixture(autouse=True)
def nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sockets = {"docker": str(tmp_path / "docker.sock"), "podman": str(tmp_path / "podman.sock")}
    monkeypatch.setattr(container_api, "SYSTEM_SOCKETS", sockets)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "mine"))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("CONTAINER_HOST", raising=False)


def test_places_where_nobody_listens_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(ContainerError) as refusal:
        connect("docker")
    places = f"{tmp_path}/docker.sock, {tmp_path}/mine/docker.sock"
    assert str(refusal.value) == f"no docker engine answers: nothing listens at {places}"


@pytest.mark.parametrize(
    ("variable", "value", "engine"),
    [
        ("DOCKER_HOST", "tcp://far.example:2375", ""),
        ("DOCKER_HOST", "ssh://me@far.example", "docker"),
        ("CONTAINER_HOST", "ssh://me@far.example/run/podman.sock", "podman"),
    ],
)
def test_an_engine_of_another_machine_is_not_silently_another_engine(
    variable: str, value: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ContainerError, match=f"{variable}.*Unix sockets only"):
        connect(engine)


def test_a_socket_that_is_named_comes_before_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://far.example:2375")
    with pytest.raises(ContainerError, match="nothing listens at"):
        connect("docker", str(tmp_path / "none.sock"))
