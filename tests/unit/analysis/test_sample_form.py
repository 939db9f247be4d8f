from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.analysis.sample_form import (
    from_sample_object,
    time_series_rows,
    to_sample_object,
)
from joblens.model.errors import FormatError
from joblens.model.job import Requirements
from joblens.model.sample import DEVICE_COLUMNS, SAMPLE_COLUMNS, DeviceIo, Sample
from tests.unit.analysis.records import START_US, UUID, a_record, a_sample

# 0 as a limit means 'none' in this form, so limits are 1 or more.
LIMITS = ("memory_limit_bytes", "pids_limit", "open_files_limit")
amounts = st.integers(min_value=1, max_value=2**50)
devices = st.builds(DeviceIo, *[amounts for _ in DEVICE_COLUMNS])


@st.composite
def samples_with_some_fields(draw: st.DrawFn) -> Sample:
    names = draw(st.sets(st.sampled_from(SAMPLE_COLUMNS[2:])))
    return Sample(
        at_us=draw(st.integers(0, 4_000_000_000_000_000)),
        elapsed_us=draw(amounts),
        devices=draw(st.none() | st.dictionaries(st.sampled_from(["8:0", "259:1"]), devices)),
        **{name: 0 if name not in LIMITS and draw(st.booleans()) else draw(amounts) for name in names},
    )


def live_object(**changes: Any) -> dict[str, Any]:
    """As the Go program writes it."""
    sample = {
        "job_id": UUID,
        "timestamp": "2025-10-15T10:30:05.123456789Z",
        "sample_interval": 5_000_000_000,
        "cgroup_path": "/sys/fs/cgroup/joblet.slice/job-1",
        "limits": {"cpu": 50, "memory": 1024, "io": 0},
        "cpu": {
            "usage_usec": 169_134,
            "user_usec": 123_456,
            "system_usec": 45_678,
            "nr_periods": 50,
            "nr_throttled": 2,
            "throttled_usec": 900,
            "usage_percent": 45.32,
            "throttle_percent": 4.0,
            "pressure_some_10": 1.25,
        },
        "memory": {"current": 536_870_912, "max": 0, "usage_percent": 0, "anon": 1, "file": 2, "pgfault": 7},
        "io": {
            "devices": {"8:0": {"device": "8:0", "rbytes": 10, "wbytes": 20, "rios": 1, "wios": 2}},
            "total_read_bytes": 10,
            "total_write_bytes": 20,
            "total_read_ops": 1,
            "total_write_ops": 2,
            "read_bps": 2.0,
            "write_bps": 4.0,
            "read_iops": 0.2,
            "write_iops": 0.4,
        },
        "process": {"current": 3, "max": 100, "events": 0, "threads": 0, "running": 0},
    }
    return {**sample, **changes}


def test_a_sample_object_has_the_keys_of_the_form_first() -> None:
    form = to_sample_object(a_sample(1), None, a_record())
    assert list(form)[:10] == [
        "job_id",
        "timestamp",
        "sample_interval",
        "cgroup_path",
        "limits",
        "cpu",
        "memory",
        "io",
        "process",
        "host",
    ]
    assert set(live_object()["io"]) <= set(form["io"])
    assert set(live_object()["cpu"]) <= set(form["cpu"])
    assert set(live_object()["memory"]) <= set(form["memory"])


def test_rates_are_since_the_previous_sample() -> None:
    earlier = a_sample(1, cpu_total_usec=0, io_read_bytes=0)
    later = a_sample(3, cpu_total_usec=1_000_000, io_read_bytes=4096)
    form = to_sample_object(later, earlier, a_record())
    assert form["cpu"]["usage_percent"] == 50.0
    assert form["io"]["read_bps"] == 2048.0
    assert form["sample_interval"] == 2_000_000_000


def test_the_first_sample_has_no_rates() -> None:
    form = to_sample_object(a_sample(0, cpu_total_usec=5), None, a_record(job={"interval_s": 0.5}))
    assert form["cpu"]["usage_percent"] is None
    assert form["sample_interval"] == 500_000_000


def test_pressure_is_written_in_percent() -> None:
    form = to_sample_object(a_sample(1, io_full_avg60=1234), None, a_record())
    assert form["io"]["pressure_full_60"] == 12.34


def test_limits_are_those_that_were_enforced() -> None:
    asked = Requirements(cpus=1.5, memory_bytes=1 << 30)
    limited = a_record(job={"requirements": asked})
    assert to_sample_object(a_sample(), None, limited)["limits"] == {
        "cpu": 150,
        "memory": 1 << 30,
        "io": None,
    }
    only_asked = a_record(job={"requirements": asked, "enforce": False})
    assert to_sample_object(a_sample(), None, only_asked)["limits"]["memory"] is None


def test_memory_is_a_share_of_its_limit_where_there_is_one() -> None:
    limited = a_sample(memory_current_bytes=50, memory_limit_bytes=200)
    assert to_sample_object(limited, None, a_record())["memory"]["usage_percent"] == 25.0
    assert (
        to_sample_object(a_sample(memory_current_bytes=50), None, a_record())["memory"]["usage_percent"]
        is None
    )


