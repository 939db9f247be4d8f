"""One slot, driven step by step: what it does while its launcher is a job further on than it knows."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.agent.launcher.slot_ledger import ledgers, started_jobs
from joblens.agent.measuring.readings import LiveReadings
from joblens.agent.session.context import AgentContext
from joblens.agent.slots.loop import SlotListener, SlotLoop, SlotPlan
from joblens.agent.slots.slot import Finished, Slot, SlotJob
from joblens.app.wiring.agent_context import close_context, open_context
from joblens.app.wiring.settings import load_settings
from joblens.engine.life.job_life import EndCause
from joblens.model.jobs.job import Accounting, Job, Record, Status
from joblens.model.values.ids import new_uuid
from joblens.model.writes import CancelAsked
from joblens.probes.host.machine_load import HostProbe
from tests.conftest import wait_until
from tests.fake_instruments import CountingProbe, FakeInstruments
from tests.integration.run_jobs import PYTHON, wait_for_file

MIB = 1 << 20


@pytest.fixture
def context(store_path: Path) -> Iterator[AgentContext]:
    context = open_context(load_settings().settings)
    yield context
    close_context(context)


@pytest.fixture(params=[Accounting.AUTO, Accounting.PROCESS_TREE])
def slot(request: pytest.FixtureRequest, context: AgentContext, tmp_path: Path) -> Iterator[Slot]:
    slot = Slot(context, request.param, str(tmp_path / "logs"), 1 << 20)
    yield slot
    slot.close()


@pytest.fixture
def host() -> Iterator[HostProbe]:
    host = HostProbe()
    yield host
    host.close()


def job(*argv: str) -> SlotJob:
    return SlotJob(Job(uuid=new_uuid(), argv=argv, created_at_us=0, cwd="/"), argv, {})


def start(slot: Slot, first: SlotJob, *ahead: SlotJob) -> None:
    slot.send([first, *ahead])
    slot.begin(first, {})


def stop(slot: Slot) -> None:
    def has_ended() -> bool:
        slot.stop()
        return slot._home.launcher.has_answered()

    wait_until(has_ended, what="the job's end")


def test_what_runs_while_an_answer_waits_is_not_sampled_as_the_job_before(
    slot: Slot, host: HostProbe, tmp_path: Path
) -> None:
    large = f"x = bytearray(100 << 20); open({str(tmp_path / 'here')!r}, 'w').write('x\\n'); input()"
    go = tmp_path / "go"
    small = job("sh", "-c", f"until [ -e {go} ]; do sleep 0.01; done")
    start(slot, small, job("sh", "-c", f'{" ".join(PYTHON)} "{large}"; sleep 60'))
    assert slot.take_sample(host) is not None
    go.touch()
    wait_for_file(tmp_path / "here")
    assert slot.take_sample(host) is None
    _, finished = slot.finish(slot.receive(), {})
    assert finished.sample_count == 3
    assert max(sample.memory_anon_bytes or 0 for sample in finished.samples) < 50 * MIB


def test_stopping_a_job_whose_successor_runs_already_stops_neither(slot: Slot, tmp_path: Path) -> None:
    first, second = job("true"), job("sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 0.3; exit 4")
    start(slot, first, second)
    wait_for_file(tmp_path / "pid")
    assert slot.take_back() is None
    slot.stop(at_once=True)
    slot.stop(at_once=True)
    ended, finished = slot.finish(slot.receive(), {})
    assert (ended, finished.status, finished.cause) == (first, 0, EndCause.NONE)
    following = slot.next_job()
    assert following is second
    slot.begin(following, {})
    _, finished = slot.finish(slot.receive(), {})
    assert os.waitstatus_to_exitcode(finished.status or 0) == 4


def test_stopping_a_job_does_not_let_the_one_behind_it_begin(slot: Slot, tmp_path: Path) -> None:
    first, second, third = job("sleep", "60"), job("touch", f"{tmp_path}/second"), job("true")
    start(slot, first, second, third)
    assert [slot.take_back(), slot.take_back(), slot.take_back()] == [third, second, None]
    stop(slot)
    _, finished = slot.finish(slot.receive(), {})
    assert (finished.status, finished.cause, finished.is_clean) == (15, EndCause.CANCELLED, False)
    assert [slot.receive(), slot.receive()] == [("skipped", second.job.uuid), ("skipped", third.job.uuid)]
    assert [slot.skipped(second.job.uuid), slot.skipped(third.job.uuid)] == [None, None]
    assert not slot.is_busy
    assert slot.free_ahead == 1
    assert not (tmp_path / "second").exists()


def test_jobs_behind_one_that_leaves_processes_behind_are_given_back(slot: Slot, tmp_path: Path) -> None:
    first, second, third = job("sh", "-c", "sleep 60 & sleep 0.2"), job("true"), job("true")
    start(slot, first, second, third)
    _, finished = slot.finish(slot.receive(), {})
    assert finished.leftovers == 1
    assert slot.take_skipped() == [second, third]
    assert not slot.is_busy


def test_memory_does_not_grow_with_the_time_a_job_runs(slot: Slot, host: HostProbe) -> None:
    start(slot, job("sleep", "600"))
    for _ in range(600):
        assert slot.take_sample(host) is not None
    stop(slot)
    _, finished = slot.finish(slot.receive(), {})
    assert finished.sample_count == 602
    assert len(finished.samples) < 450


def test_instruments_look_at_jobs_that_live_to_see_a_tick(
    slot: Slot, host: HostProbe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    energy = CountingProbe("host_energy_package_uj", "energy")
    FakeInstruments(monkeypatch).offer("energy", lambda *_: energy)
    start(slot, job("/bin/sh", "-c", f"echo > {tmp_path}/runs; exec sleep 60"))
    wait_for_file(tmp_path / "runs")
    taken = [slot.take_sample(host) for _ in range(2)]
    assert [one[2].host_energy_package_uj for one in taken if one is not None] == [10, 20]
    stop(slot)
    _, finished = slot.finish(slot.receive(), {})
    assert finished.origins.sources["energy"] == "a counter of a test"
    assert "energy" in finished.origins.lower_bounds  # it was first looked at when it ran already
    assert energy.is_closed


def test_the_threads_of_a_job_that_is_over_have_ended(slot: Slot, host: HostProbe, tmp_path: Path) -> None:
    start(slot, job("/bin/sh", "-c", f"echo > {tmp_path}/runs; exec sleep 60"))
    wait_for_file(tmp_path / "runs")
    assert slot.take_sample(host) is not None
    stop(slot)
    _, finished = slot.finish(slot.receive(), {})
    assert finished.details.threads is not None
    assert [use.is_alive for use in finished.details.threads.threads] == [False]
    # The sockets are not listed that soon; it is told that nobody saw them.
    assert finished.details.endpoints is not None or finished.details.unknown["endpoints"]


def test_of_a_job_that_nobody_looked_at_the_record_says_so(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[CountingProbe] = []

    def open_probe(*_: object) -> CountingProbe:
        opened.append(CountingProbe("host_energy_package_uj", "energy"))
        return opened[-1]

    FakeInstruments(monkeypatch).offer("energy", open_probe)
    start(slot, job("/bin/true"))
    wait_until(slot._home.launcher.has_answered, what="the job's end")
    _, finished = slot.finish(slot.receive(), {})
    assert finished.origins.unknown["energy"] == "no sample was taken between start and end"
    assert finished.origins.unknown["open_files"]
    assert not opened


def test_opening_instruments_does_not_hold_up_the_end_of_a_job(
    slot: Slot, host: HostProbe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_opening, go_on = threading.Event(), threading.Event()
    energy = CountingProbe("host_energy_package_uj", "energy")

    def open_probe(*_: object) -> CountingProbe:
        is_opening.set()
        go_on.wait(20)
        return energy

    FakeInstruments(monkeypatch).offer("energy", open_probe)
    start(slot, job("/bin/sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"))
    taken: list[object] = []
    sampler = threading.Thread(target=lambda: taken.append(slot.take_sample(host)))
    sampler.start()
    ended: list[Finished] = []
    try:
        assert is_opening.wait(20)
        (tmp_path / "go").touch()
        wait_until(slot._home.launcher.has_answered, what="the job's end")
        ending = threading.Thread(target=lambda: ended.append(slot.finish(slot.receive(), {})[1]))
        ending.start()
        ending.join(10)
        assert ended, "the end waits for the instruments"
    finally:
        go_on.set()
        sampler.join()
    assert taken == [None]
    assert energy.is_closed
    assert "energy" not in ended[0].origins.sources


def test_jobs_that_the_store_refused_stay_in_the_ledger(
    context: AgentContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next joblens records them."""
    plan = SlotPlan(width=1, logs_dir=str(tmp_path / "logs"), output_max_bytes=1 << 20)
    loop = SlotLoop(context, plan, SlotListener())

    def refuse(_writes: object) -> None:
        raise ValueError("no such table")

    monkeypatch.setattr(context.recorder.store, "apply", refuse)
    one = job("true")
    loop.feed(one)
    loop.end_feed()
    loop.drive()
    loop.close()
    (ledger,) = ledgers(context.spool_dir)
    assert [begun.uuid for begun in started_jobs(ledger)] == [one.job.uuid]


