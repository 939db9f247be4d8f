from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from joblens.model.errors import ProbeError
from joblens.model.jobs.sample import GpuReading
from joblens.probes.gpu import nvml, nvml_calls
from joblens.probes.gpu.attribution import GpuFollower, JobGpus
from joblens.probes.gpu.nvml import NvmlDriver
from tests.unit.probes.nvml_fake import NOT_SUPPORTED, FakeGpu, FakeNvml, NVMLError

BEGIN_US = 1_700_000_000_000_000
MIB = 2**20


class Machine:
    """A driver over fake GPUs, with a clock that stands still until it is told. It is in nobody's container,
    wherever the tests are, unless `proc` says so."""

    def __init__(self, *gpus: FakeGpu, proc: str = "/nowhere") -> None:
        self.library = FakeNvml(*gpus)
        self.gpus = gpus
        self.now_us = BEGIN_US
        self.driver = NvmlDriver(
            lambda: self.library,
            clock_us=lambda: self.now_us,
            mono_s=lambda: self.now_us / 1e6,
            proc=proc,
        )

    def job(self, name: str, *pids: int, given: tuple[str, ...] = ()) -> None:
        self.driver.followers.add(name, GpuFollower(lambda: list(pids), given))

    def read(self) -> dict[str, JobGpus]:
        gpus = self.driver.read()
        assert gpus is not None
        return gpus

    def after(self, seconds: float) -> dict[str, JobGpus]:
        self.now_us += int(seconds * 1e6)
        return self.read()


def reading(gpus: JobGpus, device: str = "GPU-a") -> GpuReading:
    assert gpus.readings is not None
    return gpus.readings[device]


@pytest.fixture
def machine() -> Machine:
    return Machine(FakeGpu("GPU-a"))


def test_a_gpu_tells_what_it_is(machine: Machine) -> None:
    (facts,) = machine.driver.facts()
    assert (facts.id, facts.vendor, facts.index, facts.name) == ("GPU-a", "nvidia", 0, "NVIDIA H200")
    assert (facts.pci, facts.driver_version, facts.compute_capability) == ("0000:19:00.0", "570.86.15", "9.0")
    assert (facts.memory_total_bytes, facts.power_limit_mw, facts.ecc_enabled) == (1000, 700_000, True)


def test_a_device_is_reported_with_the_job_that_uses_it(machine: Machine) -> None:
    machine.gpus[0].processes = {71: 300 * MIB, 99: 50 * MIB}
    machine.job("job", 70, 71)
    gpus = machine.read()["job"]
    assert reading(gpus) == GpuReading(
        utilization=9700,
        memory_utilization=2100,
        memory_used_bytes=300,
        memory_free_bytes=700,
        temperature_c=55,
        power_mw=512_000,
        energy_mj=0,
        sm_clock_mhz=1980,
        memory_clock_mhz=1980,
        encoder_utilization=0,
        decoder_utilization=0,
        ecc_corrected=0,
        ecc_uncorrected=0,
        pcie_rx_bytes_per_s=2_500_000,
        pcie_tx_bytes_per_s=2_500_000,
        pcie_generation=5,
        pcie_width=16,
        throttle_reasons=4,
        processes=2,
        processes_memory_bytes=350 * MIB,
        job_processes=1,
        job_memory_bytes=300 * MIB,
        job_utilization=0,
        job_busy_usec=0,
        job_encoder_utilization=0,
        job_decoder_utilization=0,
    )
    assert gpus.facts[0].unknown == {"fan_speed": "nvmlDeviceGetFanSpeed: Not Supported"}


def test_two_jobs_on_one_gpu_are_distinguished(machine: Machine) -> None:
    gpu = machine.gpus[0]
    gpu.processes = {71: 1130 * MIB, 81: 650 * MIB}
    machine.job("heavy", 71)
    machine.job("light", 81)
    machine.read()
    gpu.samples = [(71, BEGIN_US + 1_900_000, 80), (81, BEGIN_US + 1_900_000, 8)]
    machine.after(2)
    gpu.samples += [(71, BEGIN_US + 3_900_000, 83), (81, BEGIN_US + 3_900_000, 7)]
    gpus = machine.after(2)
    heavy, light = reading(gpus["heavy"]), reading(gpus["light"])
    assert (heavy.job_memory_bytes, light.job_memory_bytes) == (1130 * MIB, 650 * MIB)
    assert (heavy.job_utilization, light.job_utilization) == (8300, 700)
    assert heavy.job_busy_usec == 1_600_000 + 1_660_000
    assert light.job_busy_usec == 160_000 + 140_000


