"""What doctor tells of container engines: real ones, one that is silent, and none."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.agent.containers.job import make_container_groups
from joblens.agent.doctor.instruments import container_capabilities
from joblens.model.capabilities import Capability
from tests.integration.engines import Engine

VARIABLES = {"docker": "DOCKER_HOST", "podman": "CONTAINER_HOST"}


def row_of(name: str, timeout_s: float = 20) -> Capability:
    (row,) = [
        row for row in container_capabilities(group_advice="ask", timeout_s=timeout_s) if row.name == name
    ]
    return row


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The engines of the machine are none of the test's business."""
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("joblens.probes.containers.api.SYSTEM_SOCKETS", {"docker": "", "podman": ""})
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "nothing"))


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """Takes connections and answers nothing."""
    path = str(tmp_path / "silent.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        yield path


def test_an_engine_that_answers_is_reported_with_its_version_and_driver(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLES[engine.name], f"unix://{engine.socket}")
    row = row_of(engine.name)
    assert row.available
    assert row.mechanism.startswith(f"{engine.api().version} at {engine.socket}, cgroupfs cgroup driver")


def test_its_containers_can_be_below_groups_of_ours_where_those_can_be_made(
    docker: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{docker.socket}")
    groups = make_container_groups("doctor-test")
    if groups is None:
        pytest.skip("no groups can be made at one path of every hierarchy here")
    groups.remove()
    row = row_of("docker")
    assert "the job's own groups" in row.mechanism
    assert row.reason == ""


def test_where_they_cannot_the_row_says_what_is_missed(
    docker: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{docker.socket}")
    monkeypatch.setattr("joblens.agent.doctor.instruments.make_container_groups", lambda *_: None)
    row = row_of("docker")
    assert row.available
    assert "own groups" not in row.mechanism
    assert "the last moments are missing" in row.reason
    assert row.fix == "ask"


def test_groups_that_systemd_makes_are_reported_with_what_would_help(
    docker: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{docker.socket}")
    driver = "joblens.probes.containers.api.ContainerApi.cgroup_driver"
    monkeypatch.setattr(driver, lambda api, timeout_s: "systemd")
    row = row_of("docker")
    assert row.available
    assert "systemd" in row.reason
    assert "native.cgroupdriver=cgroupfs" in row.fix


@pytest.mark.within(60)
def test_an_engine_that_takes_a_connection_and_says_nothing_is_not_waited_for(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{silent}")
    row = row_of("docker", timeout_s=0.1)
    assert row.is_gap
    assert row.reason == "it has not answered for 0.1s"
    assert row.fix


def test_one_that_answers_too_late_is_a_gap_with_the_socket_that_was_asked(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTAINER_HOST", f"unix://{silent}")
    row = row_of("podman")
    assert row.is_gap
    assert f"{silent} did not answer within 1s" in row.reason
    assert "podman.socket" in row.fix


def test_an_engine_that_is_installed_and_does_not_run_is_a_gap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "podman"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    podman, docker = row_of("podman"), row_of("docker")
    assert podman.is_gap
    assert "no podman engine answers: nothing listens at" in podman.reason
    assert not docker.applies
    assert docker.reason == "docker is not installed here"
