import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joblens.data.files import cutting
from joblens.data.files.cutting import CutWish, plan_partitions
from joblens.data.files.datasets import find_files
from joblens.data.files.partition_rows import origins_of
from joblens.data.rows.batch import LINE
from joblens.model.errors import InputError
from joblens.model.recipes.recipe import Partition
from tests.unit.data.recipe_plans import partitions_of, read

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def content(partitions: list[Partition]) -> list[str]:
    found: list[str] = []
    for partition in partitions:
        found += read(partition)[0].column("text").to_pylist()
    return found


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    files=st.lists(st.lists(texts, max_size=12), min_size=1, max_size=4),
    target=st.integers(1, 400),
    rows=st.none() | st.integers(1, 7),
    at_least=st.integers(1, 9),
    has_end=st.booleans(),
)
def test_however_json_lines_are_cut_every_row_is_in_one_partition_in_order(
    tmp_path: Path, files: list[list[str]], target: int, rows: int | None, at_least: int, has_end: bool
) -> None:
    paths = []
    for number, written in enumerate(files):
        data = b"\n".join(json.dumps({"text": text}, ensure_ascii=False).encode() for text in written)
        paths.append(str(tmp_path / f"{number}.jsonl"))
        Path(paths[-1]).write_bytes(data + b"\n" if has_end and written else data)
    partitions, uncut = plan_partitions(
        find_files(paths), CutWish(target_bytes=target, rows=rows, at_least=at_least)
    )
    assert content(list(partitions)) == [text for written in files for text in written]
    assert [partition.id for partition in partitions] == list(range(len(partitions)))
    assert all(read(partition)[0].count for partition in partitions)
    assert not uncut
    if rows:
        assert all(read(partition)[0].count == rows for partition in partitions[:-1])


def test_partitions_are_of_one_size_and_as_many_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(b'{"text": "%06d"}\n' % number for number in range(10_000)))
    size = path.stat().st_size
    partitions, _ = plan_partitions(find_files([str(path)]), CutWish(target_bytes=size, at_least=7))
    assert len(partitions) == 7
    sizes = [partition.size_bytes for partition in partitions]
    assert max(sizes) - min(sizes) <= 34
    assert sum(sizes) == size


def test_small_files_go_together(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02d}.jsonl").write_bytes(b'{"text": "a"}\n')
    partitions, _ = plan_partitions(find_files([str(tmp_path)]), CutWish(target_bytes=140))
    assert [len(partition.slices) for partition in partitions] == [10, 10]


def test_a_line_longer_than_a_partition_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "%s"}\n{"text": "b"}\n' % (b"x" * 5000))
    partitions, _ = plan_partitions(find_files([str(path)]), CutWish(target_bytes=100))
    assert content(list(partitions)) == ["x" * 5000, "b"]
    assert len(partitions) == 2


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    groups=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    target=st.integers(200, 5000),
    rows=st.none() | st.integers(1, 20),
)
def test_however_parquet_is_cut_every_row_is_in_one_partition_in_order(
    tmp_path: Path, groups: list[int], target: int, rows: int | None
) -> None:
    path = tmp_path / "a.parquet"
    schema = pa.schema([("text", pa.string())])
    number = 0
    with pq.ParquetWriter(path, schema) as writer:
        for count in groups:
            texts = [f"{n:020d}" for n in range(number, number + count)]
            writer.write_table(pa.table({"text": texts}, schema=schema))
            number += count
    partitions, _ = plan_partitions(find_files([str(path)]), CutWish(target_bytes=target, rows=rows))
    assert [int(text) for text in content(list(partitions))] == list(range(number))
    assert sum(partition.rows or 0 for partition in partitions) == number
    assert partitions[0].first_row == 0


def test_a_large_row_group_is_cut_by_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"{n:0100d}" for n in range(1000)]}), path, use_dictionary=False)
    partitions, _ = plan_partitions(find_files([str(path)]), CutWish(target_bytes=26_000))
    assert [partition.rows for partition in partitions] == [250] * 4
    assert [partition.first_row for partition in partitions] == [0, 250, 500, 750]


def test_parquet_files_with_other_columns_get_partitions_of_their_own(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["b"], "n": [1]}), tmp_path / "b.parquet")
    partitions, _ = plan_partitions(find_files([str(tmp_path)]), CutWish(target_bytes=1 << 20))
    assert [read(partition)[0].batch.to_pylist() for partition in partitions] == [
        [{"text": "a"}],
        [{"text": "b", "n": 1}],
    ]


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize(("target", "rows"), [(50, None), (1 << 20, None), (1 << 20, 3)])
def test_compressed_lines_are_cut_into_pieces(
    tmp_path: Path, ending: str, target: int, rows: int | None
) -> None:
    data = b"".join(b'{"text": "%d"}\n' % number for number in range(10)) + b"broken"
    packed = gzip.compress(data) if ending == ".gz" else pa.compress(data, "zstd", asbytes=True)
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(packed)
    partitions, _ = partitions_of([path], tmp_path / "job", target, rows)
    assert content(partitions) == [str(number) for number in range(10)]
    (reject,) = read(partitions[-1])[1]
    assert (reject.source, reject.position) == (str(path), 11)
    assert origins_of(partitions[-1], ["text"], [0])[0].source == str(path)
    if rows:
        assert [read(partition)[0].count for partition in partitions] == [3, 3, 3, 1]
    else:
        assert (len(partitions) > 1) == (target == 50)


