from hypothesis import given
from hypothesis import strategies as st

from joblens.agent.measuring.readings import SlotNumbers, keep_monotonic, live_numbers
from joblens.model.jobs.sample import DeviceIo

KIB, MIB = 1 << 10, 1 << 20


def test_counters_and_levels_are_those_of_the_job_alone() -> None:
    numbers = SlotNumbers({"cpu_total_usec": 1000, "memory_anon_bytes": 5 * MIB, "cpu_some_avg10": 7})
    found = numbers.since_start({"cpu_total_usec": 1700, "memory_anon_bytes": 8 * MIB, "cpu_some_avg10": 9})
    assert found == {"cpu_total_usec": 700, "memory_anon_bytes": 3 * MIB, "cpu_some_avg10": 9}


def test_what_jobs_before_it_did_on_a_device_is_not_its_own() -> None:
    before = {"8:0": DeviceIo(read_bytes=500, read_ops=5, write_bytes=70), "8:16": DeviceIo(write_ops=1)}
    after = {"8:0": DeviceIo(read_bytes=800, read_ops=6, write_bytes=70), "8:32": DeviceIo(read_bytes=9)}
    numbers = SlotNumbers({"devices": before})
    assert numbers.since_start({"devices": after})["devices"] == {
        "8:0": DeviceIo(read_bytes=300, read_ops=1),
        "8:32": DeviceIo(read_bytes=9),
    }
    assert numbers.at_start()["devices"] == {"8:0": DeviceIo(), "8:16": DeviceIo()}


def test_a_peak_is_what_rose_above_what_the_launcher_holds() -> None:
    numbers = SlotNumbers({"memory_current_bytes": 4 * MIB, "memory_kernel_peak_bytes": 900 * MIB})
    assert numbers.at_start()["memory_kernel_peak_bytes"] == 0
    found = numbers.since_start({"memory_current_bytes": 4 * MIB, "memory_kernel_peak_bytes": 64 * MIB})
    assert found["memory_kernel_peak_bytes"] == 60 * MIB


def test_a_peak_that_cannot_be_reset_is_only_reported_when_it_rose() -> None:
    base = {"memory_current_bytes": 4 * MIB, "memory_kernel_peak_bytes": 200 * MIB}
    numbers = SlotNumbers(base, can_reset_peak=False)
    assert "memory_kernel_peak_bytes" not in numbers.at_start()
    assert "memory_kernel_peak_bytes" not in numbers.since_start(base)
    higher = numbers.since_start({**base, "memory_kernel_peak_bytes": 300 * MIB})
    assert higher["memory_kernel_peak_bytes"] == 296 * MIB
    assert "reset" in numbers.unknown()["memory_kernel_peak_bytes"]


def test_pages_charged_in_advance_before_the_job_are_its_own_once_it_uses_them() -> None:
    numbers = SlotNumbers({"memory_current_bytes": 740, "memory_anon_bytes": 196, "memory_kernel_bytes": 216})
    found = numbers.since_start(
        {
            "memory_current_bytes": 2976,
            "memory_kernel_peak_bytes": 2976,
            "memory_anon_bytes": 2492,
            "memory_kernel_bytes": 180,
        }
    )
    assert found["memory_anon_bytes"] == 2296
    assert found["memory_current_bytes"] == 2296
    assert found["memory_kernel_peak_bytes"] == 2976 - 196 - 180


def test_the_peak_of_one_job_is_not_the_next_ones() -> None:
    base = {"memory_current_bytes": 4, "memory_anon_bytes": 4, "memory_kernel_peak_bytes": 4}
    numbers = SlotNumbers(base)
    assert numbers.since_start({**base, "memory_anon_bytes": 90})["memory_kernel_peak_bytes"] == 86
    assert numbers.since_start(base)["memory_kernel_peak_bytes"] == 86
    numbers.at_start()  # it was never rebased: the launcher could not start the job
    assert numbers.since_start(base)["memory_kernel_peak_bytes"] == 0


def test_page_tables_of_the_job_before_that_are_freed_late_are_not_taken_off_its_peak() -> None:
    base = {"memory_current_bytes": 1750, "memory_anon_bytes": 180, "memory_kernel_bytes": 1500}
    after = {"memory_current_bytes": 450, "memory_anon_bytes": 190, "memory_kernel_bytes": 140}
    found = SlotNumbers(base).since_start({**after, "memory_kernel_peak_bytes": 3970})
    assert found["memory_kernel_peak_bytes"] == 3970 - 180 - 140


