"""Files of an RO-Crate: which files of jobs are included, and the crate written to disk atomically."""

import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from stat import S_ISREG
from typing import IO, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from joblens.analysis.crates.graph import percent_encoded
from joblens.app.reports.exports import output_file
from joblens.files.private import make_private_folder
from joblens.model.crate import CrateFile
from joblens.model.errors import InputError
from joblens.model.jobs.job import FileStamp
from joblens.probes.provenance.program_files import as_text, remembered_path

_PIECE = 1 << 20
_MOST_HASHED = 4 << 30  # larger files have only size and time
_SHA256 = 64  # characters; older records have shorter digests


class Copy(Struct, frozen=True):
    """A file to include, and its stamp."""

    source: str
    target: str
    sha256: str


class CrateFiles:
    """Every file once, by its path and content: a file that was overwritten is listed as two."""

    def __init__(self, *, host: str, most_bytes: int | None) -> None:
        """`most_bytes`: of an included file; None: none is included."""
        self._host = host
        self._most_bytes = most_bytes
        self._found: dict[tuple[str, str], CrateFile] = {}
        self._taken: dict[str, str] = {}  # URI -> content
        self._sources: dict[str, str] = {}  # in the crate -> path
        self.copies: list[Copy] = []
        self.changed: list[str] = []  # no longer what a job read or made
        self.large: list[str] = []  # requested, but too large

    def add(self, stamp: FileStamp, cwd: str, host: str, sha256: str = "") -> CrateFile | None:
        """Returns None if it did not exist. `host`: where the job ran."""
        path = os.path.normpath(remembered_path(stamp.path, cwd))
        sha256 = sha256 or (stamp.digest if stamp.digest and len(stamp.digest) == _SHA256 else "")
        if stamp.size is None and stamp.mtime_ns is None:
            return None
        key = path, stamp.digest or sha256 or _fingerprint(stamp)
        if key not in self._found:
            self._found[key] = self._describe(stamp, path, cwd, host, sha256)
        return self._found[key]

    def add_unstamped(self, name: str, cwd: str, not_after_us: int) -> CrateFile | None:
        """Adds a file without a stamp in any record. None: it does not exist, or was changed later."""
        path = os.path.normpath(os.path.join(cwd, name))
        try:
            found = os.stat(path)
        except OSError:
            return None
        if found.st_mtime_ns // 1000 > not_after_us:
            return None
        return self.add(FileStamp(name, found.st_size, found.st_mtime_ns), cwd, self._host)

    def _describe(self, stamp: FileStamp, path: str, cwd: str, host: str, sha256: str) -> CrateFile:
        file = CrateFile(
            id=self._free_id(f"file://{percent_encoded(host)}{percent_encoded(path)}", path, stamp),
            name=stamp.path,
            bytes=stamp.size,
            sha256=sha256,
            digest="" if sha256 else stamp.digest or "",
            modified_at_us=None if stamp.mtime_ns is None else stamp.mtime_ns // 1000,
            kind=_kind(path),
        )
        is_here = host == self._host
        if stamp.files is not None:
            return replace(
                file,
                id=f"{file.id}/",
                is_folder=True,
                files=stamp.files,
                hash_mode=stamp.hash_mode,
            )
        if stamp.size is None or (is_here and os.path.isdir(path)):
            return replace(file, id=f"{file.id}/", is_folder=True, bytes=None, digest="")
        if not is_here:
            return file
        if not self._is_unchanged(path, stamp, sha256):
            self.changed.append(as_text(path))
            return file
        file = replace(file, sha256=sha256 or sha256_of(path) or "")
        return self._include(file, path, cwd)

    def _include(self, file: CrateFile, path: str, cwd: str) -> CrateFile:
        if self._most_bytes is None or not file.sha256 or file.bytes is None:
            return file
        if file.bytes > self._most_bytes:
            self.large.append(as_text(path))
            return file
        inside = as_text(os.path.relpath(path, cwd)) if cwd else ""
        elsewhere = f"elsewhere{as_text(path)}"
        target = f"files/{inside}" if inside and not inside.startswith("..") else elsewhere
        if self._sources.setdefault(target, path) != path:  # two jobs with different working directories
            target = elsewhere
        self.copies.append(Copy(path, target, file.sha256))
        return replace(file, id=percent_encoded(target), is_inside=True)

    def _free_id(self, ident: str, path: str, stamp: FileStamp) -> str:
        """A second content of the same path gets a suffix."""
        content = stamp.digest or _fingerprint(stamp)
        taken_by = self._taken.setdefault(ident, content)
        return ident if taken_by == content else f"{ident}#{content[:16]}"

    def _is_unchanged(self, path: str, stamp: FileStamp, sha256: str) -> bool:
        try:
            found = os.stat(path)
        except OSError:
            return False
        if not S_ISREG(found.st_mode) or found.st_size != stamp.size:
            return False
        if found.st_mtime_ns == stamp.mtime_ns:
            return True
        if sha256:
            return sha256_of(path) == sha256
        return stamp.digest is not None and _older_digest(path) == stamp.digest


