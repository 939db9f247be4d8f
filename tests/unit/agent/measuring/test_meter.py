import time
from collections.abc import Mapping
from typing import Any

from joblens.agent.instruments.table import OtherProbes
from joblens.agent.measuring.meter import COUNTERS, JobMeter
from joblens.model.jobs.job import NOTHING_REAPED, ExitUsage
from joblens.model.jobs.sample import DeviceIo, GpuReading, Sample
from tests.unit.agent.fake_clock import FakeClock


class Readings:
    """A probe that gives what it was handed, one reading after the other."""

    name = "readings"
    sources: Mapping[str, str] = {}
    unknown: Mapping[str, str] = {}

    def __init__(self, *readings: dict[str, Any]) -> None:
        self._readings = list(readings)

    def read(self) -> dict[str, Any]:
        return dict(self._readings.pop(0) if len(self._readings) > 1 else self._readings[0])

    def close(self) -> None:
        pass


def meter(
    probe: Readings, clock: FakeClock, details: Readings | None = None, *, counts_reaped: bool = True
) -> JobMeter:
    one = JobMeter(probe, details, Readings({}), clock, probe_counts_reaped=counts_reaped)
    one.start_at(clock.mono)
    return one


def test_elapsed_time_does_not_follow_a_clock_that_jumps_back() -> None:
    clock = FakeClock()
    one = meter(Readings({}), clock)
    clock.pass_s(1)
    before = one.sample(NOTHING_REAPED)
    clock.wall_us -= 3_600_000_000
    clock.pass_s(1)
    after = one.sample(NOTHING_REAPED)
    assert after.at_us < before.at_us
    assert (before.elapsed_us, after.elapsed_us) == (1_000_000, 2_000_000)


def test_counters_are_differences_from_the_start_and_levels_are_not() -> None:
    probe = Readings(
        {"cpu_total_usec": 1000, "memory_anon_bytes": 50}, {"cpu_total_usec": 1700, "memory_anon_bytes": 80}
    )
    one = meter(probe, FakeClock())
    assert one.take_base() == {"cpu_total_usec": 1000}
    sample = one.sample(NOTHING_REAPED)
    assert (sample.cpu_total_usec, sample.memory_anon_bytes) == (700, 80)


def test_a_process_tree_is_the_living_and_the_reaped() -> None:
    probe = Readings({"cpu_user_usec": 10, "cpu_system_usec": 5, "faults_minor": 1, "faults_major": 0})
    one = meter(probe, FakeClock(), counts_reaped=False)
    sample = one.sample(ExitUsage(user_usec=100, system_usec=50, faults_minor=7))
    assert (sample.cpu_user_usec, sample.cpu_system_usec, sample.cpu_total_usec) == (110, 55, 165)
    assert sample.faults_minor == 8


def test_a_counter_of_the_tree_does_not_go_back_while_a_process_is_in_nobodys_hands() -> None:
    probe = Readings(
        {"cpu_user_usec": 1000, "cpu_system_usec": 0}, {"cpu_user_usec": 0, "cpu_system_usec": 0}
    )
    one = meter(probe, FakeClock(), counts_reaped=False)
    assert one.sample(NOTHING_REAPED).cpu_total_usec == 1000
    assert one.sample(NOTHING_REAPED).cpu_total_usec == 1000
    assert one.sample(ExitUsage(user_usec=1200)).cpu_total_usec == 1200


def test_what_the_living_wrote_stays_when_nobody_knows_what_the_ended_wrote() -> None:
    nothing = {"cpu_user_usec": 0, "cpu_system_usec": 0, "io_write_bytes": 0, "io_read_bytes": 0}
    one = meter(Readings({**nothing, "io_write_bytes": 4096}, nothing), FakeClock(), counts_reaped=False)
    assert one.sample(NOTHING_REAPED).io_write_bytes == 4096
    last = one.sample(ExitUsage(reaped=1), final=True)
    assert last.io_write_bytes == 4096
    assert last.io_read_bytes is None  # not 0: it may have read a lot


