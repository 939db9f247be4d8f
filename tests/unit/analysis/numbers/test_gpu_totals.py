from typing import Any

from joblens.analysis.numbers.gpu import GpuTotals, gpu_totals
from joblens.model.jobs.sample import GpuReading, Sample

SECOND = 1_000_000


def sample(seconds: float, **devices: GpuReading | None) -> Sample:
    gpus = {name.replace("_", "-"): reading for name, reading in devices.items() if reading is not None}
    return Sample(at_us=0, elapsed_us=int(seconds * SECOND), gpus=gpus)


def between(seconds: float) -> Sample:
    return Sample(at_us=0, elapsed_us=int(seconds * SECOND))


def alone(**fields: Any) -> GpuReading:
    return GpuReading(processes=1, job_processes=1, **fields)


def test_without_a_reading_nothing_is_known() -> None:
    assert gpu_totals([between(0), between(1)]) == GpuTotals()


def test_a_job_that_used_no_gpu_used_none() -> None:
    totals = gpu_totals([sample(0), between(1), sample(2)])
    assert (totals.memory_peak_bytes, totals.busy_usec, totals.energy_uj, totals.devices) == (0, 0, 0, {})


def test_the_peak_is_over_all_devices_at_the_same_time() -> None:
    totals = gpu_totals(
        [
            sample(0, a=alone(job_memory_bytes=100), b=alone(job_memory_bytes=10)),
            sample(2, a=alone(job_memory_bytes=10), b=alone(job_memory_bytes=90)),
        ]
    )
    assert totals.memory_peak_bytes == 110
    assert totals.devices is not None
    assert [device.job_memory_peak_bytes for device in totals.devices.values()] == [100, 90]


def test_busy_time_is_added_up_over_devices() -> None:
    readings = [
        sample(0, a=alone(job_busy_usec=0), b=alone(job_busy_usec=0)),
        between(1),
        sample(2, a=alone(job_busy_usec=1 * SECOND), b=alone(job_busy_usec=500_000)),
        sample(4, a=alone(job_busy_usec=3 * SECOND), b=alone(job_busy_usec=500_000)),
    ]
    totals = gpu_totals(readings)
    assert totals.busy_usec == 3_500_000
    assert totals.devices is not None
    assert totals.devices["a"].job_utilization_mean == 7500
    assert totals.devices["b"].job_utilization_mean == 1250


def test_a_counter_that_began_again_goes_on() -> None:
    readings = [sample(at, a=alone(job_busy_usec=busy)) for at, busy in ((0, 0), (2, 900), (9, 0), (11, 50))]
    assert gpu_totals(readings).busy_usec == 950


def test_a_part_that_is_not_known_makes_the_sum_unknown() -> None:
    totals = gpu_totals([sample(0, a=alone(job_busy_usec=5), b=GpuReading(utilization=1))])
    assert totals.busy_usec is None


def test_who_is_alone_on_a_device_has_all_of_its_energy() -> None:
    totals = gpu_totals([sample(0, a=alone(energy_mj=0)), sample(2, a=alone(energy_mj=800_000))])
    assert totals.energy_uj == 800_000_000


def test_energy_is_shared_by_utilisation_where_others_are_there() -> None:
    def shared(energy_mj: int) -> GpuReading:
        return GpuReading(
            processes=2, job_processes=1, energy_mj=energy_mj, utilization=10_000, job_utilization=2500
        )

    totals = gpu_totals([sample(0, a=shared(0)), sample(2, a=shared(1000))])
    assert totals.energy_uj == 250_000
    assert totals.devices is not None
    assert totals.devices["a"].energy_uj == 1_000_000


def test_processes_that_all_wait_share_evenly() -> None:
    def waiting(energy_mj: int) -> GpuReading:
        return GpuReading(processes=4, job_processes=1, energy_mj=energy_mj, utilization=0, job_utilization=0)

    assert gpu_totals([sample(0, a=waiting(0)), sample(2, a=waiting(1000))]).energy_uj == 250_000


def test_a_device_that_was_given_and_not_used_drew_nothing_for_the_job() -> None:
    def unused(energy_mj: int) -> GpuReading:
        return GpuReading(processes=0, job_processes=0, energy_mj=energy_mj, utilization=0, job_utilization=0)

    assert gpu_totals([sample(0, a=unused(0)), sample(2, a=unused(1000))]).energy_uj == 0


def test_energy_of_a_device_without_a_counter_is_its_power_over_time() -> None:
    totals = gpu_totals([sample(0, a=alone(power_mw=100_000)), sample(2, a=alone(power_mw=200_000))])
    assert totals.energy_uj == 300_000_000


def test_energy_is_unknown_where_neither_is_reported() -> None:
    assert gpu_totals([sample(0, a=alone()), sample(2, a=alone())]).energy_uj is None


def test_means_are_over_time_and_maxima_over_all_readings() -> None:
    totals = gpu_totals(
        [
            sample(0, a=alone(utilization=9000, temperature_c=40)),
            sample(1, a=alone(utilization=9000, temperature_c=70)),
            sample(4, a=alone(utilization=1000, temperature_c=50)),
        ]
    )
    assert totals.devices is not None
    device = totals.devices["a"]
    assert (device.utilization_mean, device.temperature_max_c) == (3000, 70)
