"""Samples as gzip-compressed JSON lines, live: <folder>/<uuid>/<YYYYmmdd-HHMMSS>.jsonl.gz.

Each flush is a gzip member of its own, so that a crash at any time leaves a readable file."""

import os
import warnings
import zlib
from collections.abc import Callable, Sequence

import msgspec

from joblens.analysis.sample_form import to_sample_object
from joblens.model.details import Details, GpuFacts
from joblens.model.job import Job, Record, Status
from joblens.model.sample import Sample
from joblens.model.units import format_instant
from joblens.stores.private_files import append_whole, make_private_folder, open_to_append

_GZIP = 31  # zlib's word for a gzip header and checksum


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


class _JobFile:
    """Where one job's samples go. Not kept open: there may be hundreds of jobs at once."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.previous: Sample | None = None
        self.path = ""
        self.size = 0
        self.gpus: tuple[GpuFacts, ...] = ()


class SampleJsonlGz:
    """ports.sink.Sink."""

    def __init__(
        self,
        folder: str,
        max_file_size: int = 50 * 1024**2,
        compression_level: int = 3,
        warn: Callable[[str], None] = _warn,
    ) -> None:
        self._folder = folder
        self._max_file_size = max_file_size
        self._level = max(1, min(9, compression_level))
        self._warn = warn
        self._has_warned = False
        self._jobs: dict[str, _JobFile] = {}

    def job_started(self, record: Record) -> None:
        job = self._jobs.get(record.job.uuid)
        if job is None:
            self._jobs[record.job.uuid] = _JobFile(record)
        else:
            job.record = record  # said again, or later than its first samples: the file stays

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
            self._append(job, samples[0].at_us, b"".join(lines))
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                self._warn(f"{self._folder} cannot be written: {error.strerror}; samples are missing there")

    def details_taken(self, uuid: str, details: Details) -> None:
        """Lines say what each GPU is, beside its numbers."""
        if details.gpus is not None:
            self._job(uuid, 0).gpus = details.gpus

    def jobs_ended(self, records: Sequence[Record]) -> None:
        for record in records:
            self._jobs.pop(record.job.uuid, None)

    def close(self) -> None:
        self._jobs.clear()

    def _job(self, uuid: str, began_at_us: int) -> _JobFile:
        job = self._jobs.get(uuid)
        if job is None:  # its start was seen by another process
            known = Job(uuid=uuid, argv=(), created_at_us=began_at_us)
            job = self._jobs[uuid] = _JobFile(Record(status=Status.RUNNING, job=known))
        return job

    def _append(self, job: _JobFile, at_us: int, lines: bytes) -> None:
        packing = zlib.compressobj(self._level, zlib.DEFLATED, _GZIP)
        member = packing.compress(lines) + packing.flush()
        if not job.path or job.size + len(member) > self._max_file_size:
            job.path, job.size = self._new_path(job.record.job.uuid, at_us), 0
        descriptor = open_to_append(job.path)
        try:
            append_whole(descriptor, member)
        finally:
            os.close(descriptor)
        job.size += len(member)

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
