"""When joblens itself cannot go on while it starts a job: nothing of the job stays behind."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import joblens
from joblens.agent.launcher.launch import LaunchPlan
from joblens.agent.session.context import AgentContext
from joblens.agent.session.host import SessionOrder
from joblens.agent.session.pool import SessionPool
from joblens.agent.session.session import JobSession
from joblens.app.jobs.preparation import PreparedJob, prepare
from joblens.app.jobs.requests import Request
from joblens.app.wiring.agent_context import close_context, open_context
from joblens.app.wiring.settings import load_settings
from joblens.files.processes import is_running
from joblens.model.errors import LaunchError, ProbeError
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample
from joblens.stores.sqlite import SqliteStore
from tests.conftest import wait_until
from tests.fake_instruments import CountingProbe, FakeInstruments
from tests.integration import run_jobs
from tests.integration.run_jobs import wait_for_file


@pytest.fixture(params=["auto", "process_tree"], autouse=True)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without GPUs: their driver opens files of its own on its thread, at any moment."""
    monkeypatch.setenv("JOBLENS_LIMITS_ACCOUNTING", request.param)
    monkeypatch.setenv("JOBLENS_JOB_METRICS_PROBES", "-gpu")


@pytest.fixture(autouse=True)
def nothing_left(store_path: Path, tmp_path: Path) -> Iterator[None]:
    yield
    wait_until(lambda: run_jobs._processes_of(tmp_path) == {}, what="the last process to end", timeout=10)


@pytest.fixture
def context(store_path: Path) -> Iterator[AgentContext]:
    context = open_context(load_settings().settings, warn=pytest.fail)
    yield context
    close_context(context)


def a_job(tmp_path: Path, *argv: str) -> PreparedJob:
    return prepare(Request(argv=argv, cwd=str(tmp_path)), load_settings().settings)


def session_of(one: PreparedJob, context: AgentContext, **more: Any) -> JobSession:
    plan = LaunchPlan(argv=one.argv, env=one.env, cwd=one.cwd, stdio=("/dev/null", "/dev/null", "/dev/null"))
    return JobSession(one.job, plan, context, **more)


def stored(path: Path) -> list[Record]:
    store = SqliteStore(str(path))
    try:
        return list(store.records(HistoryQuery()))
    finally:
        store.close()


def open_files() -> dict[str, str]:
    """But for the one counter that a context keeps from its first job on, which is opened beside the job."""
    found = all_open_files()
    counters = [number for number, link in found.items() if "perf_event" in link]
    return {number: link for number, link in found.items() if number not in counters[:1]}


def all_open_files() -> dict[str, str]:
    """Number -> what it is. Not the listing itself, which has whatever number is free at that moment."""
    numbers = os.listdir("/proc/self/fd")
    return {number: link for number in numbers if (link := link_of(f"/proc/self/fd/{number}"))}


