"""Two jobs on one NVIDIA H200, as NVML answered: the same numbers that nvidia-smi told at the same time."""

import json
from itertools import pairwise
from statistics import mean
from typing import Any

import pytest

from joblens.model.jobs.sample import GpuReading
from joblens.probes.gpu.attribution import GpuFollower
from joblens.probes.gpu.nvml import NvmlDriver
from tests.unit.probes.gpu_trees import FIXTURES
from tests.unit.probes.nvml_fake import RecordedNvml

MIB = 2**20
Series = dict[str, list[GpuReading]]


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FIXTURES / "h200_two_jobs.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def replayed(recorded: dict[str, Any]) -> Series:
    """Job -> its reading of each moment."""
    moments = iter(recorded["at_us"])
    now_us = [next(moments)]
    library = RecordedNvml(recorded["calls"])
    driver = NvmlDriver(lambda: library, clock_us=lambda: now_us[0], mono_s=lambda: now_us[0] / 1e6)
    for job, pid in recorded["pids"].items():
        driver.followers.add(job, GpuFollower(lambda pid=pid: [pid]))  # type: ignore[misc]
    series: Series = {job: [] for job in recorded["pids"]}
    while True:
        result = driver.read()
        assert result is not None
        for job, readings in series.items():
            found = result[job].readings
            assert found is not None
            readings.extend(found.values())
        try:
            now_us[0] = next(moments)
        except StopIteration:
            return series


@pytest.mark.parametrize("job", ["heavy", "light"])
def test_a_jobs_memory_is_what_nvidia_smi_says(recorded: dict[str, Any], replayed: Series, job: str) -> None:
    result = {reading.job_memory_bytes for reading in replayed[job]}
    assert result == {recorded["nvidia_smi"][job]["memory_bytes"]}


def test_a_jobs_utilisation_is_what_nvidia_smi_says(recorded: dict[str, Any], replayed: Series) -> None:
    """nvidia-smi was asked every second, from our first reading on, which tells of the time before."""
    for job, readings in replayed.items():
        ours = mean((reading.job_utilization or 0) / 100 for reading in readings[1:])
        theirs = mean(recorded["nvidia_smi"][job]["sm_percent"][: 2 * (len(readings) - 1)])
        assert ours == pytest.approx(theirs, rel=0.02, abs=2)


def test_busy_time_adds_up_to_the_mean_utilisation(recorded: dict[str, Any], replayed: Series) -> None:
    elapsed_us = recorded["at_us"][-1] - recorded["at_us"][0]
    for readings in replayed.values():
        assert readings[0].job_busy_usec == 0
        last = readings[-1].job_busy_usec
        assert last is not None
        shares = [(reading.job_utilization or 0) / 10_000 for reading in readings[1:]]
        assert last / elapsed_us == pytest.approx(mean(shares), rel=0.02)


def test_jobs_together_never_use_more_than_the_device(replayed: Series) -> None:
    for heavy, light in zip(replayed["heavy"], replayed["light"], strict=True):
        assert (heavy.job_utilization or 0) + (light.job_utilization or 0) <= 10_000
        assert (heavy.job_memory_bytes or 0) + (light.job_memory_bytes or 0) == heavy.processes_memory_bytes


def test_the_device_is_as_nvidia_smi_says(recorded: dict[str, Any], replayed: Series) -> None:
    device, readings = recorded["nvidia_smi"]["device"], replayed["heavy"]
    used = mean((reading.memory_used_bytes or 0) / MIB for reading in readings)
    assert used == pytest.approx(mean(device["memory_used_mib"]), rel=0.001)
    power = mean((reading.power_mw or 0) / 1000 for reading in readings)
    assert power == pytest.approx(mean(device["power_w"]), rel=0.02)
    busy = mean((reading.utilization or 0) / 100 for reading in readings)
    assert busy == pytest.approx(mean(device["utilization_percent"]), rel=0.02)


def test_energy_is_power_over_time(recorded: dict[str, Any], replayed: Series) -> None:
    readings = replayed["heavy"]
    seconds = (recorded["at_us"][-1] - recorded["at_us"][0]) / 1e6
    power_w = mean((reading.power_mw or 0) / 1000 for reading in readings)
    assert readings[-1].energy_mj is not None
    assert readings[-1].energy_mj / 1000 / seconds == pytest.approx(power_w, rel=0.02)


def test_the_bus_is_measured_in_the_first_reading_and_half_a_minute_later(replayed: Series) -> None:
    measured = [place for place, each in enumerate(replayed["heavy"]) if each.pcie_rx_bytes_per_s is not None]
    assert measured[0] == 0
    assert all(later - earlier >= 14 for earlier, later in pairwise(measured))
