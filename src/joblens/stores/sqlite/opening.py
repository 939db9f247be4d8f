"""Opening of a store file: creation, checks of its version, file systems without shared memory."""

import contextlib
import fcntl
import os
from collections.abc import Callable

import apsw

from joblens.files.private import make_private_folder
from joblens.model.errors import StoreError, StoreTooNew
from joblens.stores.sqlite.sql import QUERIES, read_text, writing

MOUNTINFO = "/proc/self/mountinfo"

# Write-ahead logging needs shared memory between all users of the file; these may be on several hosts.
NETWORK_TYPES = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "lustre", "gpfs", "ceph", "9p", "afs", "beegfs"),
        *("glusterfs", "ocfs2", "gfs2", "pvfs2", "orangefs", "coda", "virtiofs"),
    )
)


def network_type(path: str, mountinfo: str) -> str | None:
    """Returns the type of file system if `path` (which exists) is on a network or FUSE, else None."""
    if mountinfo == MOUNTINFO and os.major(os.stat(path).st_dev) != 0:
        return None  # on a block device: no need to read the mount table
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:
            kind = mount_type(file.read(), os.path.realpath(path))
    except OSError:
        return None
    return kind if kind in NETWORK_TYPES or kind == "fuse" or kind.startswith("fuse.") else None


def mount_type(mountinfo: str, path: str) -> str:
    """Returns the type of the mount that holds `path`; of several on one mount point, the last counts."""
    best, found = -1, ""
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) < 8 or "-" not in fields:
            continue
        point = _unescaped(fields[4])
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= best:
            best, found = len(point), fields[fields.index("-") + 1]
    return found


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


APPLICATION_ID = 0x6A6C6E73  # 'jlns'
SCHEMA_VERSION = 8

_HEADER_BYTES = 100
_PAGE_BYTES = 4096

_READ = apsw.SQLITE_OPEN_READONLY
_WRITE = apsw.SQLITE_OPEN_READWRITE

# Older versions may corrupt the file when a reset of the write-ahead log races with a writer.
_FIRST_SAFE = (3, 51, 3)

Warn = Callable[[str], None]


def sqlite_library() -> tuple[str, bool]:
    """Returns the SQLite version, and whether many processes may write with it at once."""
    version = apsw.sqlite_lib_version()
    return version, tuple(int(part) for part in version.split(".")[:3]) >= _FIRST_SAFE


def open_connection(
    path: str, *, read_only: bool, busy_timeout_s: float, warn: Warn, mountinfo: str = MOUNTINFO
) -> tuple[apsw.Connection, bool]:
    """Returns the connection, and whether the store has an older schema."""
    if read_only:
        connection = _open_read_only(path)
    else:
        network = _prepare_file(path, mountinfo)
        if network is not None:
            warn(
                f"the store {path} is on a network file system ({network}): it is written without a "
                "write-ahead log, which is slower, and only one host may use it; "
                "several hosts need a PostgreSQL store"
            )
        connection = apsw.Connection(path, flags=_WRITE)
        try:
            return connection, _is_older(connection, path, busy_timeout_s)
        except apsw.CorruptError:
            _create(path, _journal_mode(network))  # replaces a partially created store
            connection = apsw.Connection(path, flags=_WRITE)
    return connection, _is_older(connection, path, busy_timeout_s)


def _is_older(connection: apsw.Connection, path: str, busy_timeout_s: float) -> bool:
    connection.set_busy_timeout(round(busy_timeout_s * 1000))
    try:
        return _checked_version(connection, path) < SCHEMA_VERSION
    except BaseException:
        connection.close()
        raise


def _open_read_only(path: str) -> apsw.Connection:
    try:
        os.stat(path)  # raises PermissionError if the directory may not be entered
    except FileNotFoundError:
        hint = "run a job first, or name another with --store"
        raise StoreError(f"there is no store at {path}", hint=hint) from None
    connection = apsw.Connection(path, flags=_READ)
    try:
        connection.execute(QUERIES["identity"]).fetchall()
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        connection.close()
        if _has_log(path):
            raise
        # Read-only and without a log: open the file as immutable.
        return apsw.Connection(f"file:{_quoted(path)}?immutable=1", flags=_READ | apsw.SQLITE_OPEN_URI)
    return connection


def _has_log(path: str) -> bool:
    """Whether a write-ahead log has content that is not in the file yet."""
    try:
        return os.path.getsize(f"{path}-wal") > 0
    except OSError:
        return False


def _quoted(path: str) -> str:
    for character in "%?#":
        path = path.replace(character, f"%{ord(character):02x}")
    return path


def _prepare_file(path: str, mountinfo: str) -> str | None:
    folder = os.path.dirname(os.path.abspath(path))
    make_private_folder(folder)
    network = network_type(folder, mountinfo)
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        _create(path, _journal_mode(network))
    return network


def _journal_mode(network: str | None) -> str:
    return "DELETE" if network else "WAL"


def _create(path: str, journal_mode: str) -> None:
    """Builds the store in a temporary file and renames it, so that no process opens a partial store."""
    aside = f"{path}.new-{os.getpid()}-{os.urandom(4).hex()}"
    os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    try:
        connection = apsw.Connection(aside, flags=_WRITE)
        try:
            connection.execute(QUERIES["give_pages_back_in_steps"])
            # No write-ahead log yet: closing copies it into the file and reports no error on a full disk.
            connection.execute(QUERIES["set_journal_mode"].format(mode="MEMORY"))
            with writing(connection):
                connection.execute(read_text("schema.sql"))
                connection.execute(QUERIES["set_application_id"].format(application_id=APPLICATION_ID))
                connection.execute(QUERIES["set_user_version"].format(version=SCHEMA_VERSION))
            connection.execute(QUERIES["set_journal_mode"].format(mode=journal_mode))
        finally:
            connection.close()
        _put_in_place(aside, path)
    finally:
        for ending in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside + ending)


def _put_in_place(aside: str, path: str) -> None:
    try:
        os.link(aside, path)
    except FileExistsError:
        _replace_unfinished(aside, path)
    except OSError:  # a file system without hard links
        if not os.path.exists(path):
            os.replace(aside, path)


def _replace_unfinished(aside: str, path: str) -> None:
    """Replaces a file that is empty or incomplete because the disk was full. Any other file stays."""
    with open(path, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # of several processes that find it, one replaces it
        is_in_place = os.path.samestat(os.fstat(file.fileno()), os.stat(path))
        if is_in_place and not _has_log(path) and _is_beginning(file.read(), aside):
            os.replace(aside, path)


def _is_beginning(content: bytes, whole: str) -> bool:
    """Whether the content is the first pages of a new, empty store; headers differ by library version."""
    with open(whole, "rb") as file:
        fresh = file.read()
    is_cut_off = _PAGE_BYTES <= len(content) < len(fresh)
    return not content or (is_cut_off and fresh[_HEADER_BYTES:].startswith(content[_HEADER_BYTES:]))


def _checked_version(connection: apsw.Connection, path: str) -> int:
    version: int
    version, application_id = connection.execute(QUERIES["identity"]).get
    if application_id != APPLICATION_ID:
        raise StoreError(
            f"{path} is an SQLite file, but not a joblens store", hint="name another file with --store"
        )
    if version > SCHEMA_VERSION:
        raise StoreTooNew(
            f"the store {path} has schema version {version}; this joblens knows {SCHEMA_VERSION} at most",
            hint="use the newer joblens that wrote it, or another store",
        )
    return version
