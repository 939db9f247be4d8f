"""Launchers that wait inside fresh groups for a job."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from joblens.agent.launcher.launch import LaunchPlan
from joblens.agent.session.context import AgentContext
from joblens.agent.session.host import Standby
from joblens.agent.session.session import JobSession
from joblens.agent.terminal.streams import OutputFiles
from joblens.app.jobs.preparation import prepare
from joblens.app.jobs.requests import Request
from joblens.app.wiring.agent_context import close_context, open_context
from joblens.app.wiring.settings import load_settings
from joblens.model.jobs.job import Accounting, Requirements, Status

ACCOUNTING = [Accounting.AUTO, Accounting.PROCESS_TREE]


@pytest.fixture
def context(tmp_path: Path) -> Iterator[AgentContext]:
    settings = load_settings(overrides={"store.url": str(tmp_path / "jobs.db")}).settings
    context = open_context(settings)
    yield context
    close_context(context)


def until(context: AgentContext, condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        context.loop.call(lambda: None)
        context.loop.run_once()
        assert time.monotonic() < deadline_s


def session_in(
    context: AgentContext, standby: Standby, tmp_path: Path, argv: list[str], needs: Requirements
) -> JobSession:
    launcher = None
    while launcher is None:
        context.loop.run_once()
        launcher = standby.take()
    settings = load_settings(overrides={"store.url": str(tmp_path / "jobs.db")}).settings
    prepared = prepare(Request(argv=tuple(argv), requirements=needs), settings)
    output = OutputFiles(str(tmp_path / prepared.job.uuid), 1 << 20)
    plan = LaunchPlan(
        argv=prepared.argv,
        env=prepared.env,
        cwd=str(tmp_path),
        stdio=("/dev/null", output.stdout.path, output.stderr.path),
    )
    return JobSession(prepared.job, plan, context, output=output, prepared=launcher)


@pytest.mark.parametrize("accounting", ACCOUNTING)
def test_a_job_runs_where_a_launcher_stood_by(
    context: AgentContext, tmp_path: Path, accounting: Accounting
) -> None:
    standby = Standby(context, accounting)
    standby.want(1)
    session = session_in(context, standby, tmp_path, ["sh", "-c", "pwd; exit 3"], Requirements())
    session.start()
    until(context, lambda: session.is_over)
    outcome = session.record.outcome
    assert outcome is not None
    assert (outcome.status, outcome.exit_code) == (Status.FAILED, 3)
    assert (tmp_path / session.job.uuid / "stdout.log").read_text() == f"{tmp_path}\n"
    assert outcome.usage.cpu_total_usec
    standby.close()


@pytest.mark.cgroup
def test_limits_are_those_of_the_job_that_came(context: AgentContext, tmp_path: Path) -> None:
    standby = Standby(context, Accounting.AUTO)
    standby.want(1)
    hungry = ["python3", "-c", "x = bytearray(200 << 20); print(len(x))"]
    session = session_in(context, standby, tmp_path, hungry, Requirements(memory_bytes=60 << 20))
    session.start()
    until(context, lambda: session.is_over)
    assert session.record.outcome is not None
    assert session.record.outcome.reason == "out-of-memory"
    standby.close()


def test_nothing_is_left_of_launchers_nobody_needed(context: AgentContext) -> None:
    standby = Standby(context, Accounting.AUTO)
    standby.want(3)
    context.loop.run_once()
    launchers = list(standby._coming.values()) + [one.launcher for one in standby._ready]
    groups = [path for one in standby._ready if one.groups for path in one.groups.paths.values()]
    standby.close()
    assert len(launchers) == 3
    assert not any(os.path.exists(f"/proc/{one.pid}") for one in launchers)
    assert not any(os.path.exists(path) for path in groups)