def test_a_look_at_every_process_is_taken_less_often_when_it_is_dear() -> None:
    clock = FakeClock()

    class Dear(Readings):
        looks = 0

        def read(self) -> dict[str, Any]:
            Dear.looks += 1
            end_ns = time.thread_time_ns() + 10_000_000
            while time.thread_time_ns() < end_ns:
                pass
            return {"open_files": 3}

    one = meter(Readings({}), clock, Dear({}))
    for _ in range(60):
        one.sample(NOTHING_REAPED)
        clock.pass_s(1)
    assert 1 < Dear.looks <= 3  # 10 ms each: a 2000th of a minute


def test_the_last_sample_has_what_was_reaped_and_no_living() -> None:
    one = meter(Readings({}), FakeClock(), Readings({"io_call_read_bytes": 999, "open_files": 3}))
    waited = ExitUsage(io_call_read_bytes=100)
    sample = one.sample(waited, final=True)
    assert (sample.io_call_read_bytes, sample.open_files) == (100, None)


def test_devices_of_groups_that_had_jobs_before_are_left_out_after_a_crash() -> None:
    devices = {"8:0": DeviceIo(read_bytes=500)}
    one = meter(Readings({"io_read_bytes": 500, "devices": devices}), FakeClock())
    one.resume({"cpu_total_usec": 10, "io_read_bytes": 100}, 0)
    sample = one.sample(NOTHING_REAPED)
    assert (sample.io_read_bytes, sample.devices) == (400, None)


def test_devices_of_groups_that_had_done_nothing_are_known_after_a_crash() -> None:
    devices = {"8:0": DeviceIo(read_bytes=500)}
    one = meter(Readings({"io_read_bytes": 500, "devices": devices}), FakeClock())
    one.resume({"cpu_total_usec": 10, "io_read_bytes": 0}, 0)
    assert one.sample(NOTHING_REAPED).devices == devices


def test_a_probe_that_raises_leaves_the_others_their_numbers_and_is_a_reason() -> None:
    class Broken(Readings):
        name = "broken"
        sources: Mapping[str, str] = {"gpu": "a driver"}

        def read(self) -> dict[str, Any]:
            raise RuntimeError("the driver fell over")

    one = JobMeter(
        Readings({"cpu_total_usec": 5}),
        None,
        Readings({}),
        FakeClock(),
        probe_counts_reaped=True,
        others=[Broken({}), Readings({"network_rx_bytes": 7})],
    )
    sample = one.sample(NOTHING_REAPED)
    assert (sample.cpu_total_usec, sample.network_rx_bytes) == (5, 7)
    _, unknown, _ = one.others.origins()
    assert unknown == {"gpu": "the driver fell over"}


def test_counters_that_starts_over_with_another_owner_go_on_from_where_they_were() -> None:
    others = [Readings({"instructions": 10, "network_rx_bytes": 900}, {"instructions": 30})]
    one = JobMeter(Readings({}), None, Readings({}), FakeClock(), probe_counts_reaped=True, others=others)
    last = Sample(at_us=0, elapsed_us=0, instructions=100, network_rx_bytes=500)
    one.resume({"network_rx_bytes": 200}, 0, last)
    first, second = one.sample(NOTHING_REAPED), one.sample(NOTHING_REAPED)
    assert (first.instructions, second.instructions) == (100, 120)
    assert first.network_rx_bytes == 700  # the kernel counted on all the time


def test_a_look_that_is_not_kept_leaves_to_the_next_sample_what_is_reported_once() -> None:
    gpus = {"GPU-a": GpuReading(utilization=9700)}
    reported_once = Readings({"gpus": gpus}, {})
    details = Readings({"open_files": 3}, {"open_files": 4})
    one = JobMeter(
        Readings({"memory_anon_bytes": 5}),
        details,
        Readings({}),
        FakeClock(),
        probe_counts_reaped=True,
        others=[reported_once],
    )
    peek = one.peek(NOTHING_REAPED)
    assert (peek.memory_anon_bytes, peek.gpus, peek.open_files) == (5, None, None)
    sample = one.sample(NOTHING_REAPED)
    assert (sample.gpus, sample.open_files) == (gpus, 3)