def test_a_torn_compressed_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "a"}\n' * 100_000)[:-500])
    with pytest.raises(InputError, match=r"a\.jsonl\.gz cannot be read to the end"):
        partitions_of([path], tmp_path / "job", 1 << 20)


def test_rows_of_a_json_array_become_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"text": "a",\n  "n": 1},\n {"text": "b"}]')
    partitions, _ = partitions_of([path], tmp_path / "job", 1 << 20)
    lines = read(partitions[0])[0].column(LINE).to_pylist()
    assert [json.loads(line) for line in lines] == [{"text": "a", "n": 1}, {"text": "b"}]


CSV = (
    b"\xef\xbb\xbfid,zip,text,score,ok\r\n"
    b'1,007,"a, ""quoted""\r\nline",1,true\r\n'
    b"2,1,,2.5,false\r\n"
    b"3,2\r\n"
    b'4,3,"",,\r\n'
    b"5,4,b\xff,4,true\r\n"
    b"6,5,last,5,false"
)


@pytest.mark.parametrize("target", [40, 1 << 20])
def test_csv_has_the_same_types_and_places_however_it_is_cut(tmp_path: Path, target: int) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(CSV)
    partitions, rejects = partitions_of([path], tmp_path / "job", target)
    rows, more = [], []
    for partition in partitions:
        found, bad = read(partition)
        rows += found.batch.to_pylist()
        more += bad
    assert rows == [
        {"id": 1, "zip": "007", "text": 'a, "quoted"\r\nline', "score": 1.0, "ok": True},
        {"id": 6, "zip": "5", "text": "last", "score": 5.0, "ok": False},
    ]
    assert [(reject.position, reject.reason) for reject in rejects] == [
        (3, "2 values for 5 columns"),
        (5, "not UTF-8"),
    ]
    assert [(reject.source, reject.position) for reject in more] == [(str(path), 2), (str(path), 4)]
    last = read(partitions[-1])[0].count - 1
    assert origins_of(partitions[-1], ["text"], [last])[0].position == 6


def test_a_tab_separates_the_columns_of_tsv_and_compressed_csv_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"text\tn\na,b\t1\n"))
    partitions, _ = partitions_of([path], tmp_path / "job", 1 << 20)
    assert read(partitions[0])[0].batch.to_pylist() == [{"text": "a,b", "n": 1}]