def test_a_share_is_of_all_the_time_between_two_readings(machine: Machine) -> None:
    """NVML's stamp says when the process was last at work, not how long its number holds."""
    gpu = machine.gpus[0]
    gpu.processes = {71: MIB, 81: MIB}
    machine.job("early", 71)
    machine.read()
    gpu.samples = [(71, BEGIN_US + 200_000, 10), (81, BEGIN_US + 1_900_000, 89)]
    gpus = reading(machine.after(2)["early"])
    assert (gpus.job_utilization, gpus.job_busy_usec) == (1000, 200_000)


def test_a_clock_that_was_set_back_does_no_harm(machine: Machine) -> None:
    machine.gpus[0].processes = {71: MIB}
    machine.job("job", 71)
    machine.read()
    machine.driver._due_s = 0
    machine.now_us -= 3600 * 10**6
    machine.gpus[0].samples = [(71, machine.now_us, 50)]
    assert reading(machine.read()["job"]).job_busy_usec == 1_000_000


def test_a_process_without_a_new_sample_was_idle(machine: Machine) -> None:
    gpu = machine.gpus[0]
    gpu.processes = {71: MIB}
    machine.job("job", 71)
    machine.read()
    gpu.samples = [(71, BEGIN_US + 2_000_000, 50)]
    busy = reading(machine.after(2)["job"]).job_busy_usec
    gpus = reading(machine.after(2)["job"])
    assert (gpus.job_utilization, gpus.job_busy_usec) == (0, busy)


def test_what_an_ended_process_did_last_is_still_counted(machine: Machine) -> None:
    gpu = machine.gpus[0]
    alive = [71]
    gpu.processes = {71: MIB}
    machine.driver.followers.add("job", GpuFollower(lambda: list(alive)))
    machine.read()
    gpu.samples = [(71, BEGIN_US + 2_000_000, 50)]
    before = reading(machine.after(2)["job"]).job_busy_usec
    gpu.processes = {}
    gpu.samples = [(71, BEGIN_US + 3_000_000, 90)]
    gpus = reading(machine.after(2)["job"])
    assert before is not None
    assert gpus.job_busy_usec == before + 1_800_000
    assert (gpus.job_processes, gpus.job_memory_bytes) == (0, 0)


def test_a_process_that_ran_before_is_counted_from_the_first_look(machine: Machine) -> None:
    gpu = machine.gpus[0]
    gpu.processes = {71: MIB}
    machine.job("other", 71)
    machine.read()
    gpu.samples = [(71, BEGIN_US + 2_000_000, 50)]
    machine.after(2)
    machine.job("attached", 71)
    gpu.samples += [(71, BEGIN_US + 4_000_000, 50)]
    assert reading(machine.after(2)["attached"]).job_busy_usec == 0
    gpu.samples += [(71, BEGIN_US + 6_000_000, 50)]
    assert reading(machine.after(2)["attached"]).job_busy_usec == 1_000_000


def test_a_process_of_a_job_that_began_here_is_counted_from_its_beginning(machine: Machine) -> None:
    gpu = machine.gpus[0]
    gpu.processes = {71: MIB}
    gpu.samples = [(71, BEGIN_US, 25)]
    machine.driver.followers.add("job", GpuFollower(lambda: [71], began_ns=0))
    assert reading(machine.read()["job"]).job_busy_usec == 500_000
    gpu.samples += [(71, BEGIN_US + 2_000_000, 50)]
    assert reading(machine.after(2)["job"]).job_busy_usec == 1_500_000


def test_energy_is_counted_since_the_jobs_first_reading(machine: Machine) -> None:
    machine.job("job", given=("0",))
    assert reading(machine.read()["job"]).energy_mj == 0
    machine.gpus[0].energy_mj += 1_234_000
    assert reading(machine.after(2)["job"]).energy_mj == 1_234_000


def test_a_gpu_that_was_given_and_is_left_idle_is_reported(machine: Machine) -> None:
    machine.job("job", 71, given=("0",))
    gpus = reading(machine.read()["job"])
    assert (gpus.job_processes, gpus.job_memory_bytes, gpus.job_utilization, gpus.job_busy_usec) == (
        0,
        0,
        0,
        0,
    )


@pytest.mark.parametrize(("name", "is_it"), [("GPU-a", True), ("GPU-", True), ("1", False), ("GPU-b", False)])
def test_a_gpu_is_given_by_number_or_by_the_beginning_of_its_uuid(
    machine: Machine, name: str, is_it: bool
) -> None:
    machine.job("job", given=(name,))
    assert set(machine.read()["job"].readings or {}) == ({"GPU-a"} if is_it else set())


