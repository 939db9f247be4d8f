"""Mapping files for `dcgm-exporter --hpc-job-mapping-dir`: jobs of each NVIDIA GPU.

A file is named by the GPU's index and has the id of each job that uses it, one per line. DCGM metrics then
have the label hpc_job.
"""

import fcntl
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from joblens.files.atomic import write_atomically
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Record
from joblens.stores.sinks import SelectiveSink

_LOCK = ".joblens.lock"  # dcgm-exporter reads files whose name is a number
_LONGEST_FILE = 1 << 20


class GpuJobMap(SelectiveSink):
    """Several processes share the folder. A job's lines go with its end, whichever process records that."""

    def __init__(self, folder: str, warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._warn = warn
        self._has_warned = False
        self._added: set[tuple[str, str]] = set()

    def job_started(self, record: Record) -> None:
        """Devices that were assigned by index; others are known once the job uses them."""
        self._add(record.job.uuid, [device for device in record.gpu_devices if _is_index(device)])

    def details_taken(self, uuid: str, details: Details) -> None:
        self._add(uuid, [str(facts.index) for facts in details.gpus or () if facts.vendor == "nvidia"])

    def jobs_ended(self, records: Sequence[Record]) -> None:
        ended = {record.job.uuid for record in records}
        self._added = {(gpu, uuid) for gpu, uuid in self._added if uuid not in ended}
        self._change(lambda gpus: self._remove(ended, gpus))

    def _add(self, uuid: str, gpus: Sequence[str]) -> None:
        new = [gpu for gpu in gpus if (gpu, uuid) not in self._added]
        if not new:
            return
        self._added.update((gpu, uuid) for gpu in new)

        def add(_present: Collection[str]) -> None:
            for gpu in new:
                jobs = self._read(gpu)
                if uuid not in jobs:
                    self._write(gpu, [*jobs, uuid])

        self._change(add)

    def _remove(self, ended: Collection[str], gpus: Collection[str]) -> None:
        """An empty file stays: dcgm-exporter fails a scrape if a file vanishes while it reads the folder."""
        for gpu in gpus:
            jobs = self._read(gpu)
            others = [job for job in jobs if job not in ended]
            if others != jobs:
                self._write(gpu, others)

    def _change(self, step: Callable[[Collection[str]], None]) -> None:
        try:
            with self._locked() as gpus:
                step(gpus)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                self._warn(f"{self._folder}: GPU jobs cannot be written for dcgm-exporter: {error.strerror}")

    @contextmanager
    def _locked(self) -> Iterator[list[str]]:
        """Yields the GPUs that have a file."""
        os.makedirs(self._folder, mode=0o755, exist_ok=True)
        lock = os.open(os.path.join(self._folder, _LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield [name for name in os.listdir(self._folder) if _is_index(name)]
        finally:
            os.close(lock)

    def _read(self, gpu: str) -> list[str]:
        try:
            with open(os.path.join(self._folder, gpu), encoding="utf-8", errors="replace") as file:
                return file.read(_LONGEST_FILE).splitlines()
        except FileNotFoundError:
            return []

    def _write(self, gpu: str, jobs: Sequence[str]) -> None:
        content = "".join(f"{job}\n" for job in jobs)
        write_atomically(os.path.join(self._folder, gpu), content.encode(), mode=0o644)


def _is_index(name: str) -> bool:
    return name.isascii() and name.isdecimal()