def test_a_csv_of_nothing_but_its_header_has_no_partitions(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,n\n")
    assert partitions_of([path], tmp_path / "job", 1 << 20) == ([], [])


def typed(tmp_path: Path, *values: str) -> list[object]:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,x\n" + b"".join(b"t,%s\n" % value.encode() for value in values) + b"bad\xff,y\n")
    partitions, rejects = partitions_of([path], tmp_path / "job", 1 << 20)
    assert [reject.position for reject in rejects] == [len(values) + 1]
    return [row["x"] for row in read(partitions[0])[0].batch.to_pylist()]


@pytest.mark.parametrize(
    "values",
    [
        ("1234567890123456789", "9223372036854775807", "-9223372036854775808"),
        ("1",),
    ],
)
def test_whole_numbers_of_csv_stay_what_they_are(tmp_path: Path, values: tuple[str, ...]) -> None:
    assert typed(tmp_path, *values) == [int(value) for value in values]


@pytest.mark.parametrize(
    "values", [("1.5", "2", "-1e5"), ("0.30000000000000004",), ("123456789012345", "0.5")]
)
def test_numbers_of_csv_that_doubles_hold_are_doubles(tmp_path: Path, values: tuple[str, ...]) -> None:
    assert typed(tmp_path, *values) == [float(value) for value in values]


@pytest.mark.parametrize(
    "values",
    [
        ("9223372036854775808", "1"),
        ("1234567890123456789", "0.5"),
        ("1e400", "1"),
        ("0.1234567890123456789", "1"),
        ("007", "1"),
    ],
)
def test_numbers_of_csv_that_no_type_holds_stay_text(tmp_path: Path, values: tuple[str, ...]) -> None:
    assert typed(tmp_path, *values) == list(values)


def test_a_csv_may_have_a_column_of_any_name_that_jobs_do_not_need(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,__row__,__row___\na,1,2\nb\n,3,4\n")
    partitions, _ = partitions_of([path], tmp_path / "job", 1 << 20)
    rows, (reject,) = read(partitions[0])
    assert rows.batch.to_pylist() == [{"text": "a", "__row__": 1, "__row___": 2}]
    assert reject.position == 3


def test_large_row_groups_are_cut_into_pieces_that_know_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "_LARGE_GROUP_BYTES", 1000)
    path = tmp_path / "a.parquet"
    texts = [None if n == 777 else f"{n:0100d}" for n in range(1000)]
    kinds = pa.array([f"k{n % 3}" for n in range(1000)]).dictionary_encode()
    table = pa.table({"text": texts, "kind": kinds, "more": [{"n": n} for n in range(1000)]})
    pq.write_table(table, path, row_group_size=400)
    _, uncut = plan_partitions(find_files([str(path)]), CutWish(target_bytes=10_000))
    assert [(piece.start, piece.end) for piece in uncut] == [(0, 400), (400, 800), (800, 1000)]
    partitions, _ = partitions_of([path], tmp_path / "job", 10_000)
    assert len(partitions) > 8
    found = [read(partition) for partition in partitions]
    rows = [row for each, _ in found for row in each.batch.to_pylist()]
    assert rows == [row for row in table.to_pylist() if row["text"] is not None]
    (reject,) = [reject for _, rejects in found for reject in rejects]
    assert (reject.source, reject.position) == (str(path), 778)


KINDS = ["a.jsonl", "a.jsonl.gz", "a.csv", "a.parquet", "a.json"]


def hundred_rows(path: Path, first: int = 0) -> Path:
    """Of very different lengths."""
    rows = [{"text": f"{n:03d}" + "x" * (n * n % 97)} for n in range(first, first + 100)]
    lines = [json.dumps(row) for row in rows]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=30)
    elif path.suffix == ".csv":
        path.write_text("text\n" + "".join(f"{row['text']}\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(f"[{','.join(lines)}]")
    else:
        data = "\n".join(lines).encode()  # without a last line end
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("exactly", [1, 7, 64, 100, 1000])
def test_there_are_exactly_as_many_partitions_as_wished(tmp_path: Path, name: str, exactly: int) -> None:
    paths = [hundred_rows(tmp_path / name), hundred_rows(tmp_path / f"b{name}", 100)]
    partitions, _ = partitions_of(paths, tmp_path / "job", 1000, exactly=exactly)
    assert len(partitions) == min(exactly, 200)
    assert [partition.id for partition in partitions] == list(range(len(partitions)))
    assert [int(text[:3]) for text in content(partitions)] == list(range(200))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("rows", [1, 30, 100, 150, 500])
def test_partitions_have_exactly_as_many_rows_as_wished(tmp_path: Path, name: str, rows: int) -> None:
    paths = [hundred_rows(tmp_path / name), hundred_rows(tmp_path / f"b{name}", 100)]
    partitions, _ = partitions_of(paths, tmp_path / "job", 1 << 20, rows=rows)
    counts = [read(partition)[0].count for partition in partitions]
    assert counts == [rows] * (200 // rows) + ([200 % rows] if 200 % rows else [])
    assert [int(text[:3]) for text in content(partitions)] == list(range(200))


def test_plain_files_around_a_compressed_one_keep_their_partitions_and_all_rows_their_order(
    tmp_path: Path,
) -> None:
    paths = [hundred_rows(tmp_path / name, first) for name, first in (("a.jsonl", 0), ("b.jsonl.gz", 100))]
    paths.append(hundred_rows(tmp_path / "c.jsonl", 200))
    alone, _ = partitions_of(paths[:1], tmp_path / "job", 1 << 20, at_least=10)
    wish = CutWish(target_bytes=len(paths[0].read_bytes()) // 4)
    planned, (_,) = plan_partitions(find_files([str(path) for path in paths]), wish)
    found, _ = partitions_of(paths, tmp_path / "job", wish.target_bytes)
    assert len(alone) == 10
    plain = [partition.slices for partition in found if not partition.slices[0].origin]
    assert plain == [partition.slices for partition in planned]
    assert [int(text[:3]) for text in content(found)] == list(range(300))
    several, _ = partitions_of(paths, tmp_path / "job", 1 << 20, at_least=10)
    assert len(several) >= 10


def test_lines_behind_a_cut_in_a_piece_are_reported_by_their_line_in_the_compressed_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "a"}\n' * 99 + b"broken\n"))
    partitions, _ = partitions_of([path], tmp_path / "job", 1 << 20, exactly=5)
    assert [reject.position for reject in read(partitions[-1])[1]] == [100]