def test_a_job_that_uses_no_gpu_has_none(machine: Machine) -> None:
    machine.gpus[0].processes = {99: MIB}
    machine.job("job", 71)
    assert machine.read()["job"].readings == {}


def test_a_gpu_that_no_job_uses_is_asked_for_its_processes_only() -> None:
    machine = Machine(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    machine.gpus[1].processes = {71: MIB}
    machine.job("job", 71)
    machine.read()
    machine.gpus[0].asked.clear()
    readings = machine.after(2)["job"].readings
    assert readings is not None
    assert list(readings) == ["GPU-b"]
    assert {call for call in machine.gpus[0].asked if "Processes" not in call} == set()


def test_a_device_that_was_used_once_stays(machine: Machine) -> None:
    machine.gpus[0].processes = {71: MIB}
    machine.job("job", 71)
    machine.read()
    machine.gpus[0].processes = {}
    machine.after(2)
    assert reading(machine.after(2)["job"]).job_processes == 0


def test_instances_of_a_split_gpu_are_devices_of_their_own() -> None:
    whole = FakeGpu("GPU-a")
    unsplit = {"nvmlDeviceGetUtilizationRates": NVMLError(NOT_SUPPORTED)}
    whole.instances = [FakeGpu("MIG-1", **unsplit), FakeGpu("MIG-2", **unsplit)]
    whole.instances[1].processes = {71: 400 * MIB}
    whole.processes = {71: 400 * MIB}
    machine = Machine(whole)
    machine.job("job", 71)
    machine.job("given", given=("MIG-1",))
    gpus = machine.read()
    instance = reading(gpus["job"], "MIG-2")
    assert list(gpus["job"].readings or {}) == ["MIG-2"]  # and not of the whole GPU once more
    assert (instance.job_memory_bytes, instance.utilization, instance.job_utilization) == (
        400 * MIB,
        None,
        None,
    )
    facts = next(each for each in gpus["job"].facts if each.id == "MIG-2")
    assert (facts.parent, facts.index) == ("GPU-a", 0)
    assert "MIG" in facts.unknown["job_utilization"]
    assert list(gpus["given"].readings or {}) == ["MIG-1"]


def test_a_process_in_several_lists_is_one(machine: Machine) -> None:
    gpu = machine.gpus[0]
    gpu.processes = {71: 300 * MIB}
    both = [SimpleNamespace(pid=71, usedGpuMemory=300 * MIB), SimpleNamespace(pid=72, usedGpuMemory=20 * MIB)]
    gpu.answers["nvmlDeviceGetMPSComputeRunningProcesses"] = both
    machine.job("job", 71, 72)
    gpus = reading(machine.read()["job"])
    assert (gpus.job_processes, gpus.job_memory_bytes) == (2, 320 * MIB)


def test_memory_that_the_driver_does_not_tell_is_not_known(machine: Machine) -> None:
    machine.gpus[0].processes = {71: None}
    machine.job("job", 71)
    gpus = reading(machine.read()["job"])
    assert (gpus.job_processes, gpus.job_memory_bytes, gpus.processes_memory_bytes) == (1, None, None)


def test_what_is_not_supported_is_asked_for_once(machine: Machine) -> None:
    machine.job("job", given=("0",))
    machine.read()
    machine.after(40)
    assert machine.gpus[0].asked.count("nvmlDeviceGetFanSpeed") == 1


def test_what_fails_for_a_moment_is_asked_for_again(machine: Machine) -> None:
    gpu = machine.gpus[0]
    gpu.answers["nvmlDeviceGetPowerUsage"] = NVMLError(999, "Unknown Error")
    machine.job("job", given=("0",))
    gpus = machine.read()["job"]
    assert reading(gpus).power_mw is None
    assert "Unknown Error" in gpus.facts[0].unknown["power_mw"]
    del gpu.answers["nvmlDeviceGetPowerUsage"]
    gpus = machine.after(2)["job"]
    assert reading(gpus).power_mw == 512_000
    assert "power_mw" not in gpus.facts[0].unknown


def test_utilisation_that_may_not_be_read_has_its_reason(machine: Machine) -> None:
    gpu = machine.gpus[0]
    gpu.answers["nvmlDeviceGetProcessUtilization"] = NVMLError(4, "Insufficient Permissions")
    gpu.processes = {71: MIB}
    machine.job("job", 71)
    gpus = machine.read()["job"]
    assert (reading(gpus).job_utilization, reading(gpus).job_busy_usec) == (None, None)
    assert "Insufficient Permissions" in gpus.facts[0].unknown["job_utilization"]
    assert reading(gpus).job_memory_bytes == MIB


def test_a_share_that_could_not_be_read_is_not_none_and_its_time_comes_with_the_next(
    machine: Machine,
) -> None:
    gpu = machine.gpus[0]
    gpu.processes = {71: MIB}
    machine.job("job", 71)
    machine.read()
    gpu.answers["nvmlDeviceGetProcessUtilization"] = NVMLError(999, "Unknown Error")
    failed = machine.after(2)["job"]
    assert (reading(failed).job_utilization, reading(failed).job_busy_usec) == (None, None)
    assert reading(failed).job_memory_bytes == MIB
    assert "Unknown Error" in failed.facts[0].unknown["job_utilization"]
    del gpu.answers["nvmlDeviceGetProcessUtilization"]
    gpu.samples = [(71, machine.now_us + 1_000_000, 50)]
    again = machine.after(2)["job"]
    assert (reading(again).job_utilization, reading(again).job_busy_usec) == (5000, 2_000_000)
    assert "job_utilization" not in again.facts[0].unknown


def test_after_a_reading_that_failed_a_new_process_without_work_is_idle(machine: Machine) -> None:
    gpu = machine.gpus[0]
    gpu.processes = {71: MIB}
    machine.job("job", 71, 72)
    gpu.answers["nvmlDeviceGetProcessUtilization"] = NVMLError(999, "Unknown Error")
    machine.read()
    del gpu.answers["nvmlDeviceGetProcessUtilization"]
    gpu.processes = {72: MIB}
    gpus = machine.after(2)["job"]
    assert (reading(gpus).job_utilization, reading(gpus).job_busy_usec) == (0, 0)


def test_processes_that_are_not_listed_are_not_none(machine: Machine) -> None:
    gpu = machine.gpus[0]
    gpu.answers["nvmlDeviceGetComputeRunningProcesses"] = NVMLError(4, "Insufficient Permissions")
    machine.job("job", 71, given=("0",))
    gpus = machine.read()["job"]
    assert (reading(gpus).processes, reading(gpus).job_processes, reading(gpus).job_memory_bytes) == (
        None,
    ) * 3
    assert reading(gpus).utilization == 9700
    assert "Insufficient Permissions" in gpus.facts[0].unknown["job_memory_bytes"]


def test_nvml_that_was_shut_down_is_opened_again(machine: Machine) -> None:
    gpu = machine.gpus[0]
    machine.job("job", given=("0",))
    machine.read()
    gpu.answers["nvmlDeviceGetComputeRunningProcesses"] = NVMLError(1, "Uninitialized")
    machine.now_us += 2_000_000
    with pytest.raises(ProbeError, match="Uninitialized"):
        machine.driver.read()
    del gpu.answers["nvmlDeviceGetComputeRunningProcesses"]
    assert reading(machine.after(2)["job"]).utilization == 9700


def test_a_rate_of_the_bus_is_measured_seldom(machine: Machine) -> None:
    machine.job("job", given=("0",))
    assert reading(machine.read()["job"]).pcie_rx_bytes_per_s == 2_500_000
    later = reading(machine.after(2)["job"])
    assert (later.pcie_rx_bytes_per_s, later.pcie_generation) == (None, 5)
    assert (later.encoder_utilization, later.decoder_utilization) == (None, None)
    again = reading(machine.after(30)["job"])
    assert (again.pcie_rx_bytes_per_s, again.encoder_utilization) == (2_500_000, 0)


def test_an_older_driver_tells_memory_in_its_own_form(machine: Machine) -> None:
    class OldMemory(FakeGpu):
        def answer(self, call: str, arguments: tuple[Any, ...]) -> Any:
            if call == "nvmlDeviceGetMemoryInfo" and arguments:
                raise NVMLError(13, "Function Not Found")
            return super().answer(call, arguments)

    machine = Machine(OldMemory("GPU-a"))
    machine.job("job", given=("0",))
    gpus = machine.read()["job"]
    assert reading(gpus).memory_used_bytes == 300
    assert "memory_used_bytes" not in gpus.facts[0].unknown


def test_processes_of_another_pid_namespace_cannot_be_matched(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "joblens.probes.gpu.nvml.foreign_pids", lambda pids, proc: "numbers of the machine" if pids else ""
    )
    machine.gpus[0].processes = {4_000_001: MIB}
    machine.job("unknown", 71)
    machine.job("given", 71, given=("0",))
    gpus = machine.read()
    assert (gpus["unknown"].readings, gpus["unknown"].problem) == (None, "numbers of the machine")
    assert reading(gpus["given"]).utilization == 9700
    assert reading(gpus["given"]).job_memory_bytes is None


def test_numbers_of_our_own_namespace_are_ours(tmp_path_factory: pytest.TempPathFactory) -> None:
    proc = tmp_path_factory.mktemp("proc")
    (proc / "self" / "ns").mkdir(parents=True)
    (proc / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    assert nvml.foreign_pids([4_000_001], str(proc)) == ""
    (proc / "self" / "ns" / "pid").unlink()
    (proc / "self" / "ns" / "pid").symlink_to("pid:[4026532201]")
    (proc / "12").mkdir()
    assert nvml.foreign_pids([12], str(proc)) == ""
    assert "namespace" in nvml.foreign_pids([12, 4_000_001], str(proc))


@pytest.fixture
def container(tmp_path: Path) -> Machine:
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026532701]")
    return Machine(FakeGpu("GPU-a"), proc=str(tmp_path))


def test_a_gpu_at_work_that_lists_nobody_to_a_container_tells_nothing_of_the_job(container: Machine) -> None:
    container.job("given", 99, given=("0",))
    container.job("other", 98)
    gpus = container.read()
    given = reading(gpus["given"])
    assert (given.utilization, given.job_processes, given.job_utilization) == (9700, None, None)
    assert "namespace" in gpus["given"].problem
    assert gpus["other"].readings is None
    assert "namespace" in gpus["other"].problem


def test_an_idle_gpu_that_lists_nobody_to_a_container_is_used_by_nobody(container: Machine) -> None:
    container.gpus[0].answers["nvmlDeviceGetUtilizationRates"] = SimpleNamespace(gpu=0, memory=0)
    container.job("given", 99, given=("0",))
    assert reading(container.read()["given"]).job_processes == 0


def test_a_gpu_that_has_listed_the_jobs_processes_to_a_container_is_believed(
    container: Machine, tmp_path: Path
) -> None:
    (tmp_path / "99").mkdir()
    container.job("job", 99)
    container.gpus[0].processes = {99: MIB}
    assert reading(container.read()["job"]).job_memory_bytes == MIB
    container.gpus[0].processes = {}
    assert reading(container.after(2)["job"]).job_processes == 0


def test_nvml_that_cannot_be_had_is_not_tried_all_the_time() -> None:
    tries = []

    def load() -> Any:
        tries.append(1)
        raise ProbeError("NVML: Driver Not Loaded")

    now_s = [100.0]
    driver = NvmlDriver(load, mono_s=lambda: now_s[0])
    for _ in range(3):
        with pytest.raises(ProbeError, match="Driver Not Loaded"):
            driver.read()
        now_s[0] += 2
    assert len(tries) == 1
    now_s[0] += 60
    with pytest.raises(ProbeError):
        driver.read()
    assert len(tries) == 2


def test_a_missing_binding_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("joblens.probes.gpu.nvml_calls.importlib.import_module", refuse)
    with pytest.raises(ProbeError, match=r"joblens\[gpu\]"):
        nvml_calls.load_library()


def test_many_gpus_are_read_less_often_to_stay_within_the_budget(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent_ns = iter([0, 100_000_000])
    monkeypatch.setattr("joblens.probes.gpu.nvml.time.thread_time_ns", lambda: next(spent_ns))
    machine.job("job", given=("0",))
    machine.read()
    monkeypatch.undo()
    machine.now_us += 10_000_000
    assert machine.driver.read() is None
    assert machine.after(2)["job"].readings


def test_a_list_that_grows_while_it_is_read_is_read_again(machine: Machine) -> None:
    gpu = machine.gpus[0]
    gpu.processes = {71: MIB}
    real: Callable[[str, tuple[Any, ...]], Any] = gpu.answer
    failures = [NVMLError(7, "Insufficient Size")]

    def grown(call: str, arguments: tuple[Any, ...]) -> Any:
        if call == "nvmlDeviceGetProcessUtilization" and failures and gpu.samples:
            raise failures.pop()
        return real(call, arguments)

    gpu.answer = grown  # type: ignore[method-assign]
    machine.job("job", 71)
    machine.read()
    gpu.samples = [(71, BEGIN_US + 2_000_000, 40)]
    assert reading(machine.after(2)["job"]).job_utilization == 4000


def test_closing_gives_nvml_back(machine: Machine) -> None:
    machine.driver.facts()
    machine.driver.close()
    assert not machine.library.is_open
