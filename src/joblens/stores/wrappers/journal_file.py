"""One file of writes that wait for their store: a line a batch, each with its checksum.

The name says which store they are for and whose file it is, so that what a dead process left behind
can be told from what a living one is still using."""

import os
import zlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from joblens.files.private import make_private_folder
from joblens.files.processes import process_start_ticks
from joblens.model.writes import JobEnded, Write

_SUFFIX = ".journal"
_PREFIX = "joblens-"
_encoder = msgspec.json.Encoder()


class JournalOwner(Struct, frozen=True):
    """Which process writes the file. Start time and boot make a reused pid recognisable."""

    host: str
    boot: str
    pid: int
    start_ticks: int

    @classmethod
    def this_process(cls) -> "JournalOwner":
        pid = os.getpid()
        return cls(os.uname().nodename.replace("~", "_"), _boot(), pid, process_start_ticks(pid) or 0)

    @property
    def is_gone(self) -> bool:
        """Only what runs on this host can be known to be gone."""
        if self.host != os.uname().nodename.replace("~", "_"):
            return False
        return self.boot != _boot() or process_start_ticks(self.pid) != self.start_ticks


def file_name(url: str, owner: JournalOwner) -> str:
    parts = (_store_mark(url), owner.host, owner.boot, str(owner.pid), str(owner.start_ticks))
    return _PREFIX + "~".join(parts) + _SUFFIX


def owner_of(name: str, url: str) -> JournalOwner | None:
    """None when it is no journal, or one of another store."""
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
    """One item a line; None for one that is torn or damaged."""
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
    """The file this process appends to. Raises OSError when it cannot."""

    def __init__(self, folder: str, name: str) -> None:
        make_private_folder(folder)
        self.path = os.path.join(folder, name)
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self.path, flags, 0o600)
        status = os.fstat(self._descriptor)
        if status.st_uid != os.geteuid():
            os.close(self._descriptor)
            raise PermissionError(f"{self.path} belongs to someone else")
        self._size = status.st_size

    def append(self, writes: Sequence[Write]) -> None:
        line = encode_line(writes)
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                raise OSError(28, "No space left on device")
        except OSError:
            os.ftruncate(self._descriptor, self._size)  # no half line before the next one
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
