"""GPUs of AMD and Intel on folders made by hand after the kernel's documentation."""

import os
from pathlib import Path

import pytest

from joblens.model.jobs.sample import GpuReading
from joblens.probes.gpu.attribution import GpuFollower
from joblens.probes.gpu.drm import DrmDriver, parse_fdinfo, read_clients
from joblens.probes.gpu.drm_sysfs import Card, find_cards, read_card
from tests.unit.probes.gpu_trees import GpuTree

MIB = 2**20


class Watching:
    """A driver over a tree, with a clock that stands still until it is told."""

    def __init__(self, tree: GpuTree, *pids: int, given: tuple[str, ...] = ()) -> None:
        self.now_ns = 10**12
        self.pids = list(pids)
        self.driver = DrmDriver(tree.proc, tree.sys, clock_ns=lambda: self.now_ns)
        self.driver.followers.add("job", GpuFollower(lambda: self.pids, given))

    def readings(self) -> dict[str, GpuReading]:
        result = self.driver.read()
        assert result is not None
        readings = result["job"].readings
        assert readings is not None
        return readings

    def only(self) -> GpuReading:
        (reading,) = self.readings().values()
        return reading

    def after(self, seconds: float) -> GpuReading:
        self.now_ns += int(seconds * 1e9)
        return self.only()


@pytest.fixture
def amd(tmp_path: Path) -> GpuTree:
    return GpuTree("amdgpu", tmp_path)


@pytest.fixture
def intel(tmp_path: Path) -> GpuTree:
    return GpuTree("i915", tmp_path)


@pytest.fixture
def xe(tmp_path: Path) -> GpuTree:
    return GpuTree("xe", tmp_path)


def test_an_amd_card_tells_what_it_is(amd: GpuTree) -> None:
    (card,) = find_cards(amd.sys)
    facts = card.facts
    assert (facts.id, facts.vendor, facts.index, facts.driver) == ("0000:0b:00.0", "amd", 0, "amdgpu")
    assert (facts.name, facts.uuid, facts.driver_version) == ("AMD GPU 0x744c", "5c7a9e1122334455", "6.10.5")
    assert (facts.memory_total_bytes, facts.power_limit_mw) == (25753026560, 339_000)
    assert card.nodes == {"card0", "renderD128"}


def test_an_amd_card_tells_how_it_is_used(amd: GpuTree) -> None:
    assert read_card(f"{amd.sys}/class/drm/card0") == {
        "utilization": 7300,
        "memory_utilization": 1800,
        "memory_used_bytes": 5368709120,
        "memory_free_bytes": 25753026560 - 5368709120,
        "temperature_c": 64,
        "power_mw": 287_000,
        "sm_clock_mhz": 2411,
        "memory_clock_mhz": 1249,
        "fan_speed": 4000,
        "pcie_generation": 4,
        "pcie_width": 16,
    }


def test_a_number_that_a_card_does_not_show_has_its_reason(intel: GpuTree) -> None:
    (card,) = find_cards(intel.sys)
    assert (card.facts.vendor, card.facts.driver, card.facts.memory_total_bytes) == ("intel", "i915", None)
    assert read_card(card.directory) == {"sm_clock_mhz": 1350}
    assert "i915" in card.facts.unknown["utilization"]
    assert "sm_clock_mhz" not in card.facts.unknown


def test_a_card_without_a_driver_that_tells_anything_is_none(intel: GpuTree) -> None:
    assert [card.facts.pci for card in find_cards(intel.sys)] == ["0000:00:02.0"]


def test_a_machine_without_graphics_has_no_cards(tmp_path: Path) -> None:
    assert find_cards(str(tmp_path)) == []


def test_what_is_no_graphics_device_is_no_client() -> None:
    assert parse_fdinfo("pos:\t0\nflags:\t02100002\n") is None
    assert parse_fdinfo("drm-driver:\tnouveau\n") is None


def test_one_client_behind_two_descriptors_is_one(amd: GpuTree) -> None:
    assert list(read_clients(4001, amd.proc)) == [("0000:0b:00.0", 82)]


def test_memory_that_is_there_goes_before_memory_that_is_promised(amd: GpuTree) -> None:
    assert read_clients(4002, amd.proc)["0000:0b:00.0", 91].memory_bytes == 1024 * MIB


