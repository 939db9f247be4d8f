"""What jobs print on a node that does not share their folder, in the pieces in which it is sent home."""

import contextlib
import os
from collections.abc import Iterator

from msgspec import Struct, field

from joblens.runners.ray.messages import Printed

_PIECE = 1 << 20


class _File(Struct):
    sent: int = 0
    inode: int = 0


class _Folder(Struct):
    here: str
    meant: str
    files: dict[str, _File] = field(default_factory=dict)


class PrintedFiles:
    """Only the files of the folder itself: those below it are the job's work."""

    def __init__(self) -> None:
        self._folders: dict[str, _Folder] = {}

    @property
    def is_any(self) -> bool:
        return bool(self._folders)

    def add(self, uuid: str, here: str, meant: str) -> None:
        self._folders.setdefault(uuid, _Folder(here, meant))

    def news(self) -> Iterator[Printed]:
        for folder in self._folders.values():
            yield from _news(folder)

    def rest_of(self, uuid: str) -> Iterator[Printed]:
        """It has ended: nothing more is added to its files, and they are not needed here any more."""
        folder = self._folders.pop(uuid, None)
        if folder is not None:
            yield from _news(folder)
            for name in folder.files:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder.here, name))
            with contextlib.suppress(OSError):
                os.rmdir(folder.here)  # where the job has left nothing of its own


def _news(folder: _Folder) -> Iterator[Printed]:
    try:
        entries = [entry for entry in os.scandir(folder.here) if entry.is_file(follow_symlinks=False)]
    except OSError:
        return
    for entry in entries:
        if not entry.name.endswith(".part"):
            known = folder.files.setdefault(entry.name, _File())
            yield from _pieces(entry.path, os.path.join(folder.meant, entry.name), known)


def _pieces(here: str, meant: str, known: _File) -> Iterator[Printed]:
    """A long file is made short at the end, under the same name: it is sent again then."""
    try:
        with open(here, "rb") as file:
            stat = os.fstat(file.fileno())
            is_another = known.inode != stat.st_ino or stat.st_size < known.sent
            if is_another:
                known.sent, known.inode = 0, stat.st_ino
            file.seek(known.sent)
            while is_another or stat.st_size > known.sent:
                data = file.read(min(_PIECE, max(0, stat.st_size - known.sent)))
                yield Printed(path=meant, offset=known.sent, data=data, is_whole=is_another)
                is_another = False
                known.sent += len(data)
                if not data:
                    break
    except OSError:
        return