def test_a_peak_that_is_reset_before_the_end_is_reported_does_not_go_back() -> None:
    numbers = SlotNumbers({"memory_current_bytes": 4 * MIB})
    before = numbers.since_start({"memory_current_bytes": 9 * MIB, "memory_kernel_peak_bytes": 64 * MIB})
    after = numbers.since_start({"memory_current_bytes": 4 * MIB, "memory_kernel_peak_bytes": 4 * MIB})
    assert before["memory_kernel_peak_bytes"] == after["memory_kernel_peak_bytes"] == 60 * MIB


parts = st.tuples(*(st.integers(0, 1000) for _ in range(4)))  # anonymous, files, kernel, charged in advance


@given(parts, st.lists(parts, min_size=1, max_size=6), st.booleans())
def test_no_reading_of_a_job_is_above_its_peak(
    base: tuple[int, ...], held: list[tuple[int, ...]], can_reset_peak: bool
) -> None:
    peak = sum(base)
    numbers = SlotNumbers(a_reading(base, peak), can_reset_peak=can_reset_peak)
    result = [0]
    for holds in held:
        peak = max(peak, sum(holds))
        found = numbers.since_start(a_reading(holds, peak))
        whole = found["memory_anon_bytes"] + found["memory_file_bytes"] + found["memory_kernel_bytes"]
        assert whole <= found["memory_current_bytes"]
        if "memory_kernel_peak_bytes" in found:
            result.append(found["memory_kernel_peak_bytes"])
            assert result[-1] >= max(result[-2], whole)
            assert result[-1] <= peak


def a_reading(held: tuple[int, ...], peak: int) -> dict[str, int]:
    anonymous, files, kernel, _ = held
    return {
        "memory_current_bytes": sum(held),
        "memory_kernel_peak_bytes": peak,
        "memory_anon_bytes": anonymous,
        "memory_file_bytes": files,
        "memory_kernel_bytes": kernel,
    }


def test_user_and_system_time_add_up_without_the_launchers_part() -> None:
    numbers = SlotNumbers({"cpu_total_usec": 100, "cpu_user_usec": 50, "cpu_system_usec": 50})
    found = numbers.since_start({"cpu_total_usec": 1100, "cpu_user_usec": 1040, "cpu_system_usec": 60}, 400)
    assert found["cpu_total_usec"] == 600
    assert found["cpu_user_usec"] == 594
    assert found["cpu_system_usec"] == 6


def test_all_of_it_may_have_been_the_launchers() -> None:
    numbers = SlotNumbers({"cpu_total_usec": 100, "cpu_user_usec": 50, "cpu_system_usec": 50})
    found = numbers.since_start({"cpu_total_usec": 100, "cpu_user_usec": 50, "cpu_system_usec": 50}, 30)
    assert (found["cpu_total_usec"], found["cpu_user_usec"], found["cpu_system_usec"]) == (0, 0, 0)


def test_processes_are_unknown_unless_someone_looked() -> None:
    numbers = SlotNumbers({"processes": 1, "threads": 1})
    assert numbers.since_start({"processes": 3, "threads": 9}) == {"processes": 2, "threads": 8}
    assert numbers.since_start({"processes": 1, "threads": 1}, was_sampled=False) == {}
    assert numbers.at_start() == {}
    assert set(numbers.unknown()) == {"processes", "threads", "open_files"}


def test_a_counter_does_not_go_back() -> None:
    fields = {"cpu_user_usec": 5, "faults_minor": 9, "memory_anon_bytes": 1}
    keep_monotonic(fields, {"cpu_user_usec": 8, "faults_minor": 3, "memory_anon_bytes": 4}.get)
    assert fields == {"cpu_user_usec": 8, "faults_minor": 9, "memory_anon_bytes": 1}


def test_a_live_reading_leaves_out_the_launcher_and_the_peak_of_the_slot() -> None:
    held = {"cpu_total_usec": 700, "memory_current_bytes": 156 * KIB, "memory_anon_bytes": 100 * KIB}
    base = SlotNumbers({**held, "memory_kernel_peak_bytes": 9 * MIB, "processes": 1}).base_of_attempt()
    reading = {
        "cpu_total_usec": 1000,
        "memory_current_bytes": 448 * KIB,
        "memory_anon_bytes": 150 * KIB,
        "memory_kernel_peak_bytes": 9 * MIB,
        "processes": 2,
    }
    assert live_numbers(reading, base) == {
        "cpu_total_usec": 300,
        "memory_current_bytes": 292 * KIB,
        "memory_anon_bytes": 50 * KIB,
        "processes": 1,
    }