def test_memory_of_a_gpu_without_its_own_is_the_machines(intel: GpuTree) -> None:
    assert read_clients(5001, intel.proc)["0000:00:02.0", 12].memory_bytes == 125 * MIB


def test_a_client_that_a_child_inherited_is_counted_once(amd: GpuTree) -> None:
    reading = Watching(amd, 4001, 4002, 4003).only()
    assert reading.job_memory_bytes == (2048 + 1024) * MIB
    assert reading.job_processes == 2


def test_busy_time_begins_with_the_first_look(amd: GpuTree) -> None:
    reading = Watching(amd, 4001).only()
    assert (reading.job_busy_usec, reading.job_utilization) == (0, 0)


def test_busy_time_of_a_job_that_began_here_begins_with_the_job(amd: GpuTree) -> None:
    job = Watching(amd, 4001)
    began_ns = job.now_ns - 8 * 10**9
    job.driver.followers.add("job", GpuFollower(lambda: [4001], began_ns=began_ns))
    reading = job.only()
    assert (reading.job_busy_usec, reading.job_utilization) == (4_000_000, 5000)


def test_a_device_is_as_busy_as_its_busiest_engine(amd: GpuTree) -> None:
    job = Watching(amd, 4001)
    job.only()
    for descriptor in (5, 6):
        path = f"/proc/4001/fdinfo/{descriptor}"
        amd.change(path, "gfx:\t4000000000", "gfx:\t5000000000")
        amd.change(path, "compute:\t1000000000", "compute:\t1500000000")
    reading = job.after(2)
    assert (reading.job_utilization, reading.job_busy_usec) == (5000, 1_000_000)
    assert job.after(2).job_utilization == 0
    assert job.after(2).job_busy_usec == 1_000_000


def test_processes_on_one_engine_add_up(amd: GpuTree) -> None:
    job = Watching(amd, 4001, 4002)
    job.only()
    for path in ("/proc/4001/fdinfo/5", "/proc/4001/fdinfo/6", "/proc/4002/fdinfo/5"):
        amd.change(path, "compute:\t1000000000", "compute:\t1600000000")
    amd.change("/proc/4002/fdinfo/9", "compute:\t7000000000", "compute:\t7800000000")
    reading = job.after(2)
    assert (reading.job_utilization, reading.job_busy_usec) == (7000, 1_400_000)


def test_processes_on_different_engines_do_not(amd: GpuTree) -> None:
    job = Watching(amd, 4001, 4002)
    job.only()
    for path in ("/proc/4001/fdinfo/5", "/proc/4001/fdinfo/6", "/proc/4002/fdinfo/5"):
        amd.change(path, "gfx:\t4000000000", "gfx:\t5600000000")
    amd.change("/proc/4002/fdinfo/9", "compute:\t7000000000", "compute:\t8000000000")
    assert job.after(2).job_utilization == pytest.approx(8000, abs=2)


def test_what_a_process_did_is_kept_when_it_has_ended(amd: GpuTree) -> None:
    job = Watching(amd, 4001)
    job.only()
    for descriptor in (5, 6):
        amd.change(f"/proc/4001/fdinfo/{descriptor}", "gfx:\t4000000000", "gfx:\t4500000000")
    assert job.after(2).job_busy_usec == 500_000
    amd.remove_process(4001)
    job.pids.clear()
    reading = job.after(2)
    assert (reading.job_busy_usec, reading.job_processes, reading.job_memory_bytes) == (500_000, 0, 0)


def test_a_process_that_comes_later_is_counted_from_its_beginning(amd: GpuTree) -> None:
    job = Watching(amd, 4003, given=("0000:0b:00.0",))
    assert job.only().job_processes == 0
    job.pids.append(4001)
    reading = job.after(8)
    assert (reading.job_processes, reading.job_busy_usec) == (1, 4_000_000)


def test_engines_of_which_there_are_two_count_as_one(intel: GpuTree) -> None:
    job = Watching(intel, 5001)
    job.only()
    intel.change("/proc/5001/fdinfo/7", "engine-video:\t0", "engine-video:\t3000000000")
    assert job.after(2).job_utilization == 7500


