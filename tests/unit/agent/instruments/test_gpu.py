import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from joblens.agent.instruments import gpu as instrument_gpu
from joblens.agent.instruments.gpu import GpuFactsProbe, GpuProbe, open_gpu_facts, open_probe
from joblens.agent.instruments.table import Instruments, Watched
from joblens.agent.runtime.driver_thread import DriverThread
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Job
from joblens.model.jobs.sample import GpuReading
from joblens.probes.gpu.drm import DrmDriver
from joblens.probes.gpu.nvml import NvmlDriver
from tests.conftest import wait_until
from tests.unit.probes.gpu_trees import GpuTree
from tests.unit.probes.nvml_fake import FakeGpu, FakeNvml

MIB = 2**20


def watched(*pids: int, given: tuple[str, ...] = (), last: Mapping[str, GpuReading] | None = None) -> Watched:
    job = Job(uuid="0" * 32, argv=("train",), created_at_us=0, gpu_devices=given)
    return Watched(job=job, main_pid=None, pids=lambda: list(pids), last_gpus=last or {})


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    gpu = FakeGpu("GPU-a")
    kinds = {"nvml": (lambda: True, lambda: NvmlDriver(lambda: FakeNvml(gpu)))}
    monkeypatch.setattr(instrument_gpu, "_KINDS", kinds)
    return gpu


@pytest.fixture
def opened(gpu: FakeGpu) -> Iterator[Callable[[Watched], tuple[GpuProbe, GpuFactsProbe]]]:
    probes: list[GpuProbe] = []
    instruments = Instruments()

    def make(job: Watched) -> tuple[GpuProbe, GpuFactsProbe]:
        probe, facts = open_probe(job, instruments), open_gpu_facts(job, instruments)
        assert isinstance(probe, GpuProbe)
        assert facts is not None
        probes.append(probe)
        return probe, facts

    yield make
    for probe in probes:
        probe.close()


def test_a_machine_without_gpus_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instrument_gpu, "_KINDS", {})
    probe = open_probe(watched(), Instruments())
    assert probe.read() == {}
    assert probe.unknown == dict.fromkeys(("gpu", "gpu_energy"), "no GPU was found on this machine")
    assert open_gpu_facts(watched(), Instruments()) is None


def test_a_job_gets_its_part_of_the_gpu(gpu: FakeGpu, opened: Any) -> None:
    gpu.processes = {71: 400 * MIB}
    probe, _ = opened(watched(71))
    reading = wait_until(probe.read)["gpus"]["GPU-a"]
    assert (reading.job_memory_bytes, reading.utilization) == (400 * MIB, 9700)
    assert probe.unknown == {}
    assert probe.sources["gpu"] == "NVML (nvidia-ml-py)"


def test_numbers_of_a_job_that_used_a_gpu_are_lower_bounds(gpu: FakeGpu, opened: Any) -> None:
    """What it did before the first reading and after the last is not seen."""
    gpu.processes = {71: MIB}
    user, _ = opened(watched(71))
    assert not user.lower_bounds
    wait_until(user.read)
    assert user.lower_bounds == {"gpu", "gpu_energy"}


def test_a_job_that_used_no_gpu_has_no_lower_bound(gpu: FakeGpu, opened: Any) -> None:
    probe, _ = opened(watched(71))
    assert wait_until(probe.read) == {"gpus": {}}
    assert not probe.lower_bounds


