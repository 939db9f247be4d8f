"""What a background job needs to run, handed from `submit` to the supervisor in a private file.

The store holds only the redacted form; the real environment never goes into it."""

import contextlib
import os
from collections.abc import Callable

import msgspec
from msgspec import Struct


class Payload(Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str


def payload_path(spool_dir: str, uuid: str) -> str:
    return os.path.join(spool_dir, f"{uuid}.job")


def write_payload(spool_dir: str, uuid: str, payload: Payload) -> None:
    os.makedirs(spool_dir, mode=0o700, exist_ok=True)
    path = payload_path(spool_dir, uuid)
    descriptor = os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        # Names and values may hold bytes that are no text; they travel as escapes.
        file.write(msgspec.json.encode(_escaped(payload)))
    os.replace(path + ".part", path)


def read_payload(spool_dir: str, uuid: str) -> Payload | None:
    """None when there is none (any more) or it cannot be read."""
    try:
        with open(payload_path(spool_dir, uuid), "rb") as file:
            return _plain(msgspec.json.decode(file.read(), type=Payload))
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
    return Payload(
        argv=tuple(change(word) for word in payload.argv),
        env={change(name): change(value) for name, value in payload.env.items()},
        cwd=change(payload.cwd),
    )
