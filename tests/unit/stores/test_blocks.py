import gzip
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joblens.model.errors import StoreCorrupt
from joblens.model.sample import SAMPLE_COLUMNS, DeviceIo, Sample
from joblens.stores.blocks import decode_block, encode_block
from tests.unit.stores.sample_series import busy_series

_NUMBERS = st.integers(-(1 << 60), 1 << 60)
_FIELDS = ("cpu_total_usec", "cpu_user_usec", "cpu_system_usec", "memory_anon_bytes", "host_load15")
_DEVICE = st.builds(DeviceIo, read_bytes=_NUMBERS, write_ops=_NUMBERS)
_SAMPLE = st.builds(
    Sample,
    at_us=_NUMBERS,
    elapsed_us=_NUMBERS,
    devices=st.none() | st.dictionaries(st.sampled_from(["8:0", "8:16", "gerät"]), _DEVICE),
    **{name: st.none() | _NUMBERS for name in _FIELDS},
)


@given(st.lists(_SAMPLE, max_size=40))
@settings(max_examples=150, deadline=None)
def test_what_was_encoded_comes_back(samples: list[Sample]) -> None:
    assert decode_block(encode_block(samples)) == samples


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 240])
def test_a_busy_series_of_any_length_comes_back(count: int) -> None:
    samples = busy_series(count)
    assert decode_block(encode_block(samples)) == samples


def test_every_column_has_its_own_place() -> None:
    sample = msgspec.convert({name: 1000 + place for place, name in enumerate(SAMPLE_COLUMNS)}, Sample)
    assert decode_block(encode_block([sample])) == [sample]


def test_no_devices_read_and_no_devices_there_are_told_apart() -> None:
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
    block = encode_block(busy_series(count))
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