def test_busy_time_of_a_job_that_began_here_has_no_base(gpu: FakeGpu, opened: Any) -> None:
    gpu.processes = {71: MIB}
    gpu.samples = [(71, time.time_ns() // 1000 + 60_000_000, 50)]
    job = watched(71)
    began_here, _ = opened(Watched(job=job.job, main_pid=71, pids=job.pids))
    assert wait_until(began_here.read)["gpus"]["GPU-a"].job_busy_usec > 0


def test_one_reading_is_handed_out_once(gpu: FakeGpu, opened: Any) -> None:
    probe, _ = opened(watched(71, given=("0",)))
    assert wait_until(probe.read)
    assert probe.read() == {}


def test_facts_are_reported_when_they_change(gpu: FakeGpu, opened: Any) -> None:
    probe, facts = opened(watched(71, given=("0",)))
    wait_until(probe.read)
    details = facts.read()
    assert details.gpus is not None
    assert details.gpus[0].name == "NVIDIA H200"
    assert facts.read() == Details()


def test_a_job_that_ends_before_the_first_answer_has_a_reason(gpu: FakeGpu, opened: Any) -> None:
    probe, _ = opened(watched(71))
    assert "before" in probe.unknown["gpus"]


def test_a_driver_that_cannot_be_had_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise RuntimeError("NVML: Driver/library version mismatch")

    kinds = {"nvml": (lambda: True, lambda: NvmlDriver(refuse))}
    monkeypatch.setattr(instrument_gpu, "_KINDS", kinds)
    probe = open_probe(watched(71), Instruments())
    assert isinstance(probe, GpuProbe)
    try:
        thread = probe._threads[0]
        wait_until(thread.problem)
        assert probe.read() == {}
        assert probe.unknown == {"gpus": "NVML: Driver/library version mismatch"}
    finally:
        probe.close()


@pytest.mark.within(20)
def test_a_driver_that_hangs_delays_nobody_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def hang() -> Any:
        release.wait()
        raise RuntimeError("too late")

    monkeypatch.setattr("joblens.agent.runtime.driver_thread._SILENT_AFTER_S", 0.05)
    monkeypatch.setattr("joblens.agent.runtime.driver_thread._SILENT_AFTER", 0)
    kinds = {"nvml": (lambda: True, lambda: NvmlDriver(hang))}
    monkeypatch.setattr(instrument_gpu, "_KINDS", kinds)
    probe = open_probe(watched(71), Instruments())
    assert isinstance(probe, GpuProbe)
    try:
        assert probe.read() == {}
        wait_until(probe._threads[0].problem)
        assert "NVML has not answered" in probe.unknown["gpus"]
    finally:
        probe.close()
        release.set()


def test_jobs_of_one_process_share_the_driver(gpu: FakeGpu) -> None:
    instruments = Instruments()
    gpu.processes = {71: MIB, 81: 2 * MIB}
    first = open_probe(watched(71), instruments)
    other = Watched(job=Job(uuid="1" * 32, argv=("x",), created_at_us=0), main_pid=None, pids=lambda: [81])
    second = open_probe(other, instruments)
    assert isinstance(first, GpuProbe)
    assert isinstance(second, GpuProbe)
    try:
        assert first._threads[0] is second._threads[0]
        assert wait_until(second.read)["gpus"]["GPU-a"].job_memory_bytes == 2 * MIB
        assert wait_until(first.read)["gpus"]["GPU-a"].job_memory_bytes == MIB
    finally:
        first.close()
        second.close()


def test_gpus_of_two_makers_are_reported_together(
    gpu: FakeGpu, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = GpuTree("amdgpu", tmp_path)
    kinds = {**instrument_gpu._KINDS, "drm": (lambda: True, lambda: DrmDriver(tree.proc, tree.sys))}
    monkeypatch.setattr(instrument_gpu, "_KINDS", kinds)
    gpu.processes = {4001: MIB}
    probe = open_probe(watched(4001), Instruments())
    assert isinstance(probe, GpuProbe)
    try:
        wait_until(lambda: all(thread.latest() for thread in probe._threads))
        assert set(wait_until(probe.read)["gpus"]) == {"GPU-a", "0000:0b:00.0"}
    finally:
        probe.close()


def test_counters_go_on_where_an_earlier_owner_left_them(gpu: FakeGpu, opened: Any) -> None:
    gpu.processes = {71: MIB}
    seen = GpuReading(energy_mj=40_000, job_busy_usec=6_000_000)
    probe, _ = opened(watched(71, last={"GPU-a": seen}))
    reading = wait_until(probe.read)["gpus"]["GPU-a"]
    assert (reading.energy_mj, reading.job_busy_usec) == (40_000, 6_000_000)


def test_the_library_is_shut_down_when_nobody_uses_it_and_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    libraries: list[FakeNvml] = []

    def load() -> FakeNvml:
        libraries.append(FakeNvml(FakeGpu("GPU-a")))
        return libraries[-1]

    monkeypatch.setattr(instrument_gpu, "_KINDS", {"nvml": (lambda: True, lambda: NvmlDriver(load))})
    instruments = Instruments()
    for count in (1, 2):
        probe = open_probe(watched(71, given=("0",)), instruments)
        assert isinstance(probe, GpuProbe)
        wait_until(lambda: len(libraries) == count)  # noqa: B023 - called at once
        probe.close()
        wait_until(lambda: not libraries[-1].is_open)
    wait_until(lambda: instruments.driver("nvml", NvmlDriver)._thread is None)


def test_who_comes_while_the_library_is_shut_down_is_served_after_that() -> None:
    closing, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    class Slow:
        name, interval_s = "slow", 0.01

        def read(self) -> dict[str, Any]:
            order.append("read")
            return {}

        def close(self) -> None:
            closing.set()
            go_on.wait()
            order.append("closed")

    thread = DriverThread(Slow())
    thread.use()
    wait_until(thread.latest)
    thread.leave()
    assert closing.wait(20)
    reads = len(order)
    thread.use()
    go_on.set()
    wait_until(lambda: len(order) > reads + 1)
    thread.leave()
    assert order[reads : reads + 2] == ["closed", "read"]
