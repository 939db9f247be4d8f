"""What the client of a container engine leaves for whoever owns the job, in a private file of the spool
directory: it outlives both, so that the next joblens knows which container to look at or to take away."""

import contextlib
import os
from typing import Any

import msgspec
from msgspec import Struct

from joblens.files.private import open_with_folder

_SUFFIX = ".container"


class ContainerNote(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parts that are not known yet are empty."""

    engine: str = ""
    engine_version: str = ""
    socket: str = ""
    id: str = ""
    name: str = ""
    image: str = ""
    image_id: str = ""
    network_mode: str = ""
    pid: int | None = None  # of its first process; None: not seen from here
    layout: str = ""
    groups: dict[str, str] = {}  # of its own
    is_below_ours: bool = False  # its groups are below the job's
    started_at_us: int | None = None
    startup_s: float | None = None
    cpus: float | None = None
    cpu_list: str = ""
    memory_bytes: int | None = None
    memory_swap_bytes: int | None = None
    pids: int | None = None
    volumes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    overhead: dict[str, float] = {}
    unknown: dict[str, str] = {}
    last: dict[str, Any] = {}  # counters of its own groups, read the moment it ended
    oom_killed: bool = False
    has_ended: bool = False
    refusal: str = ""  # why it never ran
    silence: str = ""  # why its exit code is not known
    is_removed: bool = False  # nothing of it is left with the engine
    tries: int = 0  # to take it away, without an answer


def note_path(spool_dir: str, uuid: str) -> str:
    return os.path.join(spool_dir, uuid + _SUFFIX)


def noted(spool_dir: str) -> list[str]:
    """Jobs that have a note, by uuid."""
    try:
        return [name.removesuffix(_SUFFIX) for name in os.listdir(spool_dir) if name.endswith(_SUFFIX)]
    except OSError:
        return []


def write_note(path: str, note: ContainerNote) -> None:
    """All or nothing. A disk that is full must not end the container."""
    temporary = f"{path}.{os.getpid()}.part"
    with contextlib.suppress(OSError):
        descriptor = open_with_folder(temporary, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(note))
        os.replace(temporary, path)


def read_note(path: str) -> ContainerNote | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return msgspec.json.decode(file.read(), type=ContainerNote)
    except (OSError, msgspec.MsgspecError):
        return None


def remove_note(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
