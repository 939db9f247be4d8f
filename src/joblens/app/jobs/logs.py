"""Output of a job, read from its files while they grow or after it has ended."""

import os
from collections.abc import Callable, Iterator
from typing import Protocol

from joblens.app.jobs.queries import Recover, records_until_final
from joblens.model.errors import InputError
from joblens.model.jobs.job import Record
from joblens.ports.store import Store

STREAMS = {"stdout": "stdout.log", "stderr": "stderr.log"}
_CHUNK = 1 << 18
_TAIL_CHUNK = 1 << 16
_NEWLINE = 0x0A
_LAST_LINES, _LAST_BYTES = 10, 4096


def printed_nothing(record: Record, stream: str) -> bool:
    """Returns whether it has ended without output there: then there may be no file."""
    outcome = record.outcome
    return outcome is not None and getattr(outcome, f"{stream}_bytes") == 0


def check_output(record: Record) -> None:
    """Raises InputError, which says why there is no output."""
    uuid = record.job.uuid
    if record.attempt is None:
        if record.status.is_final:
            raise InputError(f"job {uuid} was never started, so the job printed nothing")
        raise InputError(f"job {uuid} has not started yet", hint="follow it with --follow")
    if not record.attempt.logs_dir:
        raise InputError(f"the output of job {uuid} was not recorded")


def output_file_of(record: Record, stream: str) -> str:
    """Returns the path of a stream's file; InputError says why there is none."""
    check_output(record)
    assert record.attempt is not None
    path = os.path.join(record.attempt.logs_dir, STREAMS[stream])
    if not os.path.exists(path) and record.status.is_final:
        raise InputError(
            f"{path} no longer exists",
            hint="output is deleted after job_metrics.retention_days; see 'joblens config show'",
        )
    return path


class Output(Protocol):
    """One stream of a job, on this machine or behind a server."""

    def seek_last_lines(self, count: int) -> None: ...

    def read_on(self) -> Iterator[bytes]:
        """Yields everything since the last call."""
        ...

    def close(self) -> None: ...


OpenOutput = Callable[[Record, str], Output]


class LogReader:
    """Continues where it stopped. The file may have a hole in its middle (output beyond the size limit),
    and may be replaced by a shorter one when the job ends: the open descriptor still has it all."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._offset = 0

    def seek_last_lines(self, count: int) -> None:
        """Seeks to the start of the last `count` lines; an unfinished last line counts."""
        descriptor = self._open()
        if descriptor is None:
            return
        position = self._offset = os.fstat(descriptor).st_size
        missing = count
        if position and os.pread(descriptor, 1, position - 1) == b"\n":
            missing += 1  # the last line's own end
        while count and position > 0:
            start = max(0, position - _TAIL_CHUNK)
            chunk = os.pread(descriptor, position - start, start)
            ends = [index for index, byte in enumerate(chunk) if byte == _NEWLINE]
            if len(ends) >= missing:
                self._offset = start + ends[-missing] + 1
                return
            missing -= len(ends)
            position = self._offset = start

    def read_on(self) -> Iterator[bytes]:
        descriptor = self._open()
        if descriptor is None:
            return
        while True:
            skipped = self._skip_hole(descriptor)
            if skipped:
                yield f"\n[joblens: {skipped} bytes omitted]\n".encode()
            chunk = os.pread(descriptor, self._data_ahead(descriptor), self._offset)
            if not chunk:
                return
            self._offset += len(chunk)
            yield chunk

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int | None:
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
        return self._descriptor

    def _skip_hole(self, descriptor: int) -> int:
        try:
            data = os.lseek(descriptor, self._offset, os.SEEK_DATA)
        except OSError:  # nothing follows, or the file system does not support it
            return 0
        skipped, self._offset = data - self._offset, data
        return skipped

    def _data_ahead(self, descriptor: int) -> int:
        """Returns how much to read: not into a hole, which would give zeros."""
        try:
            hole = os.lseek(descriptor, self._offset, os.SEEK_HOLE)
        except OSError:
            return _CHUNK
        return min(_CHUNK, hole - self._offset) or _CHUNK


def open_output(record: Record, stream: str) -> Output:
    """Opens a file of this machine. Raises InputError."""
    return LogReader(output_file_of(record, stream))


def read_log(
    record: Record, stream: str, last_lines: int | None, open_it: OpenOutput = open_output
) -> Iterator[bytes]:
    """Reads the present output."""
    if printed_nothing(record, stream):
        return
    reader = open_it(record, stream)
    try:
        if last_lines is not None:
            reader.seek_last_lines(last_lines)
        yield from reader.read_on()
    finally:
        reader.close()


def printed_last(record: Record, stream: str, open_it: OpenOutput = open_output) -> str:
    """Returns the last lines of a stream, at most some kilobytes; '' if nothing was printed or stored."""
    tail = b""
    try:
        for chunk in read_log(record, stream, _LAST_LINES, open_it):
            tail = (tail + chunk)[-_LAST_BYTES:]
    except (InputError, OSError):
        return ""
    return tail.decode(errors="replace")


def follow_log(
    store: Store,
    uuid: str,
    stream: str,
    last_lines: int | None,
    recover: Recover,
    open_it: OpenOutput = open_output,
) -> Iterator[bytes]:
    """Yields the present output, then new output until the job has ended and everything is read. After a lost
    attempt, all that the next one prints follows."""
    reader: Output | None = None
    attempt = 0
    try:
        for record in records_until_final(store, uuid, recover):
            if reader is not None and record.attempt is not None and record.attempt.number != attempt:
                reader.close()
                reader, last_lines = None, None
            if printed_nothing(record, stream):
                return
            if reader is None and (record.attempt is not None or record.status.is_final):
                reader = open_it(record, stream)
                attempt = 0 if record.attempt is None else record.attempt.number
                if last_lines is not None:
                    reader.seek_last_lines(last_lines)
            if reader is not None:
                yield from reader.read_on()
    finally:
        if reader is not None:
            reader.close()


class OutputFollower:
    """Copies a job's output to this process's own streams, while it runs and after its end."""

    def __init__(self) -> None:
        self._readers: dict[int, LogReader] = {}
        self._attempt: tuple[int, str] | None = None
        self._gone: set[int] = set()  # streams without a reader
        self.ends_in_newline = {1: True, 2: True}
        self.is_elsewhere = False  # the job has ended, and its files are not on this machine

    def copy(self, record: Record) -> None:
        """Copies new output since the last call. After a lost attempt, the next one's follows."""
        attempt = record.attempt
        if attempt is None or not attempt.logs_dir:
            return
        if self._attempt != (attempt.number, attempt.logs_dir):
            self._attempt = (attempt.number, attempt.logs_dir)
            self.close()
            names = ((1, STREAMS["stdout"]), (2, STREAMS["stderr"]))
            self._readers = {
                stream: LogReader(os.path.join(attempt.logs_dir, name)) for stream, name in names
            }
        for stream, reader in self._readers.items():
            for chunk in reader.read_on():
                self._write(stream, chunk)
        self.is_elsewhere = record.status.is_final and not os.path.isdir(attempt.logs_dir)

    def _write(self, stream: int, chunk: bytes) -> None:
        self.ends_in_newline[stream] = chunk.endswith(b"\n")
        view = memoryview(chunk)
        try:
            while view and stream not in self._gone:
                view = view[os.write(stream, view) :]
        except OSError:
            self._gone.add(stream)  # the job continues; its files have everything

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers = {}
