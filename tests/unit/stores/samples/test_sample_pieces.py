"""Pieces of samples: what was put in comes out, whole or joined, or it is said that it cannot be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.sample import SAMPLE_COLUMNS, DeviceIo, GpuReading, InterfaceIo, Sample
from joblens.stores.samples.blocks import encode_block
from joblens.stores.samples.rows import decode_samples, encode_piece, is_piece, joined_pieces, pack_piece

_numbers = st.integers(-(1 << 63) + 1, (1 << 63) - 1)
_names = st.text(max_size=12).filter(lambda text: text.isprintable())
_gpus = st.builds(GpuReading, power_mw=st.none() | _numbers, job_processes=st.none() | _numbers)
_samples = st.builds(
    lambda at_us, known, devices, gpus, interfaces: Sample(
        at_us=at_us, elapsed_us=at_us, devices=devices, gpus=gpus, interfaces=interfaces, **known
    ),
    _numbers,
    st.dictionaries(st.sampled_from(SAMPLE_COLUMNS[2:]), _numbers, max_size=5),
    st.none() | st.dictionaries(_names, st.builds(DeviceIo, _numbers, _numbers), max_size=2),
    st.none() | st.dictionaries(_names, _gpus, max_size=2),
    st.none() | st.dictionaries(_names, st.builds(InterfaceIo, _numbers), max_size=2),
)


@given(st.lists(_samples, max_size=8))
def test_what_was_put_in_comes_out(samples: list[Sample]) -> None:
    piece = encode_piece(samples)
    assert is_piece(piece)
    assert decode_samples(piece) == samples


@given(st.lists(st.lists(_samples, max_size=4), min_size=1, max_size=4))
def test_joined_pieces_hold_what_each_held(parts: list[list[Sample]]) -> None:
    joined = joined_pieces([encode_piece(part) for part in parts])
    assert joined is not None
    assert decode_samples(joined) == [sample for part in parts for sample in part]


def test_a_block_is_read_by_the_same_function_and_not_joined() -> None:
    samples = [Sample(at_us=index, elapsed_us=index) for index in range(40)]
    block = encode_block(samples)
    assert not is_piece(block)
    assert decode_samples(block) == samples
    assert joined_pieces([block, encode_piece(samples)]) is None


def test_numbers_of_more_than_64_bits_are_unknown_and_their_neighbours_are_kept() -> None:
    absurd = Sample(
        at_us=1,
        elapsed_us=2,
        processes=1 << 70,
        threads=3,
        devices={"8:0": DeviceIo(1 << 70), "8:1": DeviceIo(4)},
    )
    kept = Sample(at_us=1, elapsed_us=2, threads=3, devices={"8:1": DeviceIo(4)})
    assert decode_samples(encode_piece([absurd])) == [kept]


@pytest.mark.parametrize("place", [5, 20, -1])
def test_a_damaged_piece_is_reported_as_such(place: int) -> None:
    data = bytearray(encode_piece([Sample(at_us=index, elapsed_us=7 * index) for index in range(20)]))
    data[place] ^= 0xFF
    with pytest.raises(StoreCorrupt):
        decode_samples(bytes(data))


def test_a_piece_that_was_cut_off_is_reported_as_such() -> None:
    data = encode_piece([Sample(at_us=1, elapsed_us=2)])
    for length in range(1, len(data)):
        with pytest.raises(StoreCorrupt):
            decode_samples(data[:length])


def test_columns_and_tables_of_a_newer_joblens_are_left_out() -> None:
    columns = [1, 2, *[None] * (len(SAMPLE_COLUMNS) - 2), 99]
    data = pack_piece(len(columns), [[*columns, {"8:0": {"read_bytes": 5}}, None, None, {"new": {}}]])
    assert decode_samples(data)[0].devices == {"8:0": DeviceIo(read_bytes=5)}
