import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from joblens.data.files.datasets import check_fields, find_files
from joblens.data.files.input_stamps import changed_inputs, stamp_inputs
from joblens.model.errors import InputError

ROW = b'{"text": "a", "title": "t", "n": 1}\n'


def test_files_folders_and_patterns_are_found_in_order_and_once(tmp_path: Path) -> None:
    for name in (
        "b.jsonl",
        "a.jsonl.gz",
        "sub/c.ndjson",
        "sub/d.json.zst",
        ".hidden.jsonl",
        "_SUCCESS.csv",
        "x.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(ROW) if name.endswith(".gz") else ROW)
    (tmp_path / "sub" / "d.json.zst").write_bytes(pa.compress(ROW, "zstd", asbytes=True))
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "e.parquet")
    found = find_files([str(tmp_path / "b*"), str(tmp_path)])
    names = [Path(file.path).name for file in found]
    assert names == ["b.jsonl", "a.jsonl.gz", "e.parquet", "c.ndjson", "d.json.zst"]
    assert [(file.format, file.compression) for file in found] == [
        ("jsonl", ""),
        ("jsonl", "gzip"),
        ("parquet", ""),
        ("jsonl", ""),
        ("jsonl", "zstd"),
    ]


def test_only_files_with_the_wished_suffixes_are_taken_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(ROW)
    (tmp_path / "b.csv").write_bytes(b"text\na\n")
    assert [file.format for file in find_files([str(tmp_path)], ["csv"])] == ["csv"]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("docs.jsonI", "; did you mean docs.jsonl?"),
        ("doc.jsonl", "; did you mean docs.jsonl?"),
        ("nix.jsonl", "no such file or directory: .*nix.jsonl$"),
        ("s3://bucket/docs.jsonl", "is a URL$"),
        ("*.parquet", "no file matches"),
        ("docs.bin", "unknown format"),
        ("empty", "no supported files in"),
        ("not.parquet", "is not a Parquet file"),
    ],
)
def test_what_names_nothing_readable_is_refused(tmp_path: Path, written: str, message: str) -> None:
    (tmp_path / "docs.jsonl").write_bytes(ROW)
    (tmp_path / "docs.bin").write_bytes(ROW)
    (tmp_path / "not.parquet").write_bytes(ROW)
    (tmp_path / "empty").mkdir()
    pattern = written.replace("*", "q*")
    with pytest.raises(InputError, match=message):
        find_files([pattern if ":" in pattern else str(tmp_path / pattern)])


def test_an_array_is_reported_from_lines_by_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b' \n[{"text": "a"}]')
    (tmp_path / "b.json").write_bytes(ROW)
    assert [file.format for file in find_files([str(tmp_path)])] == ["json", "jsonl"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.parquet"])
def test_a_field_that_no_row_has_is_refused_with_the_nearest(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.table({"text": ["a"], "title": ["t"], "n": [1]}), path)
    elif name.endswith("csv"):
        path.write_bytes(b"text,title,n\na,t,1\n")
    else:
        path.write_bytes(gzip.compress(ROW) if name.endswith("gz") else ROW)
    files = find_files([str(path)])
    check_fields(files, ["text", "title"])
    with pytest.raises(InputError, match="rows have no field 'tixt'") as caught:
        check_fields(files, ["tixt"])
    assert "did you mean 'text'?" in caught.value.hint
    if not name.endswith("csv"):
        with pytest.raises(InputError, match="field 'n' is not text"):
            check_fields(files, ["n"])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["text", "n", "text"], "has a duplicate column 'text'"),
        (["text", "__line__"], "has a column '__line__', a name that joblens reserves"),
        (["text", "__stats__.text_len"], "has a column '__stats__.text_len'"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_that_cannot_be_worked_with_are_refused(
    tmp_path: Path, kind: str, names: list[str], message: str
) -> None:
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        path.write_text(",".join(names) + "\n" + ",".join("x" for _ in names) + "\n")
    else:
        pq.write_table(pa.Table.from_arrays([pa.array(["x"])] * len(names), names=names), path)
    with pytest.raises(InputError, match=message):
        check_fields(find_files([str(path)]), ["text"])


def test_inputs_that_changed_are_named(tmp_path: Path) -> None:
    small, large, gone = tmp_path / "small.jsonl", tmp_path / "large.jsonl", tmp_path / "gone.jsonl"
    for path, size in ((small, 100), (large, 5_000_000), (gone, 10)):
        path.write_bytes(b"x" * size)
    before = stamp_inputs([str(small), str(large), str(gone)])
    assert changed_inputs(before, stamp_inputs([str(small), str(large), str(gone)])) == []
    small.write_bytes(b"x" * 100)  # the same again
    content = bytearray(large.read_bytes())
    content[100_000] = 0  # between what is compared
    large.write_bytes(content)
    (tmp_path / "new.jsonl").write_bytes(b"")
    changes = changed_inputs(before, stamp_inputs([str(small), str(large), str(tmp_path / "new.jsonl")]))
    assert changes == [
        f"{large} was modified since",
        f"{gone} is no longer an input",
        f"{tmp_path / 'new.jsonl'} is new",
    ]
    small.write_bytes(b"y" * 100)
    (change,) = changed_inputs(before[:1], stamp_inputs([str(small)]))
    assert change == f"{small} has different content"
