import threading

from joblens.agent.doctor.instruments import gpu_capabilities
from joblens.model.jobs.details import GpuFacts

H200 = GpuFacts(
    id="GPU-a",
    vendor="nvidia",
    index=0,
    name="NVIDIA H200",
    driver="nvidia",
    driver_version="580.1",
    sources={"gpu": "NVML (nvidia-ml-py)"},
)


def test_each_gpu_is_reported_with_what_it_is_read_by() -> None:
    (row,) = gpu_capabilities(lambda: ([H200], {}))
    assert (row.name, row.available) == ("gpu 0", True)
    assert row.mechanism == "NVIDIA H200: NVML (nvidia-ml-py), driver nvidia 580.1"


def test_a_kind_that_cannot_be_asked_is_a_gap_with_a_fix() -> None:
    (row,) = gpu_capabilities(lambda: ([], {"nvidia": "NVML: Driver Not Loaded"}))
    assert row.is_gap
    assert row.reason == "NVML: Driver Not Loaded"
    assert "nvidia-smi" in row.fix


def test_a_machine_without_gpus_has_no_gap() -> None:
    (row,) = gpu_capabilities(lambda: ([], {}))
    assert not row.is_gap


def test_a_driver_that_hangs_is_reported_and_not_waited_for() -> None:
    release = threading.Event()

    def hang() -> tuple[list[GpuFacts], dict[str, str]]:
        release.wait(10)
        return [], {}

    (row,) = gpu_capabilities(hang, timeout_s=0.05)
    release.set()
    assert row.is_gap
    assert "has not answered" in row.reason
