"""Operators on large batches, piece by piece."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from joblens.data.base.operator import RowErrors
from joblens.data.rows.batch import with_column
from joblens.data.rows.partition import PIECE_BYTES, is_same_array, mapped_in_pieces, stats_in_pieces

ROWS = 6000


def large(kind: Any = None) -> Any:
    texts = pa.array([f"{n} {'x' * 2000}" for n in range(ROWS)], kind or pa.large_string())
    batch = pa.RecordBatch.from_arrays([pa.array(range(ROWS)), texts], names=["n", "t"])
    assert batch.nbytes > 2 * PIECE_BYTES
    return batch


def changing(change: Callable[[Any], Any], sizes: list[int]) -> Callable[[Any], Any]:
    def mapped(batch: Any) -> Any:
        sizes.append(batch.num_rows)
        return with_column(batch, "t", change(batch.column("t")))

    return mapped


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string(), pa.large_binary()])
@pytest.mark.parametrize("shape", ["shorter", "longer", "much longer", "as long"])
def test_a_large_batch_comes_back_as_if_it_had_been_worked_on_whole(kind: Any, shape: str) -> None:
    batch = large(kind)
    sizes: list[int] = []

    def change(texts: Any) -> Any:
        if shape == "as long":
            return pc.replace_substring(texts, "x", "y") if not pa.types.is_large_binary(kind) else texts
        part = {"shorter": b"", "longer": b"yz", "much longer": b"y" * 200}[shape]
        return pa.array(
            [(t[:5] if isinstance(t, bytes) else t[:5].encode()) + part for t in texts.to_pylist()]
        ).cast(kind)

    mapped = changing(change, sizes)
    found = mapped_in_pieces(mapped)(batch)
    assert len(sizes) >= 3
    assert sum(sizes) == ROWS
    assert found.equals(mapped(batch))
    assert is_same_array(found.column("n"), batch.column("n"))


def test_what_no_piece_changed_is_not_copied() -> None:
    batch = large()
    found = mapped_in_pieces(lambda piece: piece)(batch)
    assert all(map(is_same_array, found.columns, batch.columns))


def test_a_change_in_the_last_piece_alone_is_not_lost() -> None:
    batch = large()

    def last(piece: Any) -> Any:
        if piece.column("n")[-1].as_py() != ROWS - 1:
            return piece
        return with_column(piece, "t", pa.array(["new"] * piece.num_rows, pa.large_string()))

    found = mapped_in_pieces(last)(batch).column("t").to_pylist()
    before = batch.column("t").to_pylist()
    first_new = found.index("new")
    assert found == before[:first_new] + ["new"] * (ROWS - first_new)


def test_values_that_are_missing_come_back_missing() -> None:
    batch = large()

    def emptied(texts: Any) -> Any:
        return pa.array([None if t.startswith(("3", "59")) else t[:9] for t in texts.to_pylist()], texts.type)

    mapped = changing(emptied, [])
    assert mapped_in_pieces(mapped)(batch).equals(mapped(batch))


def test_rows_that_are_wrong_are_reported_by_their_places_in_the_whole_batch() -> None:
    wrong = {1, 2500, ROWS - 1}

    def strict(piece: Any) -> Any:
        numbers = piece.column("n").to_pylist()
        bad = {place: f"{number}" for place, number in enumerate(numbers) if number in wrong}
        if bad:
            raise RowErrors(bad)
        return piece

    for in_pieces in (mapped_in_pieces, stats_in_pieces):
        with pytest.raises(RowErrors) as raised:
            in_pieces(strict)(large())
        assert raised.value.reasons == {number: str(number) for number in wrong}


def test_pieces_that_come_back_with_different_columns_are_worked_on_as_a_whole() -> None:
    def guessing(piece: Any) -> Any:
        numbers = [n if n > 5000 else None for n in piece.column("n").to_pylist()]
        return with_column(piece, "guessed", pa.array(numbers))

    batch = large()
    assert mapped_in_pieces(guessing)(batch).equals(guessing(batch))


def test_statistics_of_pieces_are_those_of_the_whole() -> None:
    def lengths(batch: Any) -> dict[str, Any]:
        return {"length": pc.utf8_length(batch.column("t"))}

    assert stats_in_pieces(lengths)(large())["length"].equals(lengths(large())["length"])
