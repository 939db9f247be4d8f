from joblens.analysis.numbers.attribution import EnergyShares, co2_mg, energy_shares, with_co2
from joblens.model.jobs.job import Usage
from joblens.model.jobs.sample import Sample

S = 1_000_000


def _sample(
    at_s: int, job_s: float | None, busy_s: float | None, package_j: float | None, dram_j: float | None = None
) -> Sample:
    return Sample(
        at_us=at_s * S,
        elapsed_us=at_s * S,
        cpu_total_usec=None if job_s is None else round(job_s * S),
        host_cpu_busy_usec=None if busy_s is None else round(busy_s * S),
        host_energy_package_uj=None if package_j is None else round(package_j * S),
        host_energy_dram_uj=None if dram_j is None else round(dram_j * S),
    )


def test_a_job_pays_for_its_part_of_the_cpu_time_interval_by_interval() -> None:
    samples = [
        _sample(0, 0, 100, 0, 0),
        _sample(1, 1, 104, 80, 8),  # a quarter of 80 J
        _sample(2, 2, 105, 120, 10),  # all of 40 J
        _sample(3, 2, 109, 200, 14),  # nothing of 80 J
    ]
    assert energy_shares(samples) == EnergyShares(package_uj=60 * S, dram_uj=4 * S)


def test_a_job_never_pays_for_more_than_there_was() -> None:
    # The host's time is told in ticks and may lag behind the job's.
    samples = [_sample(0, 0, 100, 0), _sample(1, 1, 100.9, 50)]
    assert energy_shares(samples).package_uj == 50 * S


def test_intervals_too_short_for_the_clock_ticks_are_taken_together() -> None:
    samples = [
        _sample(0, 0, 100, 0),
        _sample(1, 0.04, 100.0, 10),
        _sample(2, 0.05, 100.2, 20),
    ]
    assert energy_shares(samples).package_uj == 5 * S  # 0.05 s of 0.2 s of 20 J


def test_a_job_too_short_for_the_clock_ticks_has_no_share() -> None:
    assert energy_shares([_sample(0, 0, 100, 0), _sample(1, 0.002, 100, 9)]) == EnergyShares()
    assert energy_shares([_sample(0, 0, 100, 0), _sample(1, 0.002, 100.09, 9)]) == EnergyShares()


def test_a_counter_that_was_not_read_again_tells_nothing() -> None:
    assert energy_shares([_sample(0, 0, 100, 7), _sample(1, 1, 101, 7)]) == EnergyShares()


def test_the_last_moment_is_taken_together_with_what_went_before() -> None:
    samples = [
        _sample(0, 0, 100, 0),
        _sample(1, 0, 101, 10),
        _sample(2, 0.5, 104, 40),
        _sample(3, 0.51, 104, 44),  # no tick since: all of 4 J would be the job's
    ]
    assert energy_shares(samples).package_uj == 5.78 * S  # 0.51 s of 3 s of 34 J


def test_samples_that_lack_a_number_are_passed_over() -> None:
    samples = [
        _sample(0, 0, 100, 0),
        _sample(1, None, 101, 10),
        _sample(2, 1, 102, None),
        _sample(3, 2, 104, 40),
    ]
    assert energy_shares(samples) == EnergyShares(package_uj=20 * S, dram_uj=None)


def test_a_counter_that_went_back_loses_that_step_and_no_more() -> None:
    samples = [
        _sample(0, 0, 100, 500),
        _sample(1, 1, 101, 510),
        _sample(2, 2, 102, 3),
        _sample(3, 3, 103, 13),
    ]
    assert energy_shares(samples).package_uj == 20 * S


def test_without_counters_nothing_is_known() -> None:
    assert energy_shares([_sample(0, 0, 100, None), _sample(1, 1, 101, None)]) == EnergyShares()
    assert energy_shares([_sample(0, 0, 100, 5)]) == EnergyShares()
    assert energy_shares([]) == EnergyShares()


def test_a_kilowatt_hour_is_the_factor_in_grams() -> None:
    assert co2_mg(3_600_000 * S, 400) == 400_000
    assert co2_mg(1000 * S, 380) == 106


def test_co2_is_that_of_processors_memory_and_gpus() -> None:
    usage = Usage(
        energy_package_uj=1_800_000 * S,
        energy_dram_uj=900_000 * S,
        gpu_energy_uj=900_000 * S,
        unknown={"co2_mg": "not measured"},
    )
    result = with_co2(usage, 250)
    assert result.co2_mg == 250_000
    assert result.unknown == {}
    assert result.sources == {"co2": "energy x 250 g/kWh"}


def test_co2_of_a_lower_bound_is_one_too() -> None:
    usage = Usage(energy_package_uj=S, lower_bounds=("energy_package_uj",))
    assert with_co2(usage, 250).lower_bounds == ("energy_package_uj", "co2_mg")


def test_no_co2_without_a_factor_or_without_energy_and_the_record_says_which() -> None:
    assert with_co2(Usage(energy_package_uj=S), None).unknown == {
        "co2_mg": "no grid factor is set (energy.grid_co2_g_per_kwh)"
    }
    nothing = with_co2(Usage(), 250)
    assert nothing.co2_mg is None
    assert nothing.unknown == {"co2_mg": "its energy is unknown"}


def test_a_grid_without_co2_costs_none() -> None:
    assert with_co2(Usage(energy_package_uj=S), 0).co2_mg == 0
