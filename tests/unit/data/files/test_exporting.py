import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from joblens.data.base.job_folder import JobFolder
from joblens.data.files.export import PartManifest, assemble, export_format, is_whole, write_part
from joblens.data.files.json_lines_export import escaped, with_fields
from joblens.data.rows.batch import STATS_PREFIX, Rows, rows_of, with_column
from joblens.model.errors import InputError
from tests.unit.data.recipe_plans import partitions_of, plan_for, read

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
rows_with_text = st.lists(
    st.tuples(st.dictionaries(texts, values, max_size=4), texts).map(
        lambda pair: {**pair[0], "text": pair[1]}
    ),
    min_size=1,
    max_size=8,
)
anywhere = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50
)


def dataset(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def kept_rows(rows: Rows, keep: list[bool]) -> Rows:
    mask = pa.array(keep)
    return Rows(rows.batch.filter(mask), rows.ids.filter(mask))


def exported(
    path: Path, folder: Path, target: int, export: str, *, change: Any = None, **settings: Any
) -> tuple[list[Path], list[PartManifest]]:
    """A dataset through partitions and parts, with its text changed on the way."""
    plan = plan_for(folder / export, target, **settings)
    parts = []
    for partition in partitions_of([path], folder / "cut", target)[0]:
        rows = read(partition)[0]
        if change is not None:
            rows = Rows(with_column(rows.batch, "text", change(rows.column("text"))), rows.ids)
        part = write_part(
            rows, plan, str(folder / f"part_{partition.id}"), () if change is None else ("text",)
        )
        assert is_whole(part)
        parts.append(part)
    return [Path(name) for name in assemble(plan, parts).paths], parts


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_rows_that_nothing_changed_leave_to_the_byte_as_they_came(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(b'{ "n":12345678901234567890,"text" : "a\\u00e9\\/" }\n{"text": "b", "x": 1e400}\n')
    (export,), _ = exported(source, tmp_path, 1 << 20, "out.jsonl")
    assert export.read_bytes() == source.read_bytes()


def test_a_changed_text_is_put_back_where_it_was_and_nothing_else_changes(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(
        b'{"title":"abc","n":12345678901234567890, "text": "abc", "x":{"text":"abc"}}\n'
        b'{"text":"\\u00e9", "e":[ ]}\n'
    )
    (export,), _ = exported(source, tmp_path, 1 << 20, "out.jsonl", change=pc.utf8_upper)
    assert export.read_text() == (
        '{"title":"abc","n":12345678901234567890, "text": "ABC", "x":{"text":"abc"}}\n{"text":"É", "e":[ ]}\n'
    )


@anywhere
@given(rows=rows_with_text, target=st.integers(20, 2000))
def test_any_rows_with_changed_texts_come_out_as_they_should(
    tmp_path: Path, rows: list[dict[str, Any]], target: int
) -> None:
    source = dataset(tmp_path / "a.jsonl", rows)
    (export,), _ = exported(source, tmp_path, target, "out.jsonl", change=pc.utf8_reverse)
    expected = [{**row, "text": row["text"][::-1]} for row in rows]
    found = lines(export)
    assert found == expected
    assert [list(row) for row in found] == [list(row) for row in expected]


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]))
    | st.text(st.sampled_from('\\"\n\t\r\b\f\0\x1f\x7f a'))
)
def test_escaped_texts_are_read_as_what_they_were(text: str) -> None:
    (found,) = escaped(pa.array([text], pa.large_string())).to_pylist()
    assert json.loads(f'"{found}"') == text


@pytest.mark.parametrize(
    "line",
    [
        b'{"x": NaN, "text": "a"}\n',
        b'{"x": "\\ud800", "text": "a"}\n',
        b'{"x": 1, "text": "a"}\r\n',
        b' {"x": 1, "text": "a"} \n',
        b'{"x": 1, "text": "first", "text": "a"}\n',
    ],
)
def test_lines_that_are_not_plain_get_their_text_back_too(tmp_path: Path, line: bytes) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(line + b'{"text": "b"}\n')
    (export,), _ = exported(source, tmp_path, 1 << 20, "out.jsonl", change=pc.utf8_upper)
    found = lines(export)
    assert [row["text"] for row in found] == ["A", "B"]
    assert str(found[0]["x"]) == str(json.loads(line)["x"])


