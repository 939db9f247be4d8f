import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from joblens.data.files.partition_rows import origins_of, read_partition
from joblens.data.rows.batch import LINE
from joblens.model.recipes.recipe import Partition, Slice
from tests.unit.data.recipe_plans import read, whole


def lines(path: Path, *written: bytes) -> Path:
    path.write_bytes(b"".join(written))
    return path


def test_wanted_fields_become_columns_and_lines_stay_as_they_came(tmp_path: Path) -> None:
    first, second = b'{"id": 12345678901234567890, "text":"a\\u00e9"}\n', b'{"text": "b", "x": [1.0]}\n'
    rows, rejects = read(whole(lines(tmp_path / "a.jsonl", first, second)))
    assert rows.column("text").to_pylist() == ["aé", "b"]
    assert rows.column(LINE).to_pylist() == [first, second]
    assert rows.column("text").type == pa.large_string()
    assert rows.ids.to_pylist() == [0, 1]
    assert not rejects


def test_lines_are_not_copied(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", *[b'{"text": "abc"}\n'] * 1000)
    before = pa.total_allocated_bytes()
    rows, _ = read(whole(path))
    line_data = rows.column(LINE).buffers()[2]
    assert line_data.size == 16_000
    assert pa.total_allocated_bytes() - before < 16_000


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    rows, rejects = read(whole(lines(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"text": "a"}\n')))
    assert (rows.count, rejects) == (1, [])


def test_a_last_line_without_its_end_is_a_row(tmp_path: Path) -> None:
    rows, _ = read(whole(lines(tmp_path / "a.jsonl", b'{"text": "a"}\n', b'{"text": "b"}')))
    assert rows.column(LINE).to_pylist() == [b'{"text": "a"}\n', b'{"text": "b"}\n']


def test_blank_lines_are_no_rows_and_no_rejects(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", b"\n", b'{"text": "a"}\n', b"  \t\r\n", b'{"text": "b"}\r\n', b"\n")
    rows, rejects = read(whole(path))
    assert rows.column("text").to_pylist() == ["a", "b"]
    assert not rejects


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    rows, rejects = read(whole(lines(tmp_path / "a.jsonl", b"")))
    assert (rows.count, rejects) == (0, [])
    assert rows.batch.schema.names == ["text", LINE]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "a"', "not JSON: unexpected end of line after character 12"),
        (b'{"id": 4, "text": "eng', "not JSON: unterminated string starting at character 19"),
        (b'{"id": 4, "text": "eng\r', "not JSON: unterminated string starting at character 19"),
        (b'{"text": "a"} {"text": "b"}', "not JSON: extra data at character 15"),
        (b"[1, 2]", "a list, expected an object"),
        (b'"text"', "a string, expected an object"),
        (b'{"other": 1}', "missing field 'text'"),
        (b'{"text": null}', "field 'text' is null, expected a string"),
        (b'{"text": 7}', "field 'text' is a number, expected a string"),
        (b'{"text": ["a"]}', "field 'text' is a list, expected a string"),
        (b'{"text": "\\ud800"}', "field 'text' has an unpaired surrogate"),
        (b'{"text": "a\xff"}', "not UTF-8: byte 0xff at 11"),
        (b'{"text": "a", "b": "\xff"}', "not UTF-8: byte 0xff at 20"),
        (b'{"text": "a\x01"}', "not JSON: invalid control character at character 12"),
        (b'{"text": "a", "b": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", "nested too deeply"),
    ],
)
def test_a_broken_row_is_rejected_with_its_reason_and_place(tmp_path: Path, line: bytes, reason: str) -> None:
    path = lines(tmp_path / "a.jsonl", b'{"text": "before"}\n', line + b"\n", b'{"text": "behind"}\n')
    rows, (reject,) = read(whole(path))
    assert rows.column("text").to_pylist() == ["before", "behind"]
    assert rows.ids.to_pylist() == [0, 1]
    assert reject.reason.startswith(reason)
    assert (reject.source, reject.position, reject.byte) == (str(path), 2, 19)
    assert reject.row == line + b"\n"


@pytest.mark.parametrize("value", ["NaN", "-Infinity", '"\\ud800"'])
def test_what_only_python_reads_in_another_field_is_no_reason_to_reject(tmp_path: Path, value: str) -> None:
    rows, rejects = read(whole(lines(tmp_path / "a.jsonl", f'{{"text": "a", "x": {value}}}\n'.encode())))
    assert (rows.count, rejects) == (1, [])


def test_an_object_over_two_lines_is_never_taken_for_a_row(tmp_path: Path) -> None:
    """Three lines with three objects, but one line has two of them and one object goes over two lines."""
    path = lines(tmp_path / "a.jsonl", b'{"text": "a"}{"text": "b"}\n', b'{"text":\n', b'"c"}\n')
    rows, rejects = read(whole(path))
    assert rows.count == 0
    assert [reject.position for reject in rejects] == [1, 2, 3]


def test_several_fields_can_be_wanted_and_none(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", b'{"text": "a", "title": "t"}\n', b'{"text": "b"}\n')
    rows, (reject,) = read(whole(path), "title", "text")
    assert rows.batch.schema.names == ["title", "text", LINE]
    assert reject.reason == "missing field 'title'"
    assert read_partition(whole(path), (), print).count == 2


def test_slices_of_several_files_are_one_run_of_rows(tmp_path: Path) -> None:
    one = lines(tmp_path / "a.jsonl", b'{"text": "a"}\n', b"broken\n", b'{"text": "b"}')
    two = lines(tmp_path / "b.jsonl", b'{"text": "c"}\n', b'{"text": "d"}\n')
    slices = (
        Slice(path=str(one), format="jsonl", start=14, end=one.stat().st_size),
        Slice(path=str(two), format="jsonl", end=14),
    )
    partition = Partition(id=3, slices=slices, size_bytes=1)
    rows, (reject,) = read(partition)
    assert rows.column("text").to_pylist() == ["b", "c"]
    assert rows.column(LINE).to_pylist() == [b'{"text": "b"}\n', b'{"text": "c"}\n']
    assert (reject.position, reject.byte) == (2, 14)


def test_the_place_of_a_row_is_found_again(tmp_path: Path) -> None:
    one = lines(tmp_path / "a.jsonl", b"broken\n", b"\n", b'{"text": "a"}\n')
    two = lines(tmp_path / "b.jsonl", b'{"text": "b"}\n', b"{}\n", b'{"text": "c"}\n')
    slices = tuple(Slice(path=str(path), format="jsonl", end=path.stat().st_size) for path in (one, two))
    places = origins_of(Partition(id=0, slices=slices, size_bytes=1), ["text"], [2, 0])
    assert [(place.source, place.position) for place in places] == [(str(two), 3), (str(one), 3)]


def test_rows_of_parquet_have_all_columns_and_those_without_text_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table(
        {"text": ["a", None, "c"], "n": [1, 2, 3], "tag": pa.array(["x", "y", "x"]).dictionary_encode()}
    )
    pq.write_table(table, path, row_group_size=1)
    partition = Partition(
        id=0, slices=(Slice(path=str(path), format="parquet", start=1, end=3),), size_bytes=1
    )
    rows, (reject,) = read(partition)
    assert rows.batch.to_pylist() == [{"text": "c", "n": 3, "tag": "x"}]
    assert rows.column("text").type == pa.large_string()
    assert (reject.source, reject.position, reject.reason) == (
        str(path),
        2,
        "field 'text' is null, expected a string",
    )
    assert origins_of(partition, ["text"], [0])[0].position == 3


def test_many_rows_with_some_broken_ones_keep_their_order(tmp_path: Path) -> None:
    written = [json.dumps({"text": f"{n} " + "x" * (n % 700)}).encode() + b"\n" for n in range(9000)]
    for place in (0, 4000, 4001, 8999):
        written[place] = b"{\n"
    rows, rejects = read(whole(lines(tmp_path / "a.jsonl", *written)))
    numbers = [int(text.split()[0]) for text in rows.column("text").to_pylist()]
    assert numbers == [n for n in range(9000) if n not in (0, 4000, 4001, 8999)]
    assert rows.column(LINE).to_pylist() == [line for line in written if line != b"{\n"]
    assert [reject.position for reject in rejects] == [1, 4001, 4002, 9000]
