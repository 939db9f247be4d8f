"""Instruments that cannot be had leave a reason, and nothing else happens."""

import threading
from typing import Any

import pytest

from joblens.agent.instruments import table as registry
from joblens.agent.instruments.table import DetailTaker, Instruments, Watched
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import ContainerJob, Job
from joblens.model.writes import DetailsTaken
from tests.fake_instruments import CountingProbe, FakeInstruments


class Stubborn(CountingProbe):
    def close(self) -> None:
        raise RuntimeError("it does not want to go")


@pytest.fixture
def instruments(monkeypatch: pytest.MonkeyPatch) -> FakeInstruments:
    return FakeInstruments(monkeypatch)


def watched(**changes: Any) -> Watched:
    job = Job(uuid="u", argv=("true",), created_at_us=0, **changes)
    return Watched(job=job, main_pid=None, pids=list)


def test_an_instrument_that_cannot_be_imported_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_MAKERS", {"gpu": ("joblens.no_such_module",)})
    (probe,) = Instruments().open(watched()).probes
    assert probe.read() == {}
    assert set(probe.unknown) == {"gpu", "gpu_energy"}
    assert "no_such_module" in probe.unknown["gpu"]


def test_an_instrument_that_raises_is_a_reason_and_the_others_are_opened(
    instruments: FakeInstruments,
) -> None:
    def broken(watched: Watched, them: Instruments) -> Any:
        raise PermissionError("the driver says no")

    instruments.offer("gpu", broken)
    instruments.offer("network", lambda *_: Stubborn())
    missing, steady = Instruments().open(watched()).probes
    assert "the driver says no" in missing.unknown["gpu"]
    assert steady.read() == {"network_rx_bytes": 1010}


def test_a_detail_that_cannot_be_opened_is_reported_once(instruments: FakeInstruments) -> None:
    def broken(watched: Watched, them: Instruments) -> Any:
        raise OSError("no netlink")

    instruments.offer("endpoints", broken)
    received: list[DetailsTaken] = []
    taker = DetailTaker("u", Instruments().open(watched()).details, received.extend)
    taker.tick()
    taker.tick()
    (taken,) = received
    assert taken.details == Details(
        unknown={"endpoints": "the endpoints probe could not be opened: no netlink"}
    )


def test_what_was_not_asked_for_says_so(instruments: FakeInstruments) -> None:
    instruments.offer("network", lambda *_: Stubborn())
    (probe,) = Instruments().open(watched(probes=("gpu",))).probes
    assert probe.read() == {}
    assert "not requested" in probe.unknown["network"]


def test_a_job_that_is_not_monitored_opens_nothing(instruments: FakeInstruments) -> None:
    instruments.offer("network", lambda *_: Stubborn())
    assert Instruments().open(watched(monitor=False)).probes == ()


def test_one_that_cannot_be_closed_keeps_nobody(instruments: FakeInstruments) -> None:
    instruments.offer("network", lambda *_: Stubborn())
    Instruments().open(watched()).close()


def test_all_jobs_share_one_driver_whichever_thread_asks_first() -> None:
    class Quiet:
        name, interval_s = "quiet", 1.0

        def read(self) -> int:
            return 1

        def close(self) -> None:
            pass

    shared, got = Instruments(), []
    together = threading.Barrier(8)

    def ask() -> None:
        together.wait()
        got.append(shared.driver("quiet", Quiet))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(driver) for driver in got}) == 1


def test_why_a_container_has_no_counters_is_reported() -> None:
    container = watched(container=ContainerJob(image="alpine"), probes=("counters",))
    reasons = [dict(probe.unknown) for probe in Instruments().open(container).probes]
    assert any("which the engine starts" in reason.get("cpu_migrations", "") for reason in reasons)