def test_nothing_is_left_of_a_ledger_whose_jobs_are_recorded(context: AgentContext, tmp_path: Path) -> None:
    plan = SlotPlan(width=1, logs_dir=str(tmp_path / "logs"), output_max_bytes=1 << 20)
    loop = SlotLoop(context, plan, SlotListener())
    loop.feed(job("true"))
    loop.end_feed()
    loop.drive()
    loop.close()
    assert ledgers(context.spool_dir) == []


def test_a_live_reading_of_a_slot_job_leaves_out_its_launcher(slot: Slot, context: AgentContext) -> None:
    one = job("sleep", "60")
    slot.send([one])
    attempt = slot.begin(one, {})
    wait_until(lambda: len(slot._home.job_pids()) == 1, what="its process")
    readings = LiveReadings(context.host)
    found = readings.read(Record(status=Status.RUNNING, job=one.job, attempt=attempt))
    readings.close()
    stop(slot)
    assert found is not None
    assert found.processes == 1
    assert found.memory_kernel_peak_bytes is None


def test_a_cancel_request_that_comes_while_the_slots_close_is_written_nowhere_else(
    context: AgentContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = SlotPlan(width=1, logs_dir=str(tmp_path / "logs"), output_max_bytes=1 << 20)
    loop = SlotLoop(context, plan, SlotListener())
    written: list[int] = []
    closing = threading.Thread(target=loop.close)

    def write(descriptor: int, _value: int) -> None:
        closing.start()
        closing.join(0.2)
        os.fstat(descriptor)  # still that of the loop
        written.append(descriptor)

    monkeypatch.setattr(context.recorder.store, "cancel_requests", lambda: {"a1": CancelAsked("a1", 1)})
    monkeypatch.setattr(os, "eventfd_write", write)
    loop.poll_cancel_requests()
    wait_until(lambda: written, what="the wake-up", timeout=5)
    closing.join()
    loop.poll_cancel_requests()
    context.recorder.ask(lambda _store: None, lambda _: written.append(-1))
    wait_until(lambda: len(written) > 1, what="the second answer")
    assert written[1] == -1
