"""Jobs on a GPU through the whole of joblens. The GPU is a fake one: on it are all processes that write their
numbers into a folder."""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import joblens
from joblens.agent.instruments import gpu as instrument_gpu
from joblens.app.wiring.drivers import open_store
from joblens.app.wiring.settings import load_settings
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import GpuReading
from joblens.ports.store import Store
from joblens.probes.gpu.nvml import NvmlDriver
from tests.unit.probes.nvml_fake import FakeGpu, FakeNvml

MIB = 2**20
# Holds some memory of the GPU until it has been seen there often enough, then ends.
JOB = """
import os, sys, time
folder, mebibytes = sys.argv[1:]
open(f"{folder}/{os.getpid()}", "w").write(mebibytes)
while not os.path.exists(f"{folder}/seen"):
    time.sleep(0.01)
"""


class FolderGpu(FakeGpu):
    def __init__(self, folder: Path) -> None:
        super().__init__("GPU-a")
        self.folder = folder
        self.looks = 0

    def answer(self, call: str, arguments: tuple[Any, ...]) -> Any:
        if call == "nvmlDeviceGetComputeRunningProcesses":
            sizes = {
                int(name): (self.folder / name).read_text()
                for name in os.listdir(self.folder)
                if name.isdecimal()
            }
            self.processes = {pid: int(size) * MIB for pid, size in sizes.items() if size}
            self.looks += len(self.processes) == 2
            if self.looks > 3:
                (self.folder / "seen").touch()
        return super().answer(call, arguments)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderGpu:
    folder = tmp_path / "gpu"
    folder.mkdir()
    gpu = FolderGpu(folder)

    def make() -> NvmlDriver:
        driver = NvmlDriver(lambda: FakeNvml(gpu))
        driver.interval_s = 0.1
        return driver

    monkeypatch.setattr(instrument_gpu, "_KINDS", {"nvml": (lambda: True, make)})
    monkeypatch.setenv("JOBLENS_STORE", str(tmp_path / "jobs.db"))
    return gpu


def run_two(gpu: FolderGpu) -> tuple[Store, list[Record]]:
    """At the same time."""
    sizes = {"large": "300", "small": "20"}
    threads = [
        threading.Thread(
            target=joblens.run,
            args=([sys.executable, "-c", JOB, str(gpu.folder), size],),
            kwargs={"task_id": name, "interval": 0.05, "timeout": 30},
        )
        for name, size in sizes.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = open_store(load_settings().settings)
    return store, [store.find(name) for name in sizes]


def readings(store: Store, record: Record) -> list[GpuReading]:
    return [
        sample.gpus["GPU-a"]
        for _, sample in store.samples(record.job.uuid)
        if sample.gpus is not None and "GPU-a" in sample.gpus
    ]


def test_two_jobs_on_one_gpu_have_their_own_numbers_in_their_records(gpu: FolderGpu) -> None:
    store, (large, small) = run_two(gpu)
    for record, size in ((large, 300), (small, 20)):
        assert record.outcome is not None
        assert record.outcome.usage.gpu_memory_peak_bytes == size * MIB
        assert record.outcome.usage.sources["gpu"] == "NVML (nvidia-ml-py)"
        assert {reading.job_memory_bytes for reading in readings(store, record)} <= {size * MIB, 0}
        gpus = store.details(record.job.uuid).gpus
        assert gpus is not None
        assert [facts.name for facts in gpus] == ["NVIDIA H200"]


def test_a_job_that_leaves_the_gpu_alone_used_none(gpu: FolderGpu, tmp_path: Path) -> None:
    result = joblens.run(["sleep", "0.5"], task_id="other", interval=0.05)
    assert result.status == "success"
    store = open_store(load_settings().settings)
    record = store.find("other")
    assert record.outcome is not None
    assert record.outcome.usage.gpu_memory_peak_bytes == 0
    assert readings(store, record) == []


def test_without_the_probe_the_record_says_so(gpu: FolderGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLENS_JOB_METRICS_PROBES", "-gpu")
    joblens.run(["true"], task_id="bare")
    record = open_store(load_settings().settings).find("bare")
    assert record.outcome is not None
    assert record.outcome.usage.gpu_busy_usec is None
    assert "not requested" in record.outcome.usage.unknown["gpu_busy_usec"]
