"""Dataset files: discovery, format, and decompression."""

import contextlib
import difflib
import glob
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import msgspec
from msgspec import Struct

from joblens.model.errors import InputError
from joblens.model.recipes.recipe import Slice

_FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",  # or one array: decided by its first character
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
}
_COMPRESSIONS = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_RELATIVE = "relative paths start at the current directory, not at the recipe"
_KNOWN = ".jsonl, .ndjson, .json, .csv and .tsv, each also with .gz or .zst, and .parquet"
_PARQUET_MAGIC = b"PAR1"
_BOM = b"\xef\xbb\xbf"
_HEAD_BYTES = 4 << 20
_HEAD_ROWS = 100


class DataFile(Struct, frozen=True, kw_only=True):
    path: str
    format: str  # jsonl, json (one array), parquet, csv
    compression: str = ""  # gzip, zstd
    size: int
    delimiter: str = ""  # of CSV; "": by file extension


def find_files(
    dataset_path: Sequence[str], suffixes: Sequence[str] = (), delimiter: str = ""
) -> tuple[DataFile, ...]:
    """Returns all files that the paths, folders and patterns match, in processing order.

    Raises InputError if one matches nothing, or for a file of unknown format.
    """
    extensions = tuple(suffix if suffix.startswith(".") else f".{suffix}" for suffix in suffixes)
    found: dict[str, DataFile] = {}
    for written in dataset_path:
        for path in _paths_of(written, extensions):
            file = msgspec.structs.replace(_data_file(path), delimiter=delimiter)
            found.setdefault(os.path.realpath(path), file)
    return tuple(found.values())


def kind_of_file(path: str) -> tuple[str, str] | None:
    """Returns format and compression by file name; None: unknown."""
    stem, ending = os.path.splitext(path.lower())
    compression = _COMPRESSIONS.get(ending, "")
    if compression:
        ending = os.path.splitext(stem)[1]
    name = _FORMATS.get(ending)
    if name is None or (compression and name == "parquet"):
        return None
    return name, compression


def _paths_of(written: str, suffixes: tuple[str, ...]) -> list[str]:
    if _exists(written):
        return _files_below(written, suffixes) if os.path.isdir(written) else [written]
    if glob.has_magic(written):
        paths: list[str] = []
        for path in sorted(glob.glob(written, recursive=True)):
            paths += _files_below(path, suffixes) if os.path.isdir(path) else [path]
        if paths:
            return paths
        raise InputError(f"no file matches {written}", hint=_RELATIVE)
    if "://" in written:
        raise InputError(f"{written} is a URL", hint="datasets are read from files; download it first")
    raise InputError(f"no such file or directory: {written}{_nearest(written)}", hint=_RELATIVE)


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:  # inaccessible is not the same as missing
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    return True


def _files_below(folder: str, suffixes: tuple[str, ...]) -> list[str]:
    paths: list[str] = []
    for above, folders, names in os.walk(folder, onerror=_refuse_folder):
        folders.sort()
        folders[:] = [name for name in folders if name != "lost+found"]  # of file systems
        hidden_or_other = (".", "_")  # files that programs write beside data: _SUCCESS, ._x, .crc
        folders[:] = [name for name in folders if not name.startswith(hidden_or_other)]
        for name in sorted(names):
            is_wanted = name.endswith(suffixes) if suffixes else kind_of_file(name) is not None
            if is_wanted and not name.startswith(hidden_or_other):
                paths.append(os.path.join(above, name))
    if not paths:
        what = " or ".join(suffixes) or "supported"
        raise InputError(f"no {what} files in {folder}", hint=f"supported: {_KNOWN}")
    return paths


def _refuse_folder(error: OSError) -> None:
    """Raises InputError for an unreadable folder: missing rows would go unnoticed."""
    raise InputError(f"{error.filename} cannot be listed: {error.strerror}") from error


def _data_file(path: str) -> DataFile:
    kind = kind_of_file(path)
    if kind is None:
        raise InputError(f"{path}: unknown format", hint=f"supported: {_KNOWN}")
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            magic = file.read(4)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if kind[0] == "parquet" and magic != _PARQUET_MAGIC:
        raise InputError(
            f"{path} is not a Parquet file", hint="it is empty or damaged, or has the wrong extension"
        )
    found = DataFile(path=os.path.abspath(path), format=kind[0], compression=kind[1], size=size)
    if kind[0] == "jsonl" and _head(found, 4096).removeprefix(_BOM).lstrip()[:1] == b"[":
        return msgspec.structs.replace(found, format="json")
    return found