ODD_LINES = (
    b'{ "text" : "a" , "n": 1 , "n": 2}\r\n',
    b'{"text":"b\\u00e9\\/","x":"\\u00e9"}\n',
    b'{"x": NaN, "text" : "c\\n", "y": "\xc3\xa9"}\n',
    b' {"x": "\\ud800", "text": "C\\u00c9"} \n',
    b'{"text": "d", "text": "\\u0044\\u0001"}\n',
    b'{"text":"plain","z":[1.0, 2]}\n',
)


def upper_where_odd(texts: Any) -> Any:
    """Some rows change, some do not."""
    return pc.if_else(pc.starts_with(texts, "c"), pc.utf8_upper(texts), texts)


def test_what_a_line_leaves_as_does_not_depend_on_its_neighbours(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(b"".join(ODD_LINES) * 20)
    expected = b"".join(ODD_LINES).replace(b'"c\\n"', b'"C\\n"') * 20
    for target in (1, 150, 1 << 20):
        found = b""
        for partition in partitions_of([source], tmp_path, target)[0]:
            rows = read(partition)[0]
            batch = with_column(rows.batch, "text", upper_where_odd(rows.column("text")))
            part = write_part(Rows(batch, rows.ids), plan_for("o.jsonl"), str(tmp_path / "part"), ["text"])
            found += Path(part.path).read_bytes()
        assert found == expected


@given(text=texts)
def test_a_text_is_written_the_same_all_at_once_and_line_by_line(text: str) -> None:
    (at_once,) = escaped(pa.array([text], pa.large_string())).to_pylist()
    assert with_fields(b'{"text": ""}\n', {"text": f"a{text}"}, {}) == f'{{"text": "a{at_once}"}}\n'.encode()


def test_numbers_of_filters_are_put_behind_everything_else_in_a_line() -> None:
    line = b'{ "text": "a", "n": 1, "n": 2 }\r\n'
    assert with_fields(line, {"text": "a"}, {"len": 1}) == (
        b'{ "text": "a", "n": 1, "n": 2,"__dj__stats__":{"len":1}}\r\n'
    )
    again = with_fields(b'{"__dj__stats__": {"len": 5, "big": 1}, "x": NaN}\n', {}, {"len": 1})
    assert again == b'{"__dj__stats__": {"len":1,"big":1}, "x": NaN}\n'


@pytest.mark.parametrize(
    "texts", [pa.array(["x", None]), pa.array(["x", "y"]), pa.array([1, 2]), pa.array([["x"], []])]
)
def test_a_field_may_come_back_in_another_type(tmp_path: Path, texts: Any) -> None:
    source = dataset(tmp_path / "a.jsonl", [{"text": "a", "n": 1}, {"text": "b", "n": 2}])
    (export,), _ = exported(source, tmp_path, 1 << 20, "out.jsonl", change=lambda _: texts)
    assert lines(export) == [{"text": text, "n": n} for n, text in enumerate(texts.to_pylist(), 1)]


def test_several_changed_fields_and_a_new_one_are_put_back(tmp_path: Path) -> None:
    source = dataset(tmp_path / "a.jsonl", [{"text": "a", "n": 1, "title": "t"}])
    rows = read(partitions_of([source], tmp_path, 1 << 20)[0][0], "text", "title")[0]
    batch = with_column(rows.batch, "title", pa.array(["T"], pa.large_string()))
    batch = with_column(batch, "length", pa.array([1]))
    part = write_part(
        Rows(batch, rows.ids), plan_for("o.jsonl"), str(tmp_path / "part"), {"text", "title", "length"}
    )
    assert lines(Path(part.path)) == [{"text": "a", "n": 1, "title": "T", "length": 1}]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("keep_stats", [False, True])
def test_numbers_of_filters_leave_only_when_they_are_to_be_kept(
    tmp_path: Path, kind: str, keep_stats: bool
) -> None:
    source = dataset(tmp_path / "a.jsonl", [{"text": "a"}])
    rows = read(partitions_of([source], tmp_path, 1 << 20)[0][0])[0]
    rows = Rows(with_column(rows.batch, f"{STATS_PREFIX}text_len", pa.array([1])), rows.ids)
    table = rows_of(rows.batch.drop_columns(["__line__"]))
    for number, each in enumerate((rows, table)):
        plan = plan_for(tmp_path / f"{number}.{kind}", keep_stats=keep_stats)
        (path,) = assemble(plan, [write_part(each, plan, str(tmp_path / "part"))]).paths
        found = lines(Path(path)) if kind == "jsonl" else pq.read_table(path).to_pylist()
        assert found == [{"text": "a", "__dj__stats__": {"text_len": 1}} if keep_stats else {"text": "a"}]


def test_rows_of_tables_become_json(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "text": pa.array(["a\n", "b"], pa.large_string()),
            "n": pa.array([None, 2]),
            "at": pa.array([0, 1], pa.timestamp("ns")),
            "on": pa.array([dt.date(2026, 1, 2)] * 2),
            "images": pa.array([["x.jpg"], []], pa.list_(pa.string())),
        }
    )
    part = write_part(rows_of(batch), plan_for("o.jsonl"), str(tmp_path / "part"))
    first, second = lines(Path(part.path))
    assert first["text"] == "a\n"
    assert (first["n"], second["n"]) == (None, 2)
    assert second["at"] == "1970-01-01 00:00:00.000000001"
    assert (first["on"], first["images"]) == ("2026-01-02", ["x.jpg"])