@given(samples_with_some_fields())
def test_every_field_of_a_sample_survives_the_form(sample: Sample) -> None:
    form = msgspec.json.decode(msgspec.json.encode(to_sample_object(sample, None, a_record())))
    assert from_sample_object(form) == sample


def test_a_live_sample_of_joblet_is_read() -> None:
    sample = from_sample_object(live_object())
    assert sample.at_us == START_US + 5_123_456
    assert (sample.cpu_total_usec, sample.cpu_some_avg10) == (169_134, 125)
    assert (sample.memory_current_bytes, sample.faults_minor) == (536_870_912, 7)
    assert sample.devices == {"8:0": DeviceIo(read_bytes=10, write_bytes=20, read_ops=1, write_ops=2)}
    assert (sample.processes, sample.pids_limit) == (3, 100)


def test_what_joblet_leaves_at_zero_is_unknown_not_zero() -> None:
    sample = from_sample_object(live_object())
    assert sample.memory_limit_bytes is None
    assert sample.threads is None


def test_the_time_since_the_start_counts_from_the_first_sample() -> None:
    first = live_object(timestamp="2025-10-15T10:30:00Z")
    second = live_object(timestamp="2025-10-15T10:30:05+00:00")
    before = from_sample_object(first)
    assert (before.elapsed_us, from_sample_object(second, before).elapsed_us) == (0, 5_000_000)


def test_stored_files_of_joblet_give_cpu_as_cores_that_add_up() -> None:
    rows = [
        {
            "job_id": UUID,
            "timestamp": (START_US + seconds * 1_000_000) * 1000,
            "sequence": seconds,
            "data": {"cpu_usage": cores, "memory_usage": 4096, "disk_io": {"read_bytes": 512}},
        }
        for seconds, cores in ((0, 0.5), (10, 1.5))
    ]
    first = from_sample_object(rows[0])
    samples = [first, from_sample_object(rows[1], first)]
    assert [sample.cpu_total_usec for sample in samples] == [0, 15_000_000]
    assert samples[1].memory_current_bytes == 4096
    assert (samples[1].io_read_bytes, samples[1].io_write_bytes) == (512, 0)
    assert samples[1].memory_anon_bytes is None


def test_the_short_protocol_form_is_read_too() -> None:
    row = {
        "timestamp": START_US * 1000,
        "job_uuid": UUID,
        "cpu_percent": 12.5,
        "memory_bytes": 100,
        "memory_limit": 0,
        "disk_read_bytes": 7,
    }
    sample = from_sample_object(row)
    assert (sample.memory_current_bytes, sample.memory_limit_bytes, sample.io_read_bytes) == (100, None, 7)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ([], "JSON object"),
        ({}, "timestamp"),
        (live_object(timestamp="soon"), "'timestamp' is 'soon'"),
        (live_object(timestamp=True), "'timestamp' is True"),
        (live_object(memory=[1]), "'memory' is not an object"),
        (live_object(cpu={"usage_usec": "much"}), "'usage_usec' is not a number"),
        (live_object(cpu={"usage_usec": -1}), "'usage_usec' is -1"),
        (live_object(io={"devices": [1]}), "'devices'"),
        ({"timestamp": START_US * 1000}, "neither 'cpu'"),
    ],
)
def test_garbage_is_refused_with_what_is_wrong(fields: Any, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        from_sample_object(fields)


def test_a_time_series_has_cpu_between_rows_and_memory_that_cannot_be_reclaimed() -> None:
    samples = [
        a_sample(0, cpu_total_usec=0, memory_anon_bytes=10, memory_file_bytes=99, processes=1),
        a_sample(2, cpu_total_usec=3_000_000, memory_anon_bytes=30, memory_file_bytes=99, processes=4),
    ]
    second = START_US // 1_000_000
    assert list(time_series_rows(samples)) == [(second, 0.0, 10, 1), (second + 2, 150.0, 30, 4)]


def test_samples_of_one_second_become_one_row_with_the_largest_memory() -> None:
    samples = [
        a_sample(0.0, cpu_total_usec=0, memory_anon_bytes=10, processes=1),
        a_sample(0.4, cpu_total_usec=200_000, memory_anon_bytes=50, processes=3),
        a_sample(0.8, cpu_total_usec=400_000, memory_anon_bytes=0, processes=0),
    ]
    assert list(time_series_rows(samples)) == [(START_US // 1_000_000, 50.0, 50, 3)]


def test_unknown_numbers_stay_unknown_in_a_time_series() -> None:
    assert list(time_series_rows([a_sample(1)])) == [(START_US // 1_000_000 + 1, None, None, None)]


def test_no_field_of_a_sample_is_left_out_of_the_form() -> None:
    full = Sample(
        **{name: number for number, name in enumerate(SAMPLE_COLUMNS, 1)}, devices={"8:0": DeviceIo(1)}
    )
    assert from_sample_object(to_sample_object(full, None, a_record())) == full


def test_the_moment_after_the_start_is_no_rate_and_counts_in_the_next_row() -> None:
    taken = [
        Sample(at_us=5_900_000, elapsed_us=2_000, cpu_total_usec=1_900),
        Sample(at_us=7_898_000, elapsed_us=2_000_000, cpu_total_usec=200_000),
    ]
    assert [(row[0], row[1]) for row in time_series_rows(taken)] == [(5, 0.0), (7, 10.0)]
