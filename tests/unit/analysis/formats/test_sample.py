from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields

from joblens.analysis.formats.gpu import read_gpu_facts
from joblens.analysis.formats.sample import (
    from_sample_object,
    time_series_rows,
    to_sample_object,
)
from joblens.model.errors import FormatError
from joblens.model.jobs.details import GpuFacts
from joblens.model.jobs.job import Requirements, Usage
from joblens.model.jobs.sample import SAMPLE_COLUMNS, DeviceIo, GpuReading, InterfaceIo, Sample
from tests.builders.records import START_US, UUID, a_record, a_sample

# 0 as a limit means 'none' in this form, so limits are 1 or more.
LIMITS = ("memory_limit_bytes", "pids_limit", "open_files_limit")
amounts = st.integers(min_value=1, max_value=2**50)
devices = st.builds(DeviceIo, *[amounts for _ in fields(DeviceIo)])
interfaces = st.builds(InterfaceIo, *[amounts for _ in fields(InterfaceIo)])
gpus = st.builds(GpuReading, **{field.name: st.none() | st.just(0) | amounts for field in fields(GpuReading)})


@st.composite
def samples_with_some_fields(draw: st.DrawFn) -> Sample:
    names = draw(st.sets(st.sampled_from(SAMPLE_COLUMNS[2:])))
    return Sample(
        at_us=draw(st.integers(0, 4_000_000_000_000_000)),
        elapsed_us=draw(amounts),
        devices=draw(st.none() | st.dictionaries(st.sampled_from(["8:0", "259:1"]), devices)),
        gpus=draw(st.none() | st.dictionaries(st.sampled_from(["GPU-1", "0000:c1:00.0"]), gpus)),
        interfaces=draw(st.none() | st.dictionaries(st.sampled_from(["eth0", "lo"]), interfaces)),
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
    assert list(form)[:11] == [
        "job_id",
        "timestamp",
        "sample_interval",
        "cgroup_path",
        "limits",
        "cpu",
        "memory",
        "io",
        "network",
        "process",
        "gpu",
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
        (live_object(gpu={"index": 0}), "'gpu' is not a list"),
        (live_object(gpu=[{"utilization": "all"}]), "'utilization' is not a number"),
        (live_object(network={"interfaces": 3}), "'interfaces'"),
        ({"timestamp": START_US * 1000}, "neither 'cpu'"),
    ],
)
def test_garbage_is_refused_with_what_is_wrong(fields: Any, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        from_sample_object(fields)


def test_a_time_series_has_cpu_since_the_sample_before_and_memory_that_cannot_be_reclaimed() -> None:
    samples = [
        a_sample(0, cpu_total_usec=0, memory_anon_bytes=1, processes=1),
        a_sample(2, cpu_total_usec=3_000_000, memory_anon_bytes=30, memory_file_bytes=99, processes=4),
        a_sample(4, cpu_total_usec=4_000_000, memory_anon_bytes=10, memory_file_bytes=99, processes=2),
        a_sample(5, cpu_total_usec=4_000_000, memory_anon_bytes=0, processes=0),
    ]
    assert time_series_rows(samples, a_record()) == [
        (START_US + 2_000_000, 150.0, 30, 4),
        (START_US + 4_000_000, 50.0, 10, 2),
    ]


def test_the_average_of_a_time_series_is_that_of_the_time_the_job_ran() -> None:
    """The sample before its program is loaded and the one after its end are no memory of the job."""
    sizes = ((172_032, 1), (60 << 20, 1), (66 << 20, 2), (63 << 20, 1), (90_112, 0), (86_016, 0))
    samples = [
        a_sample(index, cpu_total_usec=index * 500_000, memory_anon_bytes=size, processes=processes)
        for index, (size, processes) in enumerate(sizes)
    ]
    memory = [row[2] for row in time_series_rows(samples, a_record())]
    assert sum(memory) / len(memory) == 63 << 20


def test_samples_of_one_second_stay_rows_of_their_own() -> None:
    samples = [
        a_sample(index / 10, cpu_total_usec=index * 50_000, memory_anon_bytes=index, processes=1)
        for index in range(12)
    ]
    rows = time_series_rows(samples, a_record())
    assert [row[0] - START_US for row in rows] == [100_000 * index for index in range(1, 11)]
    assert {row[1] for row in rows} == {50.0}


def test_a_row_with_an_unknown_number_is_left_out_of_a_time_series() -> None:
    """Torc's readers refuse a file with a NULL in it."""
    known = {"cpu_total_usec": 0, "memory_anon_bytes": 1, "processes": 1}
    for missing in known:
        partly = {name: value for name, value in known.items() if name != missing}
        samples = [a_sample(0, **known), a_sample(1, **partly), a_sample(2, **known), a_sample(3, **known)]
        assert [row[0] for row in time_series_rows(samples, a_record())] == [START_US + 2_000_000]


def test_a_job_that_ended_before_its_first_sample_is_one_row() -> None:
    usage = Usage(cpu_total_usec=300_000, memory_peak_bytes=5 << 20, processes_peak=2)
    samples = [
        a_sample(0, cpu_total_usec=0, memory_anon_bytes=1, processes=1),
        a_sample(0.6, cpu_total_usec=300_000, memory_anon_bytes=0, processes=0),
    ]
    rows = time_series_rows(samples, a_record(usage=usage))
    assert rows == [(START_US + 600_000, 50.0, 5 << 20, 2)]
    assert time_series_rows(samples, a_record(usage=Usage())) == []


def test_rows_of_torc_go_out_with_their_summed_rss() -> None:
    samples = [
        a_sample(index, cpu_total_usec=index * 500_000, memory_rss_sum_bytes=1000 + index, processes=3)
        for index in range(3)
    ]
    assert [row[2] for row in time_series_rows(samples, a_record())] == [1000, 1001, 1002]


def test_no_field_of_a_sample_is_left_out_of_the_form() -> None:
    full = Sample(
        **{name: number for number, name in enumerate(SAMPLE_COLUMNS, 1)},
        devices={"8:0": DeviceIo(1)},
        gpus={"GPU-1": GpuReading(**{field.name: at for at, field in enumerate(fields(GpuReading), 1)})},
        interfaces={"eth0": InterfaceIo(*range(1, 1 + len(fields(InterfaceIo))))},
    )
    assert None not in (getattr(full, field.name) for field in fields(Sample))
    assert from_sample_object(to_sample_object(full, None, a_record())) == full


H200 = GpuFacts(
    id="GPU-1",
    vendor="nvidia",
    index=3,
    name="NVIDIA H200",
    uuid="GPU-1",
    driver_version="570.86",
    compute_capability="9.0",
    memory_total_bytes=1000,
    power_limit_mw=700_000,
    ecc_enabled=True,
)


def test_a_gpu_is_written_under_the_keys_of_the_form_with_what_is_known_of_the_device() -> None:
    reading = GpuReading(utilization=7850, memory_used_bytes=250, power_mw=45_200, encoder_utilization=0)
    (gpu,) = to_sample_object(a_sample(1, gpus={"GPU-1": reading}), None, a_record(), [H200])["gpu"]
    assert (gpu["index"], gpu["name"], gpu["compute_capability"]) == (3, "NVIDIA H200", "9.0")
    assert (gpu["utilization"], gpu["encoder_util"], gpu["temperature"]) == (78.5, 0.0, None)
    assert (gpu["memory_used"], gpu["memory_total"], gpu["memory_percent"]) == (250, 1000, 25.0)
    assert (gpu["power_draw"], gpu["power_limit"]) == (45.2, 700.0)


def test_a_gpu_nobody_described_still_has_its_numbers() -> None:
    form = to_sample_object(a_sample(1, gpus={"GPU-1": GpuReading(temperature_c=65)}), None, a_record())
    (gpu,) = form["gpu"]
    assert (gpu["id"], gpu["temperature"], gpu["name"], gpu["memory_percent"]) == ("GPU-1", 65, None, None)
    assert read_gpu_facts(form) == ()


def test_no_gpus_looked_at_and_none_used_are_distinguished() -> None:
    assert to_sample_object(a_sample(1), None, a_record())["gpu"] is None
    assert to_sample_object(a_sample(1, gpus={}), None, a_record())["gpu"] == []


def test_what_is_known_of_a_gpu_survives_the_form() -> None:
    form = to_sample_object(a_sample(1, gpus={"GPU-1": GpuReading()}), None, a_record(), [H200])
    assert read_gpu_facts(msgspec.json.decode(msgspec.json.encode(form))) == (H200,)


def test_how_busy_a_job_kept_a_gpu_is_since_the_previous_sample() -> None:
    earlier = a_sample(1, gpus={"GPU-1": GpuReading(job_busy_usec=100_000)})
    later = a_sample(3, gpus={"GPU-1": GpuReading(job_busy_usec=600_000), "GPU-2": GpuReading()})
    shares = [gpu["job_busy_percent"] for gpu in to_sample_object(later, earlier, a_record())["gpu"]]
    assert shares == [25.0, None]


def test_network_and_energy_have_rates_and_sums_over_interfaces() -> None:
    ways = {"eth0": InterfaceIo(rx_errors=1, tx_dropped=4), "eth1": InterfaceIo(rx_errors=2)}
    earlier = a_sample(1, network_rx_bytes=0, host_energy_package_uj=0, instructions=0, cycles=0)
    later = a_sample(
        3,
        network_rx_bytes=4096,
        host_energy_package_uj=90_000_000,
        interfaces=ways,
        instructions=900,
        cycles=300,
    )
    form = to_sample_object(later, earlier, a_record())
    assert (form["network"]["rx_bps"], form["network"]["tx_bps"]) == (2048.0, None)
    assert (form["network"]["total_rx_errors"], form["network"]["total_tx_dropped"]) == (3, 4)
    assert form["network"]["interfaces"]["eth1"]["interface"] == "eth1"
    assert (form["energy"]["host_package_watts"], form["energy"]["host_dram_watts"]) == (45.0, None)
    assert form["cpu"]["instructions_per_cycle"] == 3.0
    assert to_sample_object(earlier, None, a_record())["network"]["total_rx_errors"] is None


def test_gpus_and_interfaces_of_joblet_are_read() -> None:
    gpu = {
        "index": 0,
        "uuid": "GPU-9",
        "name": "Tesla T4",
        "utilization": 78.5,
        "memory_used": 3_435_973_836,
        "memory_total": 17_179_869_184,
        "encoder_util": 2,
        "temperature": 65,
        "power_draw": 45.2,
        "power_limit": 70,
    }
    network = {"interfaces": {"veth0": {"interface": "veth0", "rx_bytes": 5}}, "total_rx_bytes": 5}
    live = live_object(gpu=[gpu], network=network)
    sample = from_sample_object(live)
    assert sample.gpus == {
        "GPU-9": GpuReading(
            utilization=7850, memory_used_bytes=3_435_973_836, temperature_c=65, power_mw=45_200
        )
    }
    assert (sample.interfaces, sample.network_rx_bytes) == ({"veth0": InterfaceIo(rx_bytes=5)}, 5)
    (facts,) = read_gpu_facts(live)
    assert (facts.id, facts.name, facts.vendor, facts.power_limit_mw) == (
        "GPU-9",
        "Tesla T4",
        "nvidia",
        70_000,
    )