def test_cycles_are_a_share_of_all_cycles(xe: GpuTree) -> None:
    job = Watching(xe, 6001)
    assert job.only().job_memory_bytes == 480 * MIB
    xe.change("/proc/6001/fdinfo/8", "cycles-rcs:\t28257900\n", "cycles-rcs:\t38257900\n")
    xe.change("/proc/6001/fdinfo/8", "total-cycles-rcs:\t7655183225", "total-cycles-rcs:\t7695183225")
    reading = job.after(2)
    assert (reading.job_utilization, reading.job_busy_usec) == (2500, 500_000)


def test_energy_is_counted_since_the_first_reading(xe: GpuTree) -> None:
    job = Watching(xe, 6001)
    assert job.only().energy_mj == 0
    xe.write("/sys/devices/pci0000:00/0000:03:00.0/hwmon/hwmon2/energy1_input", "987714321000\n")
    assert job.after(2).energy_mj == 60_000


def test_a_counter_that_goes_back_for_a_moment_is_counted_once(amd: GpuTree) -> None:
    job = Watching(amd, 4001)
    job.only()
    for now, busy_usec in ((4_400, 400_000), (4_300, 400_000), (4_500, 500_000)):
        for descriptor in (5, 6):
            path = amd.folder / f"proc/4001/fdinfo/{descriptor}"
            lines = [line for line in path.read_text().splitlines() if "engine-gfx" not in line]
            path.write_text("\n".join([*lines, f"drm-engine-gfx:\t{now}000000 ns"]) + "\n")
        assert job.after(2).job_busy_usec == busy_usec


def test_time_of_work_that_goes_through_rocm_is_unknown_and_not_none(amd: GpuTree) -> None:
    job = Watching(amd, 4001, 4010)
    job.only()
    job.now_ns += 2 * 10**9
    result = job.driver.read()
    assert result is not None
    readings = result["job"].readings
    assert readings is not None
    (reading,) = readings.values()
    assert (reading.job_utilization, reading.job_busy_usec) == (None, None)
    assert (reading.job_processes, reading.job_memory_bytes) == (2, (2048 + 512) * MIB)
    assert "ROCm" in result["job"].facts[0].unknown["job_busy_usec"]


def test_a_driver_that_counts_no_time_leaves_a_reason(xe: GpuTree) -> None:
    path = xe.folder / "proc/6001/fdinfo/8"
    path.write_text("\n".join(line for line in path.read_text().splitlines() if "cycles" not in line))
    result = Watching(xe, 6001).driver.read()
    assert result is not None
    readings = result["job"].readings
    assert readings is not None
    assert readings["0000:03:00.0"].job_busy_usec is None
    assert readings["0000:03:00.0"].job_memory_bytes == 480 * MIB
    assert "does not count" in result["job"].facts[0].unknown["job_utilization"]


def test_a_client_that_cannot_be_understood_is_passed_over(amd: GpuTree) -> None:
    amd.change("/proc/4001/fdinfo/5", "drm-engine-gfx:\t4000000000 ns", "drm-engine-gfx:")
    amd.change("/proc/4001/fdinfo/6", "drm-engine-gfx:\t4000000000 ns", "drm-engine-gfx:\tmany ns")
    assert read_clients(4001, amd.proc) == {}


def test_an_xe_card_tells_what_its_package_tells(xe: GpuTree) -> None:
    (card,) = find_cards(xe.sys)
    assert card.facts.power_limit_mw == 190_000  # what it may draw for long, not for a moment
    result = read_card(card.directory)
    assert (result["temperature_c"], result["energy_mj"], result["sm_clock_mhz"]) == (61, 987_654_321, 2850)
    assert "fan_speed" not in result  # turns a minute, and nobody says of how many


def test_sensors_of_a_part_of_a_card_are_not_the_cards(intel: GpuTree) -> None:
    device = "/sys/devices/pci0000:00/0000:00:02.0/hwmon"
    for sensor, name, energy in (("hwmon3", "i915", "5000000\n"), ("hwmon4", "i915_gt0", "2000000\n")):
        intel.write(f"{device}/{sensor}/name", f"{name}\n")
        intel.write(f"{device}/{sensor}/energy1_input", energy)
    assert read_card(f"{intel.sys}/class/drm/card1")["energy_mj"] == 5000


