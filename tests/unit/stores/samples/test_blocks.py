import gzip
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.sample import (
    SAMPLE_COLUMNS,
    SAMPLE_TABLES,
    DeviceIo,
    GpuReading,
    InterfaceIo,
    Sample,
)
from joblens.stores.samples.blocks import decode_block, encode_block
from joblens.stores.samples.rows import decode_samples, encode_piece, encode_row
from tests.unit.stores.sample_series import busy_series, gpu_series

# Written by a joblens that knew one table only, from the series that is still made today.
_OLD = Path(__file__).parents[3] / "fixtures" / "blocks"

_NUMBERS = st.integers(-(1 << 60), 1 << 60)
_UNKNOWN_OR_NUMBER = st.none() | _NUMBERS
_FIELDS = (
    "network_rx_bytes",
    "network_tcp_rx_bytes",
    "network_udp_rx_bytes",
    "cpu_total_usec",
    "cpu_user_usec",
    "cpu_system_usec",
    "memory_anon_bytes",
    "host_load15",
)
_DEVICE = st.builds(DeviceIo, read_bytes=_NUMBERS, write_ops=_NUMBERS)
_GPU = st.builds(
    GpuReading, **dict.fromkeys(("utilization", "energy_mj", "job_decoder_utilization"), _UNKNOWN_OR_NUMBER)
)
_INTERFACE = st.builds(InterfaceIo, rx_bytes=_NUMBERS, tx_dropped=_NUMBERS)
_SAMPLE = st.builds(
    Sample,
    at_us=_NUMBERS,
    elapsed_us=_NUMBERS,
    devices=st.none() | st.dictionaries(st.sampled_from(["8:0", "8:16", "gerät"]), _DEVICE),
    gpus=st.none() | st.dictionaries(st.sampled_from(["GPU-1", "0000:01:00.0"]), _GPU),
    interfaces=st.none() | st.dictionaries(st.sampled_from(["eth0", "lo"]), _INTERFACE),
    **dict.fromkeys(_FIELDS, _UNKNOWN_OR_NUMBER),
)


@given(st.lists(_SAMPLE, max_size=40))
@settings(max_examples=150, deadline=None)
def test_what_was_encoded_comes_back(samples: list[Sample]) -> None:
    assert decode_block(encode_block(samples)) == samples


@given(_SAMPLE)
@settings(max_examples=100, deadline=None)
def test_a_single_sample_comes_back_before_it_is_in_a_block(sample: Sample) -> None:
    assert decode_samples(encode_row(sample)) == [sample]


@pytest.mark.parametrize(("name", "count"), [("version-1", 3), ("version-2", 20)])
def test_blocks_of_earlier_versions_are_read(name: str, count: int) -> None:
    block = (_OLD / name).read_bytes()
    assert name == f"version-{block[0]}"
    assert decode_block(block) == busy_series(count)


def test_a_single_sample_of_an_earlier_version_is_read() -> None:
    assert decode_samples((_OLD / "single").read_bytes()) == busy_series(3)[2:]


@pytest.mark.parametrize("count", [3, 20])
def test_a_job_without_a_gpu_is_kept_in_the_version_that_every_joblens_reads(count: int) -> None:
    assert encode_block(busy_series(count))[0] in (1, 2)
    assert encode_block(gpu_series(count))[0] in (3, 4)


@pytest.mark.parametrize("count", [1, 15, 16, 240])
def test_gpus_and_interfaces_come_back_from_a_series_of_any_length(count: int) -> None:
    samples = gpu_series(count, gpus=2)
    assert decode_block(encode_block(samples)) == samples


def test_every_number_of_every_table_has_its_own_place() -> None:
    tables = {
        field: {
            "one": msgspec.convert({name: 7 + at for at, name in enumerate(kind.__struct_fields__)}, kind)
        }
        for field, kind in SAMPLE_TABLES.items()
    }
    sample = msgspec.convert({"at_us": 1, "elapsed_us": 1}, Sample)
    full = msgspec.structs.replace(sample, **tables)
    assert decode_block(encode_block([full])) == [full]
    assert decode_samples(encode_row(full)) == [full]


def test_tables_are_the_last_fields_of_a_sample_in_their_own_order() -> None:
    assert Sample.__struct_fields__ == (*SAMPLE_COLUMNS, *SAMPLE_TABLES)


def test_a_gpu_of_which_nothing_could_be_read_is_distinguished_from_one_that_is_not_used() -> None:
    samples = [
        Sample(at_us=1, elapsed_us=1, gpus=None),
        Sample(at_us=2, elapsed_us=2, gpus={}),
        Sample(at_us=3, elapsed_us=3, gpus={"GPU-1": GpuReading()}),
    ]
    assert decode_block(encode_block(samples)) == samples
    assert [decode_samples(encode_row(sample)) for sample in samples] == [[sample] for sample in samples]


