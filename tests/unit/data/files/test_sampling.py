"""Rows from all over a dataset."""

import gzip
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.analysis.recipes.data_characteristics import FieldNames, describe
from joblens.data.files.datasets import DataFile, zstd
from joblens.data.files.sampling import expanded_bytes, sample_files, sample_of, sample_size, spread_indexes

NAMES = FieldNames()


def rows_of(count: int, longest: int = 2000) -> list[dict[str, Any]]:
    lengths = random.Random(7)
    return [{"id": number, "text": "x" * lengths.randint(1, longest)} for number in range(count)]


def lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def file_of(path: Path, data: bytes, kind: str = "jsonl", compression: str = "") -> DataFile:
    path.write_bytes(data)
    return DataFile(path=str(path), format=kind, compression=compression, size=len(data))


@given(total=st.integers(0, 10**12), wanted=st.integers(1, 300))
def test_places_lie_each_in_its_own_part(total: int, wanted: int) -> None:
    found = spread_indexes(total, wanted)
    assert len(found) == min(total, wanted)
    assert all(
        number * total // len(found) <= place < (number + 1) * total // len(found)
        for number, place in enumerate(found)
    )


@pytest.mark.parametrize(
    ("total", "size"), [(0, 0), (999, 999), (5000, 50), (99_999, 999), (10**6, 1000), (10**8, 10_000)]
)
def test_of_many_rows_a_small_part_is_looked_at(total: int, size: int) -> None:
    assert sample_size(total) == size


@pytest.mark.parametrize("order", ["as they come", "sorted", "in waves"])
def test_the_rows_of_a_large_file_are_estimated_however_they_are_sorted(tmp_path: Path, order: str) -> None:
    rows = rows_of(8000)
    if order == "sorted":
        rows.sort(key=lambda row: len(row["text"]))
    if order == "in waves":
        rows = [{"id": number, "text": "x" * (10 + number % 100 * 20)} for number in range(8000)]
    file = file_of(tmp_path / "a.jsonl", lines(rows))
    found = describe(sample_files([file], 1000, NAMES), NAMES)
    mean = sum(len(row["text"]) for row in rows) / len(rows)
    assert found.is_total_estimated
    assert found.total_samples == pytest.approx(8000, rel=0.1)
    assert found.avg_text_length == pytest.approx(mean, rel=0.1)


def test_the_sample_comes_from_all_over_the_data(tmp_path: Path) -> None:
    texts = [{"id": number, "text": "x" * 1000} for number in range(1000)]
    images = [{"id": 1000 + number, "images": ["a.png"], "meta": "x" * 990} for number in range(3000)]
    file = file_of(tmp_path / "a.jsonl", lines([*texts, *images]))
    assert describe(sample_files([file], 100, NAMES), NAMES).primary_modality == "image"


def test_a_small_file_is_counted_exactly(tmp_path: Path) -> None:
    file = file_of(tmp_path / "a.jsonl", b"\xef\xbb\xbf" + lines(rows_of(20)) + b"\n\n[1]\n{broken\n")
    found = sample_files([file], 1000, NAMES)
    assert [row["id"] for row in found.rows] == list(range(20))
    assert not found.is_total_estimated


def test_files_take_part_by_their_size(tmp_path: Path) -> None:
    small = file_of(tmp_path / "small.jsonl", lines({"id": "small", "text": "x" * 100} for _ in range(1000)))
    large = file_of(tmp_path / "large.jsonl", lines({"id": "large", "text": "x" * 100} for _ in range(9000)))
    ids = [row["id"] for row in sample_files([small, large], 200, NAMES).rows]
    assert ids.count("small") == pytest.approx(20, abs=3)


def test_of_more_files_than_rows_are_wanted_some_are_read(tmp_path: Path) -> None:
    files = [file_of(tmp_path / f"{number}.jsonl", lines(rows_of(3, 10))) for number in range(50)]
    found = sample_files(files, 10, NAMES)
    assert len(found.rows) == 10
    assert found.total_rows == pytest.approx(150, rel=0.05)


@pytest.mark.parametrize(("compression", "compress"), [("gzip", gzip.compress), ("zstd", zstd.compress)])
def test_compressed_files_are_looked_into(tmp_path: Path, compression: str, compress: Any) -> None:
    data = lines(rows_of(30))
    file = file_of(tmp_path / "a", compress(data), compression=compression)
    assert len(sample_files([file], 1000, NAMES).rows) == 30
    damaged = file_of(tmp_path / "b", compress(data)[:20], compression=compression)
    assert sample_files([damaged], 1000, NAMES).rows == []
    assert expanded_bytes([file]) > file.size


def test_parquet_knows_its_rows_and_its_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows_of(5000, 50)), path, row_group_size=700)
    file = DataFile(path=str(path), format="parquet", size=path.stat().st_size)
    found = sample_files([file], 100, NAMES)
    assert (found.total_rows, found.row_group_rows, found.is_total_estimated) == (5000, 700, False)
    assert max(row["id"] for row in found.rows) > 4000
    broken = file_of(tmp_path / "b.parquet", b"PAR1", "parquet")
    assert sample_files([broken], 100, NAMES).rows == []


def test_csv_has_rows_too(tmp_path: Path) -> None:
    file = file_of(tmp_path / "a.csv", b'id,text\n1,"a\nb"\n2,c\n', "csv")
    found = sample_files([file], 100, NAMES)
    assert [row["text"] for row in found.rows] == ["a\nb", "c"]


def test_files_that_rows_name_count_with_them(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(bytes(5000))
    row = {"images": ["a.png", "gone.png"]}
    file = file_of(tmp_path / "a.jsonl", lines([row]))
    assert sample_files([file], 10, NAMES).sizes == [5000 + len(json.dumps(row))]


class Numbered(Sequence[dict[str, Any]]):
    def __len__(self) -> int:
        return 50_000

    def __getitem__(self, place: Any) -> Any:
        if place >= len(self):
            raise IndexError(place)
        return {"id": place, "text": "x"}


@pytest.mark.parametrize(
    "dataset", [Numbered(), pa.Table.from_pylist(list(Numbered()))], ids=["rows", "table"]
)
def test_rows_in_memory_are_sampled_from_all_over(dataset: Any) -> None:
    found = sample_of(dataset, NAMES)
    assert (len(found.rows), found.total_rows) == (500, 50_000)
    assert found.rows[0]["id"] < 100
    assert found.rows[-1]["id"] >= 49_900


def test_nothing_has_no_rows() -> None:
    assert sample_files([], 10, NAMES).total_rows == 0
    assert sample_of([], NAMES).rows == []
    assert sample_of(pa.table({"text": pa.array([], pa.string())}), NAMES).rows == []
