"""Containers that somebody else runs, measured from a Python program: a real Docker, a real Podman."""

import contextlib
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from joblens.app.in_process.monitor import JobMonitor
from joblens.app.in_process.profiler import ContainerResourceMonitor, ResourceProfiler
from joblens.model.errors import ContainerError
from joblens.probes.containers.api import ContainerApi
from tests.conftest import RunJoblens, wait_until
from tests.integration.engines import IMAGE, Engine

MEMORY = 64 << 20
COUNTING = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
WORK = f"dd if=/dev/zero of=/tmp/x bs=1M count=8; {COUNTING}; rm /tmp/x; echo done; sleep 60"
SIZE = r"\d+(\.\d+)?(e\+\d+)?[KMGT]?i?B"

Start = Callable[[str], str]


@pytest.fixture
def start(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a container of that name that works, then waits; all are taken away in the end."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    variable = "DOCKER_HOST" if engine.name == "docker" else "CONTAINER_HOST"
    monkeypatch.setenv(variable, f"unix://{engine.socket}")
    api = engine.api()
    made: list[str] = []

    def make(name: str) -> str:
        made.append(api.create(_body(engine), name))
        api.start(made[-1])
        return made[-1]

    yield make
    for container in made:
        take_away(api, container)


def _body(engine: Engine) -> dict[str, Any]:
    if engine.name == "docker":
        host = {"NetworkMode": "none", "Memory": MEMORY}
        return {"Image": IMAGE, "Cmd": ["sh", "-c", WORK], "HostConfig": host}
    limits = {"memory": {"limit": MEMORY}}
    network = {"netns": {"nsmode": "none"}}
    return {
        "image": f"localhost/{IMAGE}",
        "command": ["sh", "-c", WORK],
        "resource_limits": limits,
        **network,
    }


def take_away(api: ContainerApi, container: str) -> None:
    with contextlib.suppress(ContainerError):  # gone already; else removing would wait for its stop time
        api.kill(container, 9)
    api.remove(container, timeout_s=30.0)


def has_worked(api: ContainerApi, container: str) -> bool:
    return b"done" in api.logs(container)


def a_name() -> str:
    return f"keystone-{uuid.uuid4().hex[:8]}"


def test_a_container_started_after_the_monitor_is_measured_from_its_beginning(
    engine: Engine, start: Start
) -> None:
    name = a_name()
    monitor = ContainerResourceMonitor(name, interval=0.1)
    monitor.start_monitoring()
    container = start(name)
    wait_until(lambda: has_worked(engine.api(), container))
    wait_until(lambda: monitor.snapshot()["process_cpu"]["mean_percent"] is not None)
    profile = monitor.stop_monitoring()
    stats = profile["container_stats"]
    assert list(stats)[:3] == ["cpu_percent", "memory_usage", "memory_percent"]
    assert re.fullmatch(r"\d+\.\d\d", stats["cpu_percent"])
    assert float(stats["cpu_percent"]) > 0
    assert re.fullmatch(rf"{SIZE} / 64MiB", stats["memory_usage"])
    assert 0 < float(stats["memory_percent"]) <= 100
    assert re.fullmatch(rf"{SIZE} / {SIZE}", stats["block_io"])
    assert profile["process_cpu"]["mean_percent"] > 0
    # The shell that counts is small; eight MiB went through its files.
    assert 0 < profile["process_memory"]["max_mb"] <= 64
    assert profile["cpu"]["mean_percent"] is not None


def test_what_a_container_used_before_is_not_counted(engine: Engine, start: Start) -> None:
    name = a_name()
    container = start(name)
    wait_until(lambda: has_worked(engine.api(), container))
    with ContainerResourceMonitor(name, interval=0.1) as monitor:
        wait_until(lambda: "cpu_percent" in monitor.snapshot()["container_stats"])
    profile = monitor.profile
    assert float(profile["container_stats"]["cpu_percent"]) < 20  # it sleeps
    assert profile["process_memory"]["max_mb"] > 0


@pytest.mark.parametrize("sees_group", [True, False])
def test_memory_that_was_given_back_before_is_not_counted(
    engine: Engine, start: Start, monkeypatch: pytest.MonkeyPatch, sees_group: bool
) -> None:
    if not sees_group:
        monkeypatch.setattr("joblens.agent.containers.watch.has_group_here", lambda _info: False)
    name = a_name()
    container = start(name)  # eight MiB of page cache, which go with the file
    wait_until(lambda: has_worked(engine.api(), container))
    with ContainerResourceMonitor(name, interval=0.1) as monitor:
        wait_until(lambda: "memory_usage" in monitor.snapshot()["container_stats"])
    assert monitor.profile["process_memory"]["max_mb"] < 8
    assert float(monitor.profile["container_stats"]["memory_percent"]) < 12


def test_a_profiler_says_why_a_container_was_not_seen(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    profiler = ResourceProfiler(interval=0.1)
    profiler.start_profiling(container_name="nobody-here")
    wait_until(lambda: "nobody-here" in profiler.snapshot()["unknown"]["container_stats"])
    profile = profiler.stop_profiling()
    assert profile["container_stats"] == {}
    assert "nobody-here" in profile["unknown"]["container_stats"]
    assert "nobody-here could not be measured" in caplog.text


def test_one_that_ends_and_is_started_again_is_added_up(engine: Engine, start: Start) -> None:
    name = a_name()
    monitor = ContainerResourceMonitor(name, interval=0.1)
    monitor.start_monitoring()

    def used_s() -> float:
        assert monitor._container is not None
        return (monitor._container.peek().usage.cpu_total_usec or 0) / 1e6

    container = start(name)
    wait_until(lambda: has_worked(engine.api(), container) and used_s() > 0)
    once_s = used_s()
    take_away(engine.api(), container)
    again = start(name)
    wait_until(lambda: has_worked(engine.api(), again))
    wait_until(lambda: used_s() > once_s * 1.3)
    monitor.stop_monitoring()


def test_where_the_group_cannot_be_seen_the_engine_is_asked(
    engine: Engine, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joblens.agent.containers.watch.has_group_here", lambda _info: False)
    name = a_name()
    monitor = ContainerResourceMonitor(name, interval=0.1)
    monitor.start_monitoring()
    container = start(name)
    wait_until(lambda: has_worked(engine.api(), container))
    wait_until(lambda: (monitor.snapshot()["process_cpu"]["mean_percent"] or 0) > 0)
    profile = monitor.stop_monitoring()
    assert float(profile["container_stats"]["cpu_percent"]) > 0
    assert re.fullmatch(rf"{SIZE} / 64MiB", profile["container_stats"]["memory_usage"])


def test_info_tells_limits_and_no_environment(engine: Engine, start: Start) -> None:
    name = a_name()
    container = start(name)
    info = ContainerResourceMonitor(name).get_container_info()
    assert (info["id"], info["name"], info["engine"]) == (container, name, engine.name)
    assert (info["is_running"], info["limits"]["memory_bytes"]) == (True, MEMORY)
    assert "env" not in {key.lower() for key in info}


def test_the_info_of_no_container_is_an_error_that_names_it(start: Start) -> None:
    with pytest.raises(ContainerError, match="nobody-here"):
        ContainerResourceMonitor("nobody-here").get_container_info()


def test_a_profiler_and_a_job_monitor_tell_of_a_container_beside_the_process(
    engine: Engine, start: Start, tmp_path: Path
) -> None:
    name = a_name()
    container = start(name)
    profiler = ResourceProfiler(interval=0.1)
    profiler.start_profiling(container_name=name)
    monitor = JobMonitor(log_dir=tmp_path, interval=0.1)
    monitor.start_monitoring("t", "fenicsx", "poisson.py", container_name=name)
    wait_until(lambda: has_worked(engine.api(), container))
    # Each looks for the container on a thread of its own.
    wait_until(lambda: profiler.snapshot()["container_stats"], what="the profiler to find it")
    of_the_job = monitor._active["t"].container
    assert of_the_job is not None
    wait_until(lambda: of_the_job.stats(of_the_job.peek()), what="the monitor to find it")
    profile = profiler.stop_profiling()
    record = monitor.stop_monitoring("t", "success")
    monitor.close()
    for stats in (profile["container_stats"], record["detailed_profile"]["container_stats"]):
        assert stats["memory_usage"].endswith(" / 64MiB")
    # The process is this one, which is much larger than the container.
    assert profile["process_memory"]["max_mb"] > 20
    assert f"container={name}" in record["tags"]


def test_a_job_in_a_container_has_its_strings_in_its_profile(engine: Engine, joblens: RunJoblens) -> None:
    ran = joblens(
        "run", "--json", "--memory", "64m", "--interval", "0.1", *engine.options, "--", "sleep", "0.6"
    )
    assert ran.code == 0, ran.stderr
    stats = ran.json["detailed_profile"]["container_stats"]
    assert re.fullmatch(r"\d+\.\d\d", stats["cpu_percent"])
    assert stats["memory_usage"].endswith(" / 64MiB")


def test_without_an_engine_the_rest_is_measured_and_the_reason_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "joblens.probes.containers.api._usual_sockets", lambda _: [str(tmp_path / "none.sock")]
    )
    monitor = ContainerResourceMonitor("somebody", interval=0.05)
    monitor.start_monitoring()
    wait_until(lambda: monitor.snapshot()["samples_collected"] > 2)
    profile = monitor.stop_monitoring()
    assert profile["container_stats"] == {}
    assert "none.sock" in profile["unknown"]["container_stats"]
    assert profile["memory"]["max_used_mb"] > 0
    assert profile["process_cpu"]["mean_percent"] is None