def _fingerprint(stamp: FileStamp) -> str:
    """Returns an identity of its content without reading it; all contents of a folder have one."""
    return "folder" if stamp.size is None else f"{stamp.size}-{stamp.mtime_ns}"


def sha256_of(path: str) -> str | None:
    """Returns None if unreadable or too large."""
    return _digest(path, hashlib.sha256())


def _older_digest(path: str) -> str | None:
    return _digest(path, hashlib.blake2b(digest_size=16))


def _digest(path: str, digest: Any) -> str | None:
    try:
        with open(path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size > _MOST_HASHED:
                return None
            while piece := file.read(_PIECE):
                digest.update(piece)
    except OSError:
        return None
    return str(digest.hexdigest())


def bytes_file(target: str, content: bytes, description: str, kind: str) -> CrateFile:
    """Returns a file that is made for the crate."""
    return CrateFile(
        id=percent_encoded(target),
        name=target.rsplit("/", 1)[-1],
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        description=description,
        kind=kind,
        is_inside=True,
    )


def _kind(path: str) -> str:
    import mimetypes

    if path.endswith((".yaml", ".yml")):
        return "application/yaml"
    return mimetypes.guess_type(path)[0] or "application/octet-stream"


class _Target(Protocol):
    """Output of a crate."""

    def open(self, target: str) -> IO[bytes]: ...


def write_crate(output: str, contents: Mapping[str, bytes], copies: Sequence[Copy]) -> None:
    with _writer_for(output) as into:
        for target, content in contents.items():
            with into.open(target) as file:
                file.write(content)
        written: set[str] = set()
        for copy in copies:
            if copy.target not in written:
                written.add(copy.target)
                _copy(copy, into)


def check_output(output: str) -> None:
    """Checks it before anything is collected."""
    if is_zip(output):
        if os.path.isdir(output):
            raise InputError(f"{output} is a directory")
        return
    if os.path.isdir(output) and not os.listdir(output):
        return
    if os.path.lexists(output):
        raise InputError(
            f"{output} already exists: a crate needs a new directory",
            hint="give a new directory, or a file ending in .zip",
        )


def is_zip(output: str) -> bool:
    return output.lower().endswith(".zip")


@contextmanager
def _writer_for(output: str) -> Iterator[_Target]:
    check_output(output)
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

    def open(self, target: str) -> IO[bytes]:
        path = os.path.join(self._root, target)
        make_private_folder(os.path.dirname(path))
        return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb")


class _Zip:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def open(self, target: str) -> IO[bytes]:
        return self._archive.open(target, "w", force_zip64=True)


def _copy(copy: Copy, into: _Target) -> None:
    digest = hashlib.sha256()
    with open(copy.source, "rb") as source, into.open(copy.target) as file:
        while piece := source.read(_PIECE):
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != copy.sha256:
        raise InputError(
            f"{copy.source} changed while it was copied", hint="try again when it is not being written"
        )
