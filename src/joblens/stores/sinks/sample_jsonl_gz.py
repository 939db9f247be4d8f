"""Samples as gzip-compressed JSON lines, live: <folder>/<uuid>/<YYYYmmdd-HHMMSS>.jsonl.gz.

A file is one gzip stream, complete after every write, so that a crash at any time leaves a readable file.
"""

import errno
import os
import struct
import warnings
import zlib
from collections.abc import Callable, Sequence

import msgspec

from joblens.analysis.formats.sample import to_sample_object
from joblens.files.private import make_private_folder
from joblens.model.jobs.details import Details, GpuFacts
from joblens.model.jobs.job import Job, Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import format_instant
from joblens.stores.sinks import SelectiveSink

# Lines are similar: the best level costs 30 µs per line. The window must hold the previous line; for most
# jobs a small window will do, with which a stream takes 64 KiB of memory.
_LEVEL, _MEMORY_LEVEL = 9, 6
_SMALL_WINDOW_BITS, _LARGE_WINDOW_BITS = 13, 15
_HEADER = b"\x1f\x8b\x08\x00" + bytes(4) + b"\x02\xff"  # gzip; no name, no time, best compression
_TRAILER = struct.Struct("<II")  # CRC-32 and length of the lines


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


class _GzipStream:
    """gzip file that is complete after every write: each write replaces the trailer of the previous one.

    `offset`: position behind an earlier stream in the same file; readers see one stream.
    """

    def __init__(self, path: str, line_length: int, offset: int = 0) -> None:
        self.path = path
        is_small = line_length <= 1 << _SMALL_WINDOW_BITS - 1
        self._window_bits = _SMALL_WINDOW_BITS if is_small else _LARGE_WINDOW_BITS
        self._packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, -self._window_bits, _MEMORY_LEVEL)
        self._fixed_size = offset  # bytes of the file that no write replaces
        self._unwritten = _HEADER
        self._end = b""  # state of the compressor behind them
        self._checksum = self._length = 0

    @property
    def size(self) -> int:
        return self._fixed_size + len(self._end)

    def suits(self, line_length: int) -> bool:
        return line_length <= 1 << self._window_bits - 1 or self._window_bits == _LARGE_WINDOW_BITS

    def append(self, lines: bytes, max_size: int) -> bool:
        """Appends lines; returns False and does nothing if the file would exceed `max_size`.

        Lines that could not be written (OSError) are written with the next ones.
        """
        packing = self._packing.copy()
        packed = self._unwritten + packing.compress(lines)
        checksum, length = zlib.crc32(lines, self._checksum), self._length + len(lines)
        end = packing.copy().flush() + _TRAILER.pack(checksum, length & 0xFFFFFFFF)
        if (self._length or self._fixed_size) and self._fixed_size + len(packed) + len(end) > max_size:
            return False
        self._packing, self._unwritten = packing, packed
        self._checksum, self._length = checksum, length
        self._replace_end(packed + end)
        self._fixed_size += len(packed)
        self._unwritten, self._end = b"", end
        return True

    def _replace_end(self, data: bytes) -> None:
        """Replaces the trailer.

        A crash half way leaves zeros behind a shorter trailer, which gzip readers skip.
        """
        is_new = not self._fixed_size
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if is_new else 0), 0o600)
        try:
            padded = data.ljust(len(self._end), b"\0")
            if os.pwrite(descriptor, padded, self._fixed_size) != len(padded):
                os.pwrite(descriptor, self._end, self._fixed_size)
                os.ftruncate(descriptor, self._fixed_size + len(self._end))
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if len(data) < len(padded):
                os.ftruncate(descriptor, self._fixed_size + len(data))
        finally:
            os.close(descriptor)


class _JobFile:
    """Output file of one job. Not kept open: there may be hundreds of jobs at once."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.previous: Sample | None = None
        self.stream: _GzipStream | None = None
        self.gpus: tuple[GpuFacts, ...] = ()


class SampleJsonlGz(SelectiveSink):
    def __init__(
        self,
        folder: str,
        max_file_size: int = 50 * 1024**2,
        warn: Callable[[str], None] = _warn,
    ) -> None:
        self._folder = folder
        self._max_file_size = max_file_size
        self._warn = warn
        self._has_warned = False
        self._jobs: dict[str, _JobFile] = {}

    def job_started(self, record: Record) -> None:
        job = self._jobs.get(record.job.uuid)
        if job is None:
            self._jobs[record.job.uuid] = _JobFile(record)
        else:
            job.record = record  # reported again, or after its first samples: keep the file

    def samples_taken(self, uuid: str, samples: Sequence[Sample]) -> None:
        if not samples:
            return
        job = self._job(uuid, samples[0].at_us - samples[0].elapsed_us)
        lines: list[bytes] = []
        for sample in samples:
            form = to_sample_object(sample, job.previous, job.record, job.gpus)
            lines.append(msgspec.json.encode(form) + b"\n")
            job.previous = sample
        try:
            self._append(job, samples[0].at_us, lines)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                self._warn(f"{self._folder} cannot be written: {error.strerror}; samples are missing there")

    def details_taken(self, uuid: str, details: Details) -> None:
        """Records what each GPU is, which every line repeats beside its numbers."""
        if details.gpus is not None:
            self._job(uuid, 0).gpus = details.gpus

    def jobs_ended(self, records: Sequence[Record]) -> None:
        for record in records:
            self._jobs.pop(record.job.uuid, None)

    def close(self) -> None:
        self._jobs.clear()

    def _job(self, uuid: str, began_at_us: int) -> _JobFile:
        job = self._jobs.get(uuid)
        if job is None:  # another process saw it start
            known = Job(uuid=uuid, argv=(), created_at_us=began_at_us)
            job = self._jobs[uuid] = _JobFile(Record(status=Status.RUNNING, job=known))
        return job

    def _append(self, job: _JobFile, at_us: int, lines: Sequence[bytes]) -> None:
        longest, together = max(map(len, lines)), b"".join(lines)
        stream = job.stream
        if stream is not None and not stream.suits(longest):
            stream = _GzipStream(stream.path, longest, stream.size)
        if stream is not None:
            job.stream = stream
            try:
                if stream.append(together, self._max_file_size):
                    return
            except FileNotFoundError:
                pass  # the file was removed
        job.stream = _GzipStream(self._new_path(job.record.job.uuid, at_us), longest)
        job.stream.append(together, self._max_file_size)

    def _new_path(self, uuid: str, at_us: int) -> str:
        folder = os.path.join(self._folder, uuid)
        make_private_folder(folder)
        text = format_instant(at_us)
        stamp = f"{text[:10].replace('-', '')}-{text[11:19].replace(':', '')}"
        path, number = os.path.join(folder, f"{stamp}.jsonl.gz"), 1
        while os.path.exists(path):
            number += 1
            path = os.path.join(folder, f"{stamp}_{number:03}.jsonl.gz")
        return path
