"""A chain of deltas over the source is the state that it was made of, whatever operators did."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from joblens.data.base import manifests
from joblens.data.partition import checkpoints
from joblens.data.partition.checkpoints import VerifiedFile
from joblens.data.rows.batch import LINE, Rows, rows_of, with_column
from joblens.data.rows.partition import PartitionState, changed_mask

TEXTS = st.lists(st.text(max_size=6), min_size=1, max_size=12)


def source(texts: list[str]) -> Rows:
    lines = [f"{number}\n".encode() for number in range(len(texts))]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(texts, pa.large_string()), pa.array(lines, pa.large_binary())], names=["text", LINE]
    )
    return rows_of(batch)


def begun(texts: list[str]) -> PartitionState:
    rows = source(texts)
    return PartitionState(rows, source_rows=rows.count, chain=checkpoints.source_chain(rows))


def restored(texts: list[str], deltas: list[Any]) -> PartitionState:
    state = begun(texts)
    for delta in deltas:
        checkpoints.apply_delta(state, checkpoints.serialized(delta))
    return state


def described(state: PartitionState) -> tuple[Any, list[int]]:
    rows = next(state.pieces())
    return rows.batch.to_pylist(), rows.ids.to_pylist()


class Steps:
    """Operators, by number."""

    def change_some(self, state: PartitionState, seed: int) -> None:
        state.compact()
        values = state.batch.column("text").to_pylist()
        changed = [f"{value}!" if (place + seed) % 3 == 0 else value for place, value in enumerate(values)]
        state.replace(with_column(state.batch, "text", pa.array(changed, pa.large_string())))

    def change_lines(self, state: PartitionState, seed: int) -> None:
        batch = state.with_lines()
        lines = [line + b"+" if (place + seed) % 2 else line for place, line in enumerate(_lines(batch))]
        state.replace(with_column(batch, LINE, pa.array(lines, pa.large_binary())))

    def drop_some(self, state: PartitionState, seed: int) -> None:
        state.drop(np.array([(place + seed) % 4 != 0 for place in range(len(state.ids))], dtype=bool))

    def add_column(self, state: PartitionState, seed: int) -> None:
        state.add_column(f"new{seed % 2}", pa.array(range(seed, seed + len(state.ids))))

    def change_nothing(self, state: PartitionState, seed: int) -> None:
        state.compact()
        state.replace(state.batch)

    ALL = ("change_some", "change_lines", "drop_some", "add_column", "change_nothing")


def _lines(batch: Any) -> list[bytes]:
    found: list[bytes] = batch.column(LINE).to_pylist()
    return found


@settings(deadline=None, max_examples=150)
@given(
    texts=TEXTS,
    steps=st.lists(
        st.tuples(st.sampled_from(Steps.ALL), st.integers(0, 5), st.booleans()), min_size=1, max_size=8
    ),
)
def test_a_chain_of_deltas_restores_the_state(texts: list[str], steps: list[tuple[str, int, bool]]) -> None:
    state, deltas = begun(texts), []
    for number, (name, seed, is_lock_valid) in enumerate(steps):
        getattr(Steps(), name)(state, seed)
        if is_lock_valid or number == len(steps) - 1:
            deltas.append(checkpoints.delta_of(state))
            state.saved(f"after {number}")
    again = restored(texts, deltas)
    assert described(again) == described(state)
    assert again.changed_columns == state.changed_columns or not state.count


def test_a_delta_holds_only_what_changed() -> None:
    texts = [f"{number} {'x' * 1000}" for number in range(500)]
    state = begun(texts)
    changed = ["other" if number == 7 else text for number, text in enumerate(texts)]
    state.replace(with_column(state.batch, "text", pa.array(changed, pa.large_string())))
    assert len(checkpoints.serialized(checkpoints.delta_of(state))) < 3000


def test_rows_that_lost_or_got_a_value_are_changed_rows() -> None:
    old = pa.array(["a", None, "c", None])
    new = pa.array(["a", "b", None, None])
    assert changed_mask(old, new).tolist() == [False, True, True, False]


def test_nested_columns_are_compared_too() -> None:
    old, new = pa.array([{"a": [1]}, {"a": [2]}]), pa.array([{"a": [1]}, {"a": [3]}])
    assert changed_mask(old, new).tolist() == [False, True]


def test_the_same_array_handed_on_is_no_change() -> None:
    state = begun(["a", "b"])
    assert state.replace(state.batch) == {}
    assert not state.changed_columns


def test_filters_one_behind_the_other_drop_rows_without_copying_the_rest() -> None:
    state = begun([str(number) for number in range(100)])
    before = state.batch
    state.drop(np.arange(100) != 3)
    state.drop(np.arange(100) != 5)
    assert state.batch is before
    assert state.count == 98
    assert not {3, 5} & set(state.alive_ids.tolist())


def test_the_chain_of_a_source_knows_every_byte_of_it() -> None:
    one, other = source(["a", "b"]), source(["a", "b"])
    assert checkpoints.source_chain(one) == checkpoints.source_chain(other)
    changed = with_column(other.batch, LINE, pa.array([b"0\n", b"2\n"], pa.large_binary()))
    assert checkpoints.source_chain(one) != checkpoints.source_chain(rows_of(changed))


def test_the_chain_of_a_source_that_is_a_table_knows_every_value() -> None:
    def chain(number: int | None, word: str) -> str:
        batch = pa.record_batch({"text": ["a"], "n": pa.array([number]), "more": [{"words": [word]}]})
        return checkpoints.source_chain(rows_of(batch))

    assert chain(1, "b") == chain(1, "b")
    assert len({chain(1, "b"), chain(2, "b"), chain(None, "b"), chain(1, "c")}) == 4


@pytest.mark.parametrize("how", ["cut", "grown", "changed", "gone"])
def test_a_file_that_is_not_what_was_written_is_not_loaded(tmp_path: Path, how: str) -> None:
    path = tmp_path / "kept"
    kept = checkpoints.keep_bytes(str(path), b"something that matters")
    assert bytes(checkpoints.load_verified(str(tmp_path), kept)) == b"something that matters"
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": b"some", "grown": b"something that matters!", "changed": b"S" * 22}[how])
    assert checkpoints.load_verified(str(tmp_path), kept) is None


def test_a_torn_manifest_is_no_manifest(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    manifests.write_manifest(str(path), VerifiedFile(path="x", size_bytes=1, digest="d"))
    assert manifests.read_manifest(str(path), VerifiedFile) is not None
    path.write_bytes(path.read_bytes()[:10])
    assert manifests.read_manifest(str(path), VerifiedFile) is None
    assert manifests.read_manifest(str(tmp_path / "none.json"), VerifiedFile) is None


def test_a_manifest_that_says_something_else_than_was_written_is_no_manifest(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    manifests.write_manifest(str(path), VerifiedFile(path="x", size_bytes=41, digest="d"))
    path.write_bytes(path.read_bytes().replace(b"41", b"42"))
    assert manifests.read_manifest(str(path), VerifiedFile) is None


def test_a_batch_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    def batches() -> Iterator[Any]:
        yield pa.RecordBatch.from_arrays([pa.array([1])], names=["n"])
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        checkpoints.write_batches(str(tmp_path / "whole.arrow"), batches())
    assert list(tmp_path.glob("whole*")) == []
