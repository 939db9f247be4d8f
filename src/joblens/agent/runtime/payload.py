"""Payload: command and environment of a background job, passed from `submit` to the supervisor in a private
file.

The store has only the redacted form; the real environment is never written to it."""

import contextlib
import os
from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from joblens.files.atomic import write_durably
from joblens.files.private import names_with_suffix, read_own

_SUFFIX = ".job"


class Payload(Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    logs_dir: str  # for its two output files
    output_max_bytes: int  # of each output file
    notify: tuple[str, ...] = ()  # run after its end, in the same environment and directory
    secrets: dict[str, str] = {}  # text to hide in its outcome -> replacement


def payload_path(spool_dir: str, uuid: str) -> str:
    return os.path.join(spool_dir, uuid + _SUFFIX)


def payloads(spool_dir: str) -> list[str]:
    """Returns the uuids of jobs that have one."""
    return names_with_suffix(spool_dir, _SUFFIX)


def write_payload(spool_dir: str, uuid: str, payload: Payload) -> None:
    """Writes the file durably: the job is queued next, and may be started after a reboot."""
    # Names and values may contain bytes that are not text; they are stored as escapes.
    write_durably(payload_path(spool_dir, uuid), msgspec.json.encode(_escaped(payload)))


def read_payload(spool_dir: str, uuid: str) -> Payload | None:
    """Returns None if the file is gone or unreadable."""
    try:
        return _plain(msgspec.json.decode(read_own(payload_path(spool_dir, uuid)), type=Payload))
    except (OSError, msgspec.MsgspecError):
        return None


def remove_payload(spool_dir: str, uuid: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(payload_path(spool_dir, uuid))


def _escaped(payload: Payload) -> Payload:
    return _mapped(payload, lambda text: os.fsencode(text).decode("latin-1"))


def _plain(payload: Payload) -> Payload:
    return _mapped(payload, lambda text: os.fsdecode(text.encode("latin-1")))


def _mapped(payload: Payload, change: Callable[[str], str]) -> Payload:
    return replace(
        payload,
        argv=tuple(change(word) for word in payload.argv),
        notify=tuple(change(word) for word in payload.notify),
        env={change(name): change(value) for name, value in payload.env.items()},
        cwd=change(payload.cwd),
        logs_dir=change(payload.logs_dir),
    )
