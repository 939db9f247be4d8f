"""Folder broker: one file per message, for workers and submitters that share a disk. It is Celery's own
transport of that kind, except that files appear atomically, are listed in batches, and are polled by the
worker's event loop."""

import contextlib
import fcntl
import os
import time
import uuid
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.transport import filesystem, virtual
from kombu.utils.encoding import bytes_to_str, str_to_bytes
from kombu.utils.json import dumps, loads

from joblens.files.atomic import write_atomically

POLL_EVERY_S = 0.02
_POLL_AGAIN_S = 0.001
_MOST_PER_POLL = 64
_FORGOTTEN_S = 86_400.0


class FolderChannel(filesystem.Channel):  # type: ignore[misc]  # kombu has no types
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        folder = make_private(self.transport_options["folder"])
        self.data_folder_in = self.data_folder_out = make_private(os.path.join(folder, "messages"))
        self._control = Path(make_private(os.path.join(folder, "control")))
        self._listed: dict[str, deque[str]] = {}
        self._remove_forgotten()

    @property
    def control_folder(self) -> Path:
        return self._control

    def _remove_forgotten(self) -> None:
        """Removes files of workers that were killed and of queues without workers: the store has the jobs."""
        oldest = time.time() - _FORGOTTEN_S
        for entry in os.scandir(self.data_folder_in):
            with contextlib.suppress(FileNotFoundError):
                if entry.stat().st_mtime < oldest:
                    os.unlink(entry.path)

    def _put(self, queue: str, payload: Any, **_: Any) -> None:
        """Writes a message. File names sort by age, also across hosts and boots."""
        name = f"{time.time_ns():020}_{uuid.uuid4().hex}.{queue}.msg"
        _write_text(os.path.join(self.data_folder_out, name), dumps(payload))

    def _get(self, queue: str) -> Any:
        """Returns the next message. The process that removes the file has the message."""
        listed = self._listed.get(queue)
        if not listed:
            listed = self._listed[queue] = deque(self._names_of(queue))
        while listed:
            path = os.path.join(self.data_folder_in, listed.popleft())
            try:
                with open(path, "rb") as file:
                    payload = file.read()
                os.unlink(path)
            except FileNotFoundError:
                continue  # another worker has it
            return loads(bytes_to_str(payload))
        raise Empty

    def _names_of(self, queue: str) -> list[str]:
        suffix = f".{queue}.msg"
        # The name before the suffix has no dot: "a" must not read the messages of "b.a".
        return sorted(
            name
            for name in os.listdir(self.data_folder_in)
            if name.endswith(suffix) and "." not in name[: -len(suffix)]
        )

    def get_table(self, exchange: str) -> list[Any]:
        with self._table_lock():
            return self._read_table(exchange)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        bound = filesystem.exchange_queue_t(routing_key or "", pattern or "", queue or "")
        with self._table_lock():
            table = self._read_table(exchange)
            if bound not in table:
                _write_text(str(self._exchange_file(exchange)), dumps([bound, *table]))

    def _delete(self, queue: str, exchange: str, routing_key: str, pattern: str, *_: Any, **__: Any) -> None:
        bound = filesystem.exchange_queue_t(routing_key or "", pattern or "", queue or "")
        self._purge(queue)
        with self._table_lock():
            table = self._read_table(exchange)
            if bound in table:
                rest = [one for one in table if one != bound]
                _write_text(str(self._exchange_file(exchange)), dumps(rest))

    def _read_table(self, exchange: str) -> list[Any]:
        try:
            text = self._exchange_file(exchange).read_bytes()
        except FileNotFoundError:
            return []
        return [filesystem.exchange_queue_t(*one) for one in loads(bytes_to_str(text))]

    @contextlib.contextmanager
    def _table_lock(self) -> Iterator[None]:
        with open(self.control_folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class FolderTransport(filesystem.Transport):  # type: ignore[misc]
    Channel = FolderChannel
    polling_interval = POLL_EVERY_S
    driver_type = "folder"
    driver_name = "folder"
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )
    connection_errors = (OSError,)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        earlier = getattr(self, "_polling", None)
        if earlier is not None:
            earlier.cancel()
        self._polling = loop.call_later(0.0, self._poll, loop)

    def _poll(self, loop: Any) -> None:
        """Reads some messages at a time, so that acknowledgements and commands do not wait. After one there
        may be more, as soon as these are acknowledged."""
        found = 0
        try:
            while found < _MOST_PER_POLL:
                self.cycle.get(self._deliver)
                found += 1
        except Empty:
            pass
        self._polling = loop.call_later(_POLL_AGAIN_S if found else POLL_EVERY_S, self._poll, loop)


def make_private(folder: str) -> str:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def _write_text(path: str, text: str) -> None:
    write_atomically(path, str_to_bytes(text), 0o666)  # a shared folder: the umask decides who may read
