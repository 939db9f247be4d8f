"""Jobs with tasks that a cluster's daemon started:
each is followed as a tree of its own, besides the rest of the job.

The use of such a task between the last sample and its end is known only to the daemon, which reaped it: its
counters stay at the last sample, and all sums are lower bounds from then on.
"""

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

from joblens.model.errors import ProbeError
from joblens.ports.probe import Probe
from joblens.probes.proc.process_tree import ProcessTreeProbe
from joblens.probes.proc.processes import IO_FIELDS

_COUNTERS = (
    "cpu_total_usec",
    "cpu_user_usec",
    "cpu_system_usec",
    "faults_minor",
    "faults_major",
    *IO_FIELDS,
)
_LEVELS = (
    "memory_anon_bytes",
    "memory_shmem_bytes",
    "memory_swap_bytes",
    "memory_virtual_bytes",
    "processes",
    "threads",
    "open_files",
)
_LARGEST = "memory_largest_process_bytes"
_FILES_OF_LARGEST = "memory_largest_process_file_bytes"
_MISSED = frozenset({"cpu", "faults", "io", "io_calls", "memory_parts", "memory_largest_process"})


class SeveralTrees:
    """`main` counts everything else; None: there is nothing else. `add` may be called on any thread."""

    name = "several-trees"

    def __init__(self, main: Probe | None = None) -> None:
        self.main = main
        self._trees: dict[int, ProcessTreeProbe] = {}
        self._latest: dict[int, dict[str, Any]] = {}
        self._ended: dict[str, int] = {}  # last readings of ended tasks
        self._largest: dict[str, int] = {}  # of all tasks there ever were
        self._has_followed = False
        self._own_sources: Mapping[str, str] = {}
        self._own_unknown: Mapping[str, str] = {}
        self._lock = threading.Lock()

    @property
    def sources(self) -> Mapping[str, str]:
        return self.main.sources if self.main is not None else self._own_sources

    @property
    def unknown(self) -> Mapping[str, str]:
        return self.main.unknown if self.main is not None else self._own_unknown

    @property
    def lower_bounds(self) -> set[str]:
        return {*getattr(self.main, "lower_bounds", ()), *(_MISSED if self._has_followed else ())}

    @property
    def is_following(self) -> bool:
        return bool(self._trees)

    def add(self, pid: int) -> None:
        """Raises ProbeError when there is no such process."""
        tree = ProcessTreeProbe(pid, include_root=True)
        with self._lock:
            self._own_sources, self._own_unknown = tree.sources, tree.unknown
            self._has_followed = True
            earlier = self._trees.pop(pid, None)
            if earlier is not None:
                self._end(pid, earlier)
            self._trees[pid] = tree

    def read(self) -> dict[str, Any]:
        fields = self.main.read() if self.main is not None else {}
        is_alone = self.main is None
        with self._lock:
            self._sample()
            for name in _COUNTERS:
                if is_alone or name in fields:
                    fields[name] = fields.get(name, 0) + self._ended.get(name, 0) + self._sum(name)
            for name in _LEVELS:
                if is_alone or name in fields:
                    fields[name] = (fields.get(name) or 0) + self._sum(name)
            for reading in self._latest.values():
                self._note_largest(reading)
            if self._largest.get(_LARGEST, 0) > fields.get(_LARGEST, 0):
                fields.pop(_FILES_OF_LARGEST, None)
                fields.update(self._largest)
        return fields

    def scan_all(self) -> None:
        """The next reading is the last."""
        for probe in (self.main, *self._trees.values()):
            scan = getattr(probe, "scan_all", None)
            if scan is not None:
                scan()

    def forget_peaks(self) -> None:
        forget = getattr(self.main, "forget_peaks", None)
        if forget is not None:
            forget()

    def descendants(self) -> list[int]:
        """Living processes of the job: below the main tree's root, and all of each task."""
        descendants = getattr(self.main, "descendants", None)
        return [*(descendants() if descendants is not None else ()), *self.followed()]

    def followed(self) -> list[int]:
        """The tasks that are alive, with everything below them."""
        found: list[int] = []
        with self._lock:
            for pid, tree in list(self._trees.items()):
                try:
                    found += [pid, *tree.descendants()]
                except ProbeError:
                    self._end(pid, self._trees.pop(pid))
        return found

    def close(self) -> None:
        with self._lock:
            for tree in self._trees.values():
                tree.close()
            self._trees.clear()
        if self.main is not None:
            self.main.close()

    def _sample(self) -> None:
        for pid, tree in list(self._trees.items()):
            try:
                self._latest[pid] = tree.read()
            except ProbeError:
                self._end(pid, self._trees.pop(pid))

    def _end(self, pid: int, tree: ProcessTreeProbe) -> None:
        reading = self._latest.pop(pid, {})
        for name in _COUNTERS:
            self._ended[name] = self._ended.get(name, 0) + reading.get(name, 0)
        self._note_largest(reading)
        with contextlib.suppress(Exception):
            tree.close()

    def _note_largest(self, reading: Mapping[str, Any]) -> None:
        if reading.get(_LARGEST, 0) >= self._largest.get(_LARGEST, 0):
            self._largest = {name: reading[name] for name in (_LARGEST, _FILES_OF_LARGEST) if name in reading}

    def _sum(self, name: str) -> int:
        return sum(reading.get(name) or 0 for reading in self._latest.values())
