"""Instruments that hang, raise or stop answering: the job, its other numbers and its end do not care."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import joblens
from joblens.agent.instruments.table import Instruments, Watched
from joblens.agent.runtime.driver_thread import DriverThread
from tests.fake_instruments import CountingProbe, FakeInstruments

HANGS_S = 60.0  # at most: each test lets it return in the end


class HangingDriver:
    """A GPU's driver that does not come back."""

    name = "gpu"
    interval_s = 0.1

    def __init__(self) -> None:
        self.was_asked = threading.Event()
        self.may_return = threading.Event()
        self.has_returned = False

    def read(self) -> int:
        self.was_asked.set()
        self.may_return.wait(HANGS_S)
        self.has_returned = True
        return 1

    def close(self) -> None:
        pass


class HangingProbe:
    """Hands out what its driver has read last."""

    name = "gpu"

    def __init__(self, thread: DriverThread[int]) -> None:
        self.sources: dict[str, str] = {}
        self._thread = thread
        thread.use()

    @property
    def unknown(self) -> dict[str, str]:
        return {"gpu": self._thread.problem() or "the driver has not answered yet"}

    def read(self) -> dict[str, Any]:
        return {} if self._thread.latest() is None else {"gpus": {}}

    def close(self) -> None:
        self._thread.leave()


@pytest.fixture
def hanging() -> Iterator[HangingDriver]:
    driver = HangingDriver()
    yield driver
    driver.may_return.set()


def test_a_driver_that_hangs_delays_neither_samples_nor_the_end(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hanging: HangingDriver
) -> None:
    """The job ends once it was sampled often enough, and joblens returns while the driver still hangs."""
    sampled = tmp_path / "sampled"

    class EndsTheJob(CountingProbe):
        def read(self) -> dict[str, Any]:
            found = super().read()
            if found["network_rx_bytes"] >= 1000 + 8 * 10:
                sampled.touch()
            return found

    def open_probe(_watched: Watched, instruments: Instruments) -> HangingProbe:
        return HangingProbe(instruments.driver("gpu", lambda: hanging))

    fake = FakeInstruments(monkeypatch)
    fake.offer("gpu", open_probe)
    fake.offer("network", lambda *_: EndsTheJob())
    monkeypatch.setattr("joblens.agent.runtime.driver_thread._SILENT_AFTER_S", HANGS_S)
    result = joblens.run(["sh", "-c", f"until [ -e {sampled} ]; do sleep 0.02; done"], interval=0.1)
    assert hanging.was_asked.is_set()
    assert not hanging.has_returned
    assert len(result.samples) >= 6
    assert result.usage.network_rx_bytes
    assert result.usage.unknown["gpu_memory_peak_bytes"] == "the driver has not answered yet"


def test_one_that_hangs_is_said_to_hang(monkeypatch: pytest.MonkeyPatch, hanging: HangingDriver) -> None:
    monkeypatch.setattr("joblens.agent.runtime.driver_thread._SILENT_AFTER_S", 0.05)
    thread = DriverThread(hanging)
    thread.use()
    assert hanging.was_asked.wait(10)
    while not (problem := thread.problem()):
        time.sleep(0.01)
    assert problem.startswith("gpu has not answered for")
    assert thread.latest() is None
    thread.leave()


def test_one_that_raises_becomes_a_reason_in_the_record(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Falling(CountingProbe):
        def read(self) -> dict[str, Any]:
            raise OSError("the counters fell off")

    fake = FakeInstruments(monkeypatch)
    fake.offer("energy", lambda *_: Falling("host_energy_package_uj", "energy"))
    fake.offer("network", lambda *_: CountingProbe())
    result = joblens.run(["true"])
    assert result.ok
    assert result.usage.unknown["energy_package_uj"] == "the counters fell off"
    assert result.usage.network_rx_bytes


def test_one_that_cannot_be_opened_becomes_a_reason_in_the_record(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("not for you")

    FakeInstruments(monkeypatch).offer("network", refuse)
    result = joblens.run(["true"])
    assert result.ok
    assert result.usage.network_rx_bytes is None
    assert "not for you" in result.usage.unknown["network_rx_bytes"]


def test_what_was_not_asked_for_is_not_measured_and_the_record_says_so(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeInstruments(monkeypatch).offer("network", lambda *_: CountingProbe())
    result = joblens.run(["true"], probes="none")
    assert result.usage.network_rx_bytes is None
    assert "not requested" in result.usage.unknown["network_rx_bytes"]
    assert result.record.job.probes == ()