@anywhere
@given(rows=rows_with_text, target=st.integers(20, 400))
@example(rows=[{"x": [0.0], "text": ""}, {"x": [False], "text": ""}], target=20)
@example(rows=[{"x": [2**60], "text": ""}, {"x": [0.5], "text": ""}], target=20)
@example(rows=[{"x": {}, "text": ""}, {"x": {"a": 1}, "text": ""}], target=20)
def test_parquet_of_json_rows_does_not_depend_on_how_they_were_cut(
    tmp_path: Path, rows: list[dict[str, Any]], target: int
) -> None:
    source = dataset(tmp_path / "a.jsonl", rows)
    (one,), _ = exported(source, tmp_path, 1 << 20, "one.parquet", change=pc.utf8_reverse)
    (many,), _ = exported(source, tmp_path, target, "many.parquet", change=pc.utf8_reverse)
    assert pq.read_table(one).schema == pq.read_table(many).schema
    assert one.read_bytes() == many.read_bytes()
    assert pq.read_table(one).column("text").to_pylist() == [row["text"][::-1] for row in rows]


def test_fields_of_several_types_become_text_and_others_the_widest(tmp_path: Path) -> None:
    rows = [
        {"text": "a", "n": 1, "mixed": 1, "big": 2**60, "meta": {"a": 1}, "none": {}},
        {"text": "b", "n": 2.5, "mixed": "x", "big": 0.5, "meta": {"b": [1]}, "none": {}},
        {"text": "c", "extra": True, "mixed": [1, 2]},
    ]
    source = dataset(tmp_path / "a.jsonl", rows)
    (export,), parts = exported(source, tmp_path, 20, "out.parquet")
    assert len(parts) == 3
    first, second, third = pq.read_table(export).to_pylist()
    assert [row["n"] for row in (first, second, third)] == [1.0, 2.5, None]
    assert [row["mixed"] for row in (first, second, third)] == ["1", "x", "[1,2]"]
    assert (first["big"], second["big"]) == ("1152921504606846976", "0.5")
    assert (first["meta"], second["meta"]) == ({"a": 1, "b": None}, {"a": None, "b": [1]})
    assert (first["none"], third["none"], third["extra"]) == ("{}", None, True)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_parquet_rows_leave_with_their_columns(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "a.parquet"
    table = pa.table({"text": [f"t{n}" for n in range(100)], "n": pa.array(range(100), pa.int32())})
    pq.write_table(table, source, row_group_size=30)
    (export,), parts = exported(source, tmp_path, 300, f"out.{kind}")
    assert len(parts) > 1
    found = lines(export) if kind == "jsonl" else pq.read_table(export).to_pylist()
    assert found == table.to_pylist()
    if kind == "parquet":
        assert pq.read_schema(export).field("n").type == pa.int32()


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_shards_have_the_names_that_are_used_elsewhere_and_all_rows_in_order(
    tmp_path: Path, kind: str
) -> None:
    source = dataset(tmp_path / "a.jsonl", [{"text": f"{n:03d}"} for n in range(100)])
    paths, _ = exported(source, tmp_path, 500, f"out.v1.{kind}", export_shard_bytes=300)
    count = 100 * 16 // 300 + 1
    assert [path.name for path in paths] == [f"out-{n:02d}-of-{count:02d}.{kind}" for n in range(count)]
    found = [lines(path) if kind == "jsonl" else pq.read_table(path).to_pylist() for path in paths]
    assert [len(shard) for shard in found] == [17, 17, 17, 17, 16, 16]
    assert [row["text"] for shard in found for row in shard] == [f"{n:03d}" for n in range(100)]


def test_an_export_takes_the_place_of_an_earlier_one_with_other_shards(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    source = dataset(tmp_path / "a.jsonl", [{"text": f"{n:03d}"} for n in range(100)])
    rows = read(partitions_of([source], tmp_path, 1 << 20)[0][0])[0]
    others = ["x-00-of-01.jsonl", "x-00-of-09.jsonl"]
    for name in others:
        (folder / name).write_text("somebody else's\n")
    for number, (name, shard) in enumerate([("x", 300), ("x", 800), ("x", 0), ("x", 300), ("x.2", 0)]):
        job = JobFolder(str(tmp_path / "jobs" / str(number)))
        job.make()
        plan = replace(plan_for(folder / f"{name}.jsonl", export_shard_bytes=shard), job_dir=job.path)
        export = assemble(plan, [write_part(rows, plan, str(tmp_path / "part"), ())])
        sizes = {path: os.path.getsize(path) for path in export.paths}
        Path(job.export_manifest).write_bytes(msgspec.json.encode({"export": export, "sizes": sizes}))
        names = [os.path.basename(path) for path in export.paths]
        if name == "x":
            assert sorted(os.listdir(folder)) == sorted([*others, *names])
    assert len(os.listdir(folder)) == len(others) + 6 + 1  # another path: the shards of x are none of its


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("shard", [0, 100])
def test_an_export_of_no_rows_is_a_file_without_rows(tmp_path: Path, kind: str, shard: int) -> None:
    plan = plan_for(tmp_path / f"out.{kind}", export_shard_bytes=shard)
    rows = read(partitions_of([dataset(tmp_path / "a.jsonl", [{"text": "a"}])], tmp_path, 100)[0][0])[0]
    none = kept_rows(rows, [False])
    export = assemble(plan, [write_part(none, plan, str(tmp_path / "part"))])
    (path,) = export.paths
    assert export.rows == 0
    assert os.path.getsize(path) == 0 or pq.read_table(path).num_rows == 0


def test_an_export_that_was_there_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    source = dataset(tmp_path / "a.jsonl", [{"text": "a"}])
    target = tmp_path / "out" / "x.jsonl"
    (export,), parts = exported(source, tmp_path, 100, "out/x.jsonl")
    plan = plan_for(target)
    before = export.read_bytes()
    os.unlink(parts[0].path)
    with pytest.raises(OSError, match="part_0"):
        assemble(plan, parts)
    assert export.read_bytes() == before
    assert os.listdir(tmp_path / "out") == ["x.jsonl"]


def test_a_part_that_is_torn_or_changed_is_not_whole(tmp_path: Path) -> None:
    _, (part,) = exported(dataset(tmp_path / "a.jsonl", [{"text": "abc"}]), tmp_path, 100, "o.jsonl")
    data = Path(part.path).read_bytes()
    assert os.stat(part.path).st_mode & 0o777 == 0o600
    Path(part.path).write_bytes(data[:-1])
    assert not is_whole(part)
    Path(part.path).write_bytes(data.replace(b"b", b"d"))
    assert not is_whole(part)
    os.unlink(part.path)
    assert not is_whole(part)


def test_the_format_is_what_the_recipe_says_or_the_path_ends_in() -> None:
    assert export_format(plan_for("a.jsonl").recipe) == "jsonl"
    assert export_format(plan_for("a", export_type="parquet").recipe) == "parquet"
    with pytest.raises(InputError, match=r"'\.txt' is not a supported export format"):
        export_format(plan_for("a.txt").recipe)


def test_filtered_rows_leave_without_the_others(tmp_path: Path) -> None:
    source = dataset(tmp_path / "a.jsonl", [{"text": str(n), "n": n} for n in range(50)])
    rows: Rows = read(partitions_of([source], tmp_path, 1 << 20)[0][0])[0]
    kept = kept_rows(rows, [n % 3 == 0 for n in range(50)])
    plan = plan_for(tmp_path / "o.jsonl")
    for changed in ((), ("text",)):
        part = write_part(kept, plan, str(tmp_path / "part"), changed)
        assert [row["n"] for row in lines(Path(part.path))] == list(range(0, 50, 3))
        assert part.rows == 17


@pytest.mark.parametrize(("count", "shards"), [(100, 6), (1, 1), (0, 1)])
def test_an_export_to_json_is_an_array_in_each_file(tmp_path: Path, count: int, shards: int) -> None:
    source = dataset(tmp_path / "in.jsonl", [{"text": f"{n:03d}"} for n in range(count)])
    paths, _ = exported(source, tmp_path, 500, "out.json", export_shard_bytes=300 if count > 1 else 0)
    assert len(paths) == shards
    rows = [row for path in paths for row in json.loads(path.read_bytes())]
    assert [row["text"] for row in rows] == [f"{n:03d}" for n in range(count)]