def test_counters_of_a_job_that_was_adopted_go_on(xe: GpuTree) -> None:
    before = {"0000:03:00.0": GpuReading(energy_mj=7_000, job_busy_usec=3_000_000)}
    job = Watching(xe)
    job.driver.followers.add("job", GpuFollower(lambda: [6001], (), before))
    first = job.only()
    assert (first.energy_mj, first.job_busy_usec) == (7_000, 3_000_000)
    xe.change("/proc/6001/fdinfo/8", "cycles-rcs:\t28257900\n", "cycles-rcs:\t38257900\n")
    xe.change("/proc/6001/fdinfo/8", "total-cycles-rcs:\t7655183225", "total-cycles-rcs:\t7695183225")
    xe.write("/sys/devices/pci0000:00/0000:03:00.0/hwmon/hwmon2/energy1_input", "987714321000\n")
    later = job.after(2)
    assert (later.energy_mj, later.job_busy_usec) == (67_000, 3_500_000)


def test_a_device_that_an_adopted_job_used_stays_in_its_readings(xe: GpuTree) -> None:
    job = Watching(xe)
    job.driver.followers.add("job", GpuFollower(list, (), {"0000:03:00.0": GpuReading(energy_mj=9)}))
    assert (job.only().job_processes, job.only().energy_mj) == (0, 9)


def test_all_gpus_can_be_asked_for(amd: GpuTree) -> None:
    assert list(Watching(amd, 4003, given=("all",)).readings()) == ["0000:0b:00.0"]


def test_a_job_that_leaves_the_gpu_alone_uses_none(amd: GpuTree) -> None:
    assert Watching(amd, 4003).readings() == {}


def test_a_gpu_that_was_given_is_reported_although_it_is_not_used(amd: GpuTree) -> None:
    reading = Watching(amd, 4003, given=("0000:0b:00.0",)).only()
    assert (reading.utilization, reading.job_processes, reading.job_memory_bytes) == (7300, 0, 0)


def test_a_driver_that_says_nothing_of_processes_leaves_a_reason(intel: GpuTree) -> None:
    job = Watching(intel, 5002)
    result = job.driver.read()
    assert result is not None
    readings = result["job"].readings
    assert readings is not None
    reading = readings["0000:00:02.0"]
    assert (reading.job_processes, reading.job_memory_bytes, reading.job_busy_usec) == (1, None, None)
    assert "fdinfo" in result["job"].facts[0].unknown["job_memory_bytes"]


def test_a_descriptor_that_is_closed_in_the_middle_of_a_look_does_no_harm(
    intel: GpuTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    readlink, read = os.readlink, list[str]()

    def open_twice(path: str) -> str:
        read.append(path)
        if "/fd/" in path and read.count(path) > 2:
            raise FileNotFoundError(path)
        return readlink(path)

    monkeypatch.setattr(os, "readlink", open_twice)
    assert set(Watching(intel, 5002).readings()) == {"0000:00:02.0"}


def test_numbers_that_only_a_program_tells_are_taken_from_it(intel: GpuTree) -> None:
    class Top:
        def read(self, card: Card) -> tuple[dict[str, int], str]:
            return {"utilization": 8725, "power_mw": 11_403}, ""

        def close(self) -> None:
            pass

    driver = DrmDriver(intel.proc, intel.sys, Top())
    driver.followers.add("job", GpuFollower(lambda: [5001]))
    result = driver.read()
    assert result is not None
    readings = result["job"].readings
    assert readings is not None
    assert (readings["0000:00:02.0"].utilization, readings["0000:00:02.0"].power_mw) == (8725, 11_403)
    assert result["job"].facts[0].unknown.keys().isdisjoint({"utilization", "power_mw"})


def test_readings_come_less_often_when_they_cost_much(amd: GpuTree) -> None:
    job = Watching(amd, 4001)
    job.only()
    assert job.driver.read() is not None  # two seconds' worth of cost are not used up
    job.driver._due_ns = job.now_ns + 1
    assert job.driver.read() is None
