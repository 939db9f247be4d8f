"""A crate on disk: all of it under its name, or nothing."""

import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Protocol

from joblens.app.crates.files import Copy
from joblens.app.reports.exports import output_file
from joblens.files.private import make_private_folder
from joblens.model.errors import InputError

_PIECE = 1 << 20


class _Place(Protocol):
    """Where the files of a crate go."""

    def open(self, place: str) -> IO[bytes]: ...


def write_crate(output: str, contents: Mapping[str, bytes], copies: Sequence[Copy]) -> None:
    with _place_for(output) as into:
        for place, content in contents.items():
            with into.open(place) as file:
                file.write(content)
        done: set[str] = set()
        for copy in copies:
            if copy.place not in done:
                done.add(copy.place)
                _copy(copy, into)


def refuse_place(output: str) -> None:
    """Before anything is gathered."""
    if is_zip(output):
        if os.path.isdir(output):
            raise InputError(f"{output} is a folder")
        return
    if os.path.isdir(output) and not os.listdir(output):
        return
    if os.path.lexists(output):
        raise InputError(
            f"{output} is there already: a crate needs a folder of its own",
            hint="name one that is not there yet, or a file that ends in .zip",
        )


def is_zip(output: str) -> bool:
    return output.lower().endswith(".zip")


@contextmanager
def _place_for(output: str) -> Iterator[_Place]:
    refuse_place(output)
    if is_zip(output):
        with output_file(output) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            yield _Zip(archive)
        return
    temporary = f"{os.path.realpath(output)}.{os.urandom(8).hex()}.part"
    try:
        make_private_folder(temporary)
        yield _Folder(temporary)
        os.rename(temporary, os.path.realpath(output))
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


class _Folder:
    def __init__(self, root: str) -> None:
        self._root = root

    def open(self, place: str) -> IO[bytes]:
        path = os.path.join(self._root, place)
        make_private_folder(os.path.dirname(path))
        return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb")


class _Zip:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def open(self, place: str) -> IO[bytes]:
        return self._archive.open(place, "w", force_zip64=True)


def _copy(copy: Copy, into: _Place) -> None:
    digest = hashlib.sha256()
    with open(copy.source, "rb") as source, into.open(copy.place) as file:
        while piece := source.read(_PIECE):
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != copy.sha256:
        raise InputError(
            f"{copy.source} changed while it was copied", hint="try again when nothing writes to it"
        )