def test_more_devices_than_the_earlier_versions_could_number_are_kept() -> None:
    many = {f"259:{minor}": DeviceIo(read_bytes=minor) for minor in range(11_000)}
    sample = Sample(at_us=1, elapsed_us=1, devices=many)
    assert decode_block(encode_block([sample])) == [sample]


def test_an_absurd_number_in_a_table_costs_only_its_entry() -> None:
    absurd = InterfaceIo(rx_bytes=1 << 70)
    sample = Sample(at_us=5, elapsed_us=5, interfaces={"eth0": absurd, "lo": InterfaceIo(rx_bytes=3)})
    kept = msgspec.structs.replace(sample, interfaces={"lo": InterfaceIo(rx_bytes=3)})
    assert decode_block(encode_block([sample])) == [kept]
    assert decode_samples(encode_row(sample)) == [kept]


def test_an_absurd_number_of_a_gpu_costs_only_itself_in_every_encoding() -> None:
    sample = Sample(at_us=5, elapsed_us=5, gpus={"a": GpuReading(power_mw=1 << 70, fan_speed=4)})
    kept = Sample(at_us=5, elapsed_us=5, gpus={"a": GpuReading(fan_speed=4)})
    for data in (encode_block([sample]), encode_row(sample), encode_piece([sample])):
        assert decode_samples(data) == [kept]


def test_a_busy_gpu_takes_less_than_twenty_bytes_a_sample() -> None:
    without, one, three = (encode_block(gpu_series(1920, gpus=number)) for number in (0, 1, 3))
    assert (len(one) - len(without)) / 1920 < 20
    assert (len(three) - len(one)) / 1920 < 2 * 20


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 240])
def test_a_busy_series_of_any_length_comes_back(count: int) -> None:
    samples = busy_series(count)
    assert decode_block(encode_block(samples)) == samples


def test_every_column_has_its_own_place() -> None:
    sample = msgspec.convert({name: 1000 + place for place, name in enumerate(SAMPLE_COLUMNS)}, Sample)
    assert decode_block(encode_block([sample])) == [sample]


def test_no_devices_read_and_no_devices_there_are_distinguished() -> None:
    samples = [Sample(at_us=1, elapsed_us=1, devices=None), Sample(at_us=2, elapsed_us=2, devices={})]
    assert [sample.devices for sample in decode_block(encode_block(samples))] == [None, {}]


def test_differences_larger_than_64_bits_come_back() -> None:
    extremes = [Sample(at_us=0, elapsed_us=0, faults_minor=value) for value in (1 << 62, -(1 << 62))] * 20
    assert decode_block(encode_block(extremes)) == extremes
    assert decode_block(encode_block(extremes[:3])) == extremes[:3]


def test_a_number_beyond_64_bits_is_unknown_and_its_neighbours_stay() -> None:
    sample = Sample(at_us=5, elapsed_us=5, faults_minor=1 << 70, faults_major=7)
    assert decode_block(encode_block([sample])) == [Sample(at_us=5, elapsed_us=5, faults_major=7)]


def test_a_column_that_never_changes_costs_next_to_nothing() -> None:
    plain = [Sample(at_us=0, elapsed_us=0) for _ in range(200)]
    steady = [msgspec.structs.replace(sample, memory_limit_bytes=123_456_789) for sample in plain]
    assert len(encode_block(steady)) - len(encode_block(plain)) < 32


@pytest.mark.parametrize("count", [2, 100])
def test_a_flipped_bit_anywhere_is_noticed(count: int) -> None:
    block = encode_block(gpu_series(count))
    for place in range(0, len(block), max(1, len(block) // 60)):
        damaged = bytearray(block)
        damaged[place] ^= 0x10
        with pytest.raises(StoreCorrupt):
            decode_block(bytes(damaged))


@pytest.mark.parametrize("length", [0, 1, 4, 5, 6, 100])
def test_a_block_cut_short_is_noticed(length: int) -> None:
    with pytest.raises(StoreCorrupt):
        decode_block(encode_block(busy_series(20))[:length])


def test_a_block_of_an_unknown_version_names_it() -> None:
    with pytest.raises(StoreCorrupt, match="version 77"):
        decode_block(b"\x4d" + encode_block(busy_series(2))[1:])


def test_an_hour_takes_at_most_a_quarter_of_its_gzip_json_lines() -> None:
    samples = busy_series(3600)
    json_lines = b"\n".join(msgspec.json.encode(sample) for sample in samples)
    blocks = sum(len(encode_block(samples[at : at + 240])) for at in range(0, 3600, 240))
    assert blocks <= len(gzip.compress(json_lines, 6)) / 4


def test_two_samples_are_encoded_in_well_under_a_millisecond() -> None:
    pair = busy_series(2)
    started = time.process_time()
    for _ in range(200):
        encode_block(pair)
    assert (time.process_time() - started) / 200 < 0.0005  # 40 µs on a quiet machine
