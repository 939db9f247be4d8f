import sys

from joblens.probes.host.perf_counters import (
    COUNTERS,
    PerfCountersProbe,
    perf_attributes,
    scaled_count,
)


def test_a_process_that_is_gone_leaves_a_reason_for_every_counter() -> None:
    probe = PerfCountersProbe(None, list)
    assert probe.read() == {}
    assert set(probe.unknown) == {counter.field for counter in COUNTERS}


def test_what_is_asked_of_the_kernel_is_what_its_header_says() -> None:
    software = perf_attributes(COUNTERS[2], on_exec=True, user_only=False)
    assert len(software) == 112
    assert software[:24] == bytes.fromhex("01000000 70000000 0400000000000000 0000000000000000")
    assert int.from_bytes(software[40:48], sys.byteorder) == 1 << 12 | 1 << 1 | 1
    hardware = perf_attributes(COUNTERS[0], on_exec=False, user_only=True)
    assert int.from_bytes(hardware[40:48], sys.byteorder) == 1 << 6 | 1 << 5 | 1 << 1


def test_a_counter_that_had_to_share_the_processor_is_scaled_to_the_whole_time() -> None:
    assert scaled_count(1000, 400, 100) == 4000
    assert scaled_count(1000, 400, 400) == 1000
    assert scaled_count(0, 0, 0) == 0