def link_of(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""


def test_a_job_that_cannot_be_written_down_runs_all_the_same(store_path: Path, tmp_path: Path) -> None:
    """And leaves no launcher and no group."""
    warnings: list[str] = []
    context = open_context(load_settings().settings, warn=warnings.append)
    context.recorder.read(lambda store: store.cancel_requests())  # opens it
    context.recorder.write([])
    context.recorder.put([])  # its thread
    before = open_files()
    one = a_job(tmp_path, "sh", "-c", "exit 6")
    session = session_of(
        PreparedJob(replace(one.job, params={"x": object()}), one.argv, one.env, one.cwd), context
    )
    session.start()
    context.loop.run_until(lambda: session.is_over)
    assert session.record.outcome is not None
    assert session.record.outcome.exit_code == 6
    assert "facts about jobs may be lost" in warnings[0]
    assert session.pids() == []
    assert open_files() == before
    assert session.record.attempt is not None
    assert [path for path in session.record.attempt.groups.values() if os.path.exists(path)] == []
    close_context(context)


def test_a_fault_after_the_first_instruction_ends_the_job_and_its_record(
    context: AgentContext, tmp_path: Path, store_path: Path
) -> None:
    def fail(sample: Sample) -> None:
        raise RuntimeError("no room on the screen")

    other = session_of(a_job(tmp_path, "sleep", "60"), context, on_sample=fail)
    session = session_of(a_job(tmp_path, "sleep", "60"), context, on_sample=fail)
    begin_without_success(other, context)  # opens what all jobs share
    before = open_files()
    begin_without_success(session, context)
    assert open_files() == before
    assert session.is_over
    assert context.loop._callbacks.keys() == {context.loop._wake_read}
    record, _ = stored(store_path)
    assert str(record.status) == "error"
    assert record.attempt is not None
    assert [path for path in record.attempt.groups.values() if os.path.exists(path)] == []


def begin_without_success(session: JobSession, context: AgentContext) -> None:
    session.start()
    with pytest.raises(RuntimeError, match="no room"):
        context.loop.run_until(lambda: session.is_over)
    context.loop.run_until(lambda: session.is_over)  # its record is kept


@pytest.mark.parametrize("waits", [True, False])
def test_a_closed_kit_leaves_nothing_open_however_soon_it_is_closed(
    store_path: Path, tmp_path: Path, waits: bool
) -> None:
    def begin_and_close() -> dict[str, str]:
        context = open_context(load_settings().settings, warn=pytest.fail)
        context.instruments.warm_up(a_job(tmp_path, "true").job)
        if waits:
            wait_until(lambda: not is_getting_ready(), what="the counter to be opened")
        close_context(context)
        wait_until(lambda: not is_getting_ready(), what="the counter to be opened")
        return all_open_files()

    before = begin_and_close()  # imports what is needed
    assert begin_and_close() == before


def is_getting_ready() -> bool:
    return any(thread.name == "joblens-ready" for thread in threading.enumerate())


def test_output_that_cannot_be_kept_is_a_launch_error(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JOBLENS_OUTPUT_DIR", str(tmp_path / "file" / "logs"))
    with pytest.raises(LaunchError, match=r"could not be started.*file"):
        joblens.run(["true"])


def test_one_job_that_cannot_begin_ends_the_others(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    monkeypatch.setenv("JOBLENS_OUTPUT_DIR", str(logs))
    started = tmp_path / "started"

    def commands() -> Iterator[list[str]]:
        yield ["sh", "-c", f"echo > {started}; exec sleep 60"]
        wait_for_file(started)
        logs.rename(tmp_path / "elsewhere")
        logs.write_text("in the way")
        yield ["true"]

    with pytest.raises(LaunchError, match="logs"):
        list(joblens.map_commands(commands(), jobs=2, timeout=50, cwd=tmp_path))
    assert [str(record.status) for record in stored(store_path)] == ["cancelled"]


def test_when_the_loop_itself_fails_no_job_goes_on_unwatched(
    context: AgentContext, tmp_path: Path, store_path: Path
) -> None:
    started = tmp_path / "started"
    one = a_job(tmp_path, "sh", "-c", f"echo > {started}; exec sleep 60")
    plan = LaunchPlan(argv=one.argv, env=one.env, cwd=one.cwd)

    def orders() -> Iterator[SessionOrder]:
        yield SessionOrder(job=one.job, plan=plan, folder=str(tmp_path / "logs"), output_max_bytes=10**6)
        wait_for_file(started)

        def fault() -> None:
            raise RuntimeError("a fault of joblens")

        context.loop.call(fault)

    with pytest.raises(RuntimeError, match="a fault of joblens"):
        list(SessionPool(context, 2).run(orders()))
    (record,) = stored(store_path)
    attempt = record.attempt
    assert attempt is not None
    wait_until(lambda: not is_running(attempt.pid or 0, attempt.pid_start_ticks), what="the job to be gone")
    os.kill(attempt.launcher_pid or 0, signal.SIGKILL)
    os.waitpid(attempt.launcher_pid or 0, 0)


def test_a_group_that_cannot_be_read_leaves_no_instrument_open(
    context: AgentContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = CountingProbe()
    FakeInstruments(monkeypatch).offer("network", lambda *_: network)

    def refuse(*_: object) -> None:
        raise ProbeError("the group has gone")

    monkeypatch.setattr(context.accountant, "meter", refuse)
    session = session_of(a_job(tmp_path, "sleep", "60"), context)
    session.start()
    assert "has gone" in str(session.error)
    assert network.is_closed