def _nearest(path: str) -> str:
    try:
        beside = os.listdir(os.path.dirname(path) or ".")
    except OSError:
        return ""
    # Compare the stems: a common extension does not make names similar.
    name = os.path.basename(path)
    stems = {other.split(".", 1)[0]: other for other in beside}
    close = difflib.get_close_matches(name, beside, n=1)
    alike = difflib.get_close_matches(name.split(".", 1)[0], stems, n=1)
    if close and close[0].split(".", 1)[0] in alike:
        return f"; did you mean {close[0]}?"
    return f"; did you mean {stems[alike[0]]}?" if alike else ""


def check_fields(files: Sequence[DataFile], columns: Sequence[str], needed: Sequence[str] = ()) -> None:
    """Raises InputError if the first rows of a file lack a text field of operators or a `needed` field.

    `needed` fields may have any type. Of many files, some are sampled.
    """
    step = max(1, len(files) // 20)
    for file in files[::step]:
        fields, texts = _fields_seen(file)
        for name in (*columns, *needed) if fields else ():
            if name in texts or (name in fields and name in needed):
                continue
            if name in fields:
                raise InputError(
                    f"{file.path}: field '{name}' is not text", hint="choose another with text_keys"
                )
            close = difflib.get_close_matches(name, fields, n=1)
            nearest = f"did you mean '{close[0]}'? " if close else ""
            some = ", ".join(sorted(fields)[:12])
            raise InputError(
                f"{file.path}: rows have no field '{name}'",
                hint=f"{nearest}fields: {some}; set text_keys in the recipe to the field with the text",
            )


def _fields_seen(file: DataFile) -> tuple[set[str], set[str]]:
    """Returns the names of all fields, and of those that are text in at least one row."""
    if file.format == "parquet":
        from joblens.data.files.partition_rows import is_text, schema_of

        try:
            schema = schema_of(file.path)
        except (OSError, ValueError) as error:
            raise InputError(f"{file.path} cannot be read as Parquet: {error}") from error
        _check_names(file.path, schema.names)
        return set(schema.names), {field.name for field in schema if is_text(field.type)}
    if file.format == "csv":
        names = set(csv_header(file))
        return names, names
    if file.format == "json":
        return set(), set()  # its head is not enough to read it: the job will report errors
    return _json_fields(_head(file).removeprefix(_BOM).splitlines()[:_HEAD_ROWS])


def _json_fields(lines: Iterable[bytes]) -> tuple[set[str], set[str]]:
    fields: set[str] = set()
    texts: set[str] = set()
    for line in lines:
        try:
            row: Any = msgspec.json.decode(line)
        except (ValueError, RecursionError):
            continue  # damaged, or truncated by the sample
        if isinstance(row, dict):
            fields |= row.keys()
            texts |= {name for name, value in row.items() if isinstance(value, str)}
    return fields, texts


def csv_header(file: DataFile) -> list[str]:
    """Returns the names in the first row."""
    import csv
    import io

    head, delimiter = _head(file), delimiter_of(file)
    text = head.decode("utf-8", "replace").removeprefix("\ufeff")
    names = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    _check_names(file.path, names)
    return names


def _check_names(path: str, names: Sequence[str]) -> None:
    """Checks the column names of a table."""
    from joblens.data.rows.batch import OWN_COLUMNS, STATS_PREFIX

    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{path} has a duplicate column '{twice[0]}'", hint="rename one of them")
    own = [name for name in names if name in OWN_COLUMNS or name.startswith(STATS_PREFIX)]
    if own:
        raise InputError(
            f"{path} has a column '{own[0]}', a name that joblens reserves",
            hint="rename the column",
        )


def delimiter_of(file: DataFile | Slice) -> str:
    return file.delimiter or ("\t" if ".tsv" in os.path.basename(file.path).lower() else ",")


def _head(file: DataFile, size: int = _HEAD_BYTES) -> bytes:

    try:
        with opened(file.path, file.compression) as stream:
            return bytes(stream.read(size))
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{file.path} cannot be decompressed: {error}") from error


@contextlib.contextmanager
def opened(path: str, compression: str) -> Iterator[IO[bytes]]:
    """Returns the decompressed content as a stream. Reading a damaged file raises OSError or EOFError."""
    stream: Any
    if compression == "gzip":
        import gzip
        import zlib

        with gzip.open(path) as stream:
            try:
                yield stream
            except zlib.error as error:
                raise OSError(f"damaged: {error}") from error
    elif compression == "zstd":
        with zstd.open(path) as stream:
            try:
                yield stream
            except zstd.ZstdError as error:
                raise OSError(f"damaged: {error}") from error
    else:
        with open(path, "rb") as stream:
            yield stream


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
