"""Journal: holds writes in a file while the store cannot be opened or written.

The file name identifies the store and the owning process, so that files of dead processes differ from
files in use.

The writes are replayed later, by this process or, if it dies, by the next one that opens the store. Writes
are idempotent, so replaying needs no bookkeeping.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from joblens.files.private import make_private_folder
from joblens.files.processes import process_start_ticks
from joblens.model.errors import StoreError, StoreVanished
from joblens.model.writes import JobEnded, Write
from joblens.stores.wrappers import StoreWrapper

if TYPE_CHECKING:
    from joblens.ports.store import Store

_SUFFIX = ".journal"
_PREFIX = "joblens-"
_encoder = msgspec.json.Encoder()


class JournalOwner(Struct, frozen=True):
    """Process that writes the file. Start time and boot id detect a reused pid."""

    host: str
    boot: str
    pid: int
    start_ticks: int

    @classmethod
    def this_process(cls) -> JournalOwner:
        pid = os.getpid()
        return cls(os.uname().nodename.replace("~", "_"), _boot(), pid, process_start_ticks(pid) or 0)

    @property
    def is_gone(self) -> bool:
        """Whether the process has exited; only known for this host."""
        if self.host != os.uname().nodename.replace("~", "_"):
            return False
        return self.boot != _boot() or process_start_ticks(self.pid) != self.start_ticks


def file_name(url: str, owner: JournalOwner) -> str:
    parts = (_store_mark(url), owner.host, owner.boot, str(owner.pid), str(owner.start_ticks))
    return _PREFIX + "~".join(parts) + _SUFFIX


def owner_of(name: str, url: str) -> JournalOwner | None:
    """Returns the owner from a file name; None: not a journal, or one of another store."""
    if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
        return None
    parts = name[len(_PREFIX) : -len(_SUFFIX)].split("~")
    if len(parts) != 5 or parts[0] != _store_mark(url) or not (parts[3] + parts[4]).isdigit():
        return None
    return JournalOwner(parts[1], parts[2], int(parts[3]), int(parts[4]))


def encode_line(writes: Sequence[Write]) -> bytes:
    body = _encoder.encode(writes)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def decode_lines(lines: Iterable[bytes]) -> Iterator[list[Write] | None]:
    """Decodes one item per line; None for torn or damaged lines."""
    import joblens.model.access
    import joblens.model.delivery
    import joblens.model.history
    import joblens.model.runs.run  # noqa: F401 - types of some kinds of writes

    decoder = msgspec.json.Decoder(list[Write])
    for ended_line in lines:
        line = ended_line.rstrip(b"\r\n")
        if not line:
            continue
        try:
            body = line[9:]
            yield decoder.decode(body) if int(line[:8], 16) == zlib.crc32(body) else None
        except (ValueError, msgspec.MsgspecError):
            yield None


class JournalFile:
    """File that this process appends to. Raises OSError."""

    def __init__(self, folder: str, name: str) -> None:
        make_private_folder(folder)
        self.path = os.path.join(folder, name)
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self.path, flags, 0o600)
        status = os.fstat(self._descriptor)
        if status.st_uid != os.geteuid():
            os.close(self._descriptor)
            raise PermissionError(f"{self.path} belongs to another user")
        self._size = status.st_size

    def append(self, writes: Sequence[Write]) -> None:
        line = encode_line(writes)
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                raise OSError(28, "No space left on device")
        except OSError:
            os.ftruncate(self._descriptor, self._size)  # no partial line before the next one
            raise
        self._size += len(line)
        if any(isinstance(write, JobEnded) for write in writes):
            os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()[:13]
    except OSError:
        return ""


def _store_mark(url: str) -> str:
    return f"{zlib.crc32(url.encode('utf-8', 'surrogateescape')):08x}"


_REPLAYED_AT_ONCE = 1000  # writes
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 5.0


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


class JournaledStore(StoreWrapper):
    """Implements ports.store.Store around another.

    `apply` never raises StoreError; reads and deliveries pass through.

    `url` names the store while it cannot be opened. With `must_open`, for readers, opening errors are raised
    at once.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        journal_dir: str,
        warn: Callable[[str], None] = _warn,
        url: str = "",
        *,
        must_open: bool = False,
    ) -> None:
        self.url = _whole_url(url)
        self._open_store = open_store
        self._folders = _journal_folders(journal_dir)
        self._warn = warn
        self._lock = threading.RLock()
        self._store: Store | None = None
        self._journal: JournalFile | None = None
        self._pause_s, self._retry_at_s = 0.0, 0.0
        self._has_warned = False
        self._has_vanished = False
        try:
            self._opened()
        except StoreError as error:
            if must_open:
                raise
            self._failed(error)

    # -- writing

    def apply(self, writes: Sequence[Write]) -> None:
        if not writes:
            return
        with self._lock:
            if self._is_ready():
                try:
                    self._opened().apply(writes)
                    self._pause_s = 0.0
                    return
                except StoreError as error:
                    self._failed(error)
            self._keep(writes)

    def close(self) -> None:
        with self._lock:
            self._retry_at_s = 0.0
            if self._journal is not None:
                self._is_ready()
            if self._journal is not None:
                self._journal.close()
                self._journal = None
            if self._store is not None:
                self._store.close()
                self._store = None

    def _is_ready(self) -> bool:
        """Whether the store is open and all earlier writes are in it."""
        if time.monotonic() < self._retry_at_s:
            return False
        try:
            store = self._opened()
            if self._journal is not None:
                self._replay_own(store, self._journal)
        except StoreError as error:
            self._failed(error)
            return False
        return True

    def _opened(self) -> Store:
        if self._store is None:
            store = self._open_store()
            self.url = self.url or store.url
            try:
                self._replay_orphans(store)
            except StoreError:
                store.close()
                raise
            self._store = store
        return self._store

    def _failed(self, error: StoreError) -> None:
        if isinstance(error, StoreVanished) and self._store is not None:
            self._store.close()
            self._store = None  # the next attempt opens the file that exists then, or creates it
            self._has_vanished = True
        self._pause_s = min(self._pause_s * 2 or _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._retry_at_s = time.monotonic() + self._pause_s
        if not self._has_warned:
            self._has_warned = True
            hint = f"; {error.hint}" if error.hint else ""
            self._warn(f"{error}{hint}. Changes are kept in a journal and written later")

    # -- the journal

    def _keep(self, writes: Sequence[Write]) -> None:
        problems: list[str] = []
        if self._journal is not None:
            try:
                self._journal.append(writes)
                return
            except OSError as error:
                problems.append(f"{self._journal.path}: {error.strerror}")
        name = file_name(self.url, JournalOwner.this_process())
        for folder in self._folders:
            if self._journal is not None and os.path.dirname(self._journal.path) == folder:
                continue
            try:
                journal = JournalFile(folder, name)
                journal.append(writes)
            except OSError as error:
                problems.append(f"{folder}: {error.strerror or error}")
                continue
            if self._journal is None:
                self._journal = journal
            else:
                journal.close()  # found by its name when the store is back
            return
        self._warn(
            f"{len(writes)} changes to jobs are lost: cannot write the journal ({'; '.join(problems)})"
        )

    def _replay_own(self, store: Store, journal: JournalFile) -> None:
        name = os.path.basename(journal.path)
        for folder in self._folders:
            self._replay(store, os.path.join(folder, name))
        journal.close()
        self._journal = None
        if self._has_warned:
            self._has_warned = False
            self._warn(f"the store {self.url} works again; {self._brought_in()}")
            self._has_vanished = False

    def _brought_in(self) -> str:
        if not self._has_vanished:
            return "the journal has been written to it"
        return "but it is another file, which has only what happened since"

    @property
    def has_journal(self) -> bool:
        """Whether the journal holds writes that are not in the store yet."""
        return self._journal is not None

    def replay_own(self) -> None:
        """Replays this process's own journal if the store is writable again."""
        with self._lock:
            if self._journal is not None:
                self._is_ready()

    def replay_abandoned(self) -> bool:
        """Replays journals of exited processes.

        Returns False if some remain, in use or unreadable. Raises StoreError.
        """
        with self._lock:
            self._replay_orphans(self._opened())
            return not _orphaned_journals(self._folders, self.url)

    def _replay_orphans(self, store: Store) -> None:
        for path in _orphaned_journals(self._folders, self.url):
            self._replay(store, path)

    def _replay(self, store: Store, path: str) -> None:
        try:
            file = open(path, "rb")  # noqa: SIM115  (missing is fine, closed below)
        except OSError:
            return
        with file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return  # replaced by another user since it was found
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return  # another process is replaying it
            damaged = 0
            waiting: list[Write] = []
            for batch in decode_lines(file):
                damaged += batch is None
                waiting += batch or ()
                if len(waiting) >= _REPLAYED_AT_ONCE:
                    store.apply(waiting)
                    waiting = []
            store.apply(waiting)
            with contextlib.suppress(FileNotFoundError):  # another process replayed and removed it first
                if damaged:
                    renamed = f"{path}.damaged"
                    os.replace(path, renamed)
                    self._warn(
                        f"{damaged} damaged lines of a journal could not be replayed; it is kept as {renamed}"
                    )
                else:
                    os.unlink(path)

    def direct(self) -> Store:
        """Returns the store itself, whose writes raise StoreError. Raises StoreError."""
        with self._lock:
            return self._opened()

    # -- reading

    def _inner(self) -> Store:
        with self._lock:
            if self._journal is not None:
                self._is_ready()
            return self._opened()


def has_left_behind(url: str, journal_dir: str) -> bool:
    """Whether journals of exited processes wait to be replayed."""
    return bool(_orphaned_journals(_journal_folders(journal_dir), _whole_url(url)))


def _whole_url(url: str) -> str:
    """Returns an absolute URL: one file is one store, from whichever folder it is named."""
    return os.path.abspath(url) if url and "://" not in url else url


def _journal_folders(journal_dir: str) -> tuple[str, ...]:
    temporary = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  (files there are private and checked)
    return tuple(dict.fromkeys((journal_dir, temporary)))


def _orphaned_journals(folders: Sequence[str], url: str) -> list[str]:
    """Returns journals of exited processes, oldest first."""
    found: list[tuple[float, str]] = []
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            owner = owner_of(name, url)
            if owner is not None and owner.is_gone:
                path = os.path.join(folder, name)
                if (at_s := _changed_if_mine(path)) is not None:
                    found.append((at_s, path))
    return [path for _, path in sorted(found)]


def _changed_if_mine(path: str) -> float | None:
    """Returns the modification time. In a shared folder, only files of this user are trusted."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    is_mine = status.st_uid == os.geteuid() and status.st_mode & 0o170000 == 0o100000
    return status.st_mtime if is_mine else None