def test_a_look_is_since_the_start_like_a_sample() -> None:
    one = meter(Readings({"cpu_total_usec": 1000}, {"cpu_total_usec": 1700}), FakeClock())
    one.take_base()
    assert one.peek(NOTHING_REAPED).cpu_total_usec == 700


def test_a_counter_that_is_not_reported_every_time_goes_on_when_it_is_reported_again() -> None:
    others = [Readings({}, {"instructions": 10})]
    one = JobMeter(Readings({}), None, Readings({}), FakeClock(), probe_counts_reaped=True, others=others)
    one.resume({}, 0, Sample(at_us=0, elapsed_us=0, instructions=100))
    assert one.peek(NOTHING_REAPED).instructions is None
    assert one.sample(NOTHING_REAPED).instructions is None
    assert one.sample(NOTHING_REAPED).instructions == 100


def test_what_the_whole_machine_carried_is_no_counter_of_a_job() -> None:
    assert not {name for name in COUNTERS if name.startswith("host_network")}


def test_a_probe_that_is_well_again_has_no_reason_any_more() -> None:
    class Unsteady(Readings):
        name = "unsteady"
        sources: Mapping[str, str] = {"gpu": "a driver"}
        is_well = False

        def read(self) -> dict[str, Any]:
            if not self.is_well:
                raise RuntimeError("the driver fell over")
            return {}

    probe = Unsteady({})
    others = OtherProbes([probe])
    others.read()
    assert others.origins()[1] == {"gpu": "the driver fell over"}
    probe.is_well = True
    others.read()
    assert others.origins()[1] == {}


def test_totals_of_groups_that_were_noted_do_not_count_the_reaped_twice() -> None:
    """Also where the job was followed by its process tree up to then."""
    tree = Readings({"cpu_user_usec": 10, "cpu_system_usec": 5, "faults_minor": 1, "faults_major": 0})
    one = meter(tree, FakeClock(), counts_reaped=False)
    one.read_totals_by(Readings({"cpu_total_usec": 900, "cpu_user_usec": 600, "cpu_system_usec": 300}))
    assert not one.has_end
    last = one.sample(ExitUsage(user_usec=600, system_usec=290), final=True)
    assert (last.cpu_total_usec, last.cpu_user_usec) == (900, 600)
    assert one.has_end


class Counted(Readings):
    """Counts its readings."""

    is_stable = True
    counts_each_run = True
    round_length = 1
    count = 0

    def read(self) -> dict[str, Any]:
        self.count += 1
        return super().read()


def test_nothing_but_totals_is_read_of_a_job_that_does_not_run() -> None:
    totals = Counted(*({"cpu_total_usec": cpu_usec} for cpu_usec in (5, 7, 7, 7, 8, 8)))
    processes, counters, network = Counted({"open_files": 3}), Counted({"cycles": 9}), Counted({})
    network.is_stable = False
    one = JobMeter(
        totals, processes, Readings({}), FakeClock(), probe_counts_reaped=True, others=[counters, network]
    )
    found = []
    for _ in range(5):
        one._details_due_ns = 0
        found.append(one.sample(NOTHING_REAPED))
    assert (totals.count, processes.count, counters.count, network.count) == (5, 3, 3, 5)
    assert {(sample.open_files, sample.cycles) for sample in found} == {(3, 9)}
    one.sample(NOTHING_REAPED, final=True)
    assert counters.count == 4


def test_processes_that_take_turns_have_had_theirs_before_their_reading_is_kept() -> None:
    processes = Counted({"open_files": 3})
    processes.round_length = 3
    one = meter(Counted({"cpu_total_usec": 5}), FakeClock(), processes)
    for _ in range(6):
        one._details_due_ns = 0
        one.sample(NOTHING_REAPED)
    assert processes.count == 3
