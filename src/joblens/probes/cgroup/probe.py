"""Cgroup probe: a job's numbers from the kernel's control groups.

Exact whatever the job starts, at the same cost for one process and for a thousand.
"""

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from joblens.model.errors import ProbeError
from joblens.model.jobs.sample import DeviceIo
from joblens.probes.cgroup import counters
from joblens.probes.cgroup.counters import (
    GROUPS_OF_CGROUPS,
    NO_CPU_CONTROLLER,
    NO_CPU_LIMIT,
    NO_OOM_COUNT,
    sources_of,
    standing_reason,
    why_missing,
)
from joblens.probes.cgroup.layout import UNIFIED
from joblens.probes.proc.kernel_files import list_pids, pread_whole
from joblens.probes.proc.processes import BUDGET, DescriptorBudget, unknown_fields

_READ_SIZE = 8192  # every file that is read in one go is well below
# An open descriptor, the path of a file that is opened for every reading, or its contents.
_File = int | str | bytes
_PEAK_FILES = ("memory.peak", "memory.max_usage_in_bytes")


class CgroupProbe:
    """`paths`: hierarchy -> directory of the job's group, as in JobGroups.

    Descriptors stay open; a removed group raises ProbeError. Limits are read once, because they are set
    before the job starts. `contents`: path -> bytes, for removed groups: a launcher saved their `noted_files`
    when the last process had left.
    """

    name = "cgroup"
    counts_each_run = True  # its CPU time changes, however short a process runs

    def __init__(
        self,
        paths: Mapping[str, str],
        kind: str,
        *,
        sysfs: str = "/sys",
        budget: DescriptorBudget = BUDGET,
        contents: Mapping[str, bytes] | None = None,
    ) -> None:
        self._contents = contents
        self.sources: dict[str, str] = {}
        self.unknown: Mapping[str, str] = {}
        self._kind = kind
        self._paths = dict(paths)
        self._sysfs = sysfs
        self._budget = budget
        self._main_key = UNIFIED if UNIFIED in paths else next(iter(paths))
        self._main = paths[self._main_key]
        self._descriptors: list[int] = []
        self._readings: list[tuple[_File, Callable[[bytes], dict[str, Any]]]] = []
        self._read_paths: list[str] = []
        self._limit_paths: list[str] = []
        # Most of a group's files rarely change: no events, no waiting.
        self._parsed: dict[int, tuple[bytes, dict[str, Any]]] = {}
        self._processes: _File = ""
        self._io: _File | None = None
        self._is_stacked: dict[str, bool] = {}
        try:
            missing = self._open_files()
            self._limits = self._read_limits()
            self.unknown = unknown_fields(self._reasons(missing, self.read()))
        except BaseException:
            self.close()
            raise

    def read(self) -> dict[str, Any]:
        fields: dict[str, Any] = dict(self._limits)
        try:
            for index, (file, parse) in enumerate(self._readings):
                data = os.pread(file, _READ_SIZE, 0) if type(file) is int else _read_whole(file)
                known = self._parsed.get(index)
                if known is None or known[0] != data:
                    known = self._parsed[index] = (data, parse(data))
                fields.update(known[1])
            fields["processes"] = self._count_processes()
            if self._io is not None:
                self._add_io(fields, counters.parse_io_stat(_read_whole(self._io)))
        except OSError as error:
            raise self._gone(error) from error
        return fields

    def files(self) -> list[str]:
        """Returns the files that `read` reads, for another process to read; `parse` takes its result.

        The number of processes is not among them.
        """
        return list(self._read_paths)

    def noted_files(self) -> list[str]:
        """All files that `contents` of a later probe need."""
        return [*self._read_paths, *self._limit_paths]

    def peak_index(self) -> int:
        """Which of `files` is the memory peak that can be reset; -1: none."""
        names = [os.path.basename(path) for path in self._read_paths]
        return next((index for index, name in enumerate(names) if name in _PEAK_FILES), -1)

    def read_through(self, index: int, descriptor: int) -> None:
        """Reads that one of `files` by a descriptor of the caller's from now on."""
        self._readings[index] = (descriptor, self._readings[index][1])

    def parse(self, contents: Sequence[bytes]) -> dict[str, Any]:
        fields: dict[str, Any] = dict(self._limits)
        for index, ((_, parse), data) in enumerate(zip(self._readings, contents, strict=False)):
            known = self._parsed.get(index)
            if known is None or known[0] != data:
                known = self._parsed[index] = (data, parse(data))
            fields.update(known[1])
        if self._io is not None:
            self._add_io(fields, counters.parse_io_stat(contents[-1]))
        return fields

    def close(self) -> None:
        descriptors, self._descriptors, self._readings = self._descriptors, [], []
        self._io = None
        self._budget.give_back(len(descriptors))
        for descriptor in descriptors:
            os.close(descriptor)

    def _open_files(self) -> dict[str, str]:
        """Group of numbers -> why the file that would give it cannot be read."""
        processes = self._keep_open(self._main_key, "cgroup.procs", ("processes",))
        if processes is None:
            raise ProbeError(f"the job's control group {self._main} is not there")
        self._processes = processes
        missing = {}
        for source in sources_of(self._paths):
            file = self._keep_open(source.hierarchy, source.file, source.groups)
            if file is not None:
                self._readings.append((file, source.parse))
                self._read_paths.append(f"{self._paths[source.hierarchy]}/{source.file}")
                continue
            for group in source.groups:
                missing[group] = source.reason or why_missing(source.hierarchy, source.file)
        if self._contents is not None and not self._readings:
            raise ProbeError(f"nothing was noted of the job's control group {self._main}")
        if UNIFIED in self._paths:
            self._io = self._keep_open(UNIFIED, "io.stat", ("io", "io_ops", "io_devices"))
            if self._io is not None:
                self._read_paths.append(f"{self._paths[UNIFIED]}/io.stat")
        return missing

    def _keep_open(self, hierarchy: str, file: str, groups: Sequence[str]) -> _File | None:
        """None: there is no such file here. Beyond the descriptor budget its path, to open every time."""
        path = f"{self._paths[hierarchy]}/{file}"
        if self._contents is not None:
            noted = b"" if file == "cgroup.procs" else self._contents.get(path)
            if noted is not None:
                self._name_source(hierarchy, file, groups)
            return noted
        descriptor = _open_answering(path)
        if descriptor is None:
            return None
        self._name_source(hierarchy, file, groups)
        descriptors: _File = descriptor
        if self._budget.take(1):
            self._descriptors.append(descriptor)
        else:
            os.close(descriptor)
            descriptors = path
        return descriptors

    def _name_source(self, hierarchy: str, file: str, groups: Sequence[str]) -> None:
        version = "v2" if hierarchy == UNIFIED else "v1"
        for group in groups:
            known = self.sources.get(group)
            self.sources[group] = f"{known}, {file}" if known else f"cgroup {version} {file}"

    def _reasons(self, missing: dict[str, str], first: dict[str, Any]) -> dict[str, str]:
        """Why each group of numbers that a control group could give is unknown here."""
        for group in ("memory_kernel_peak", "memory_swap"):
            if group in missing and "memory" in missing:
                missing[group] = missing["memory"]  # no file of the controller is there: not the kernel's age
        # Some files are there on every kernel but have the line only on some.
        if "throttling" in self.sources and "cpu_throttled_usec" not in first:
            del self.sources["throttling"]
            missing["throttling"] = NO_CPU_CONTROLLER if self._kind == "cgroup-v2" else NO_CPU_LIMIT
        if "oom_kills" in self.sources and "oom_kills" not in first:
            del self.sources["oom_kills"]
            missing["oom_kills"] = NO_OOM_COUNT
        return {
            group: missing.get(group) or standing_reason(group, self._kind)
            for group in GROUPS_OF_CGROUPS
            if group not in self.sources
        }

    def _read_limits(self) -> dict[str, int]:
        limits: dict[str, int] = {}
        for hierarchy, file, group, parse in (
            ("memory", "memory.limit_in_bytes", "memory_limit", counters.parse_limit_v1),
            (UNIFIED, "memory.max", "memory_limit", counters.single_value("memory_limit_bytes")),
            ("pids", "pids.max", "pids_limit", counters.single_value("pids_limit")),
            (UNIFIED, "pids.max", "pids_limit", counters.single_value("pids_limit")),
        ):
            if hierarchy not in self._paths:
                continue
            path = f"{self._paths[hierarchy]}/{file}"
            text = self._read_limit(path)
            if text is None:
                continue
            self._limit_paths.append(path)
            limit = parse(text)
            if limit:
                limits.update(limit)
                self._name_source(hierarchy, file, (group,))
        return limits

    def _read_limit(self, path: str) -> bytes | None:
        if self._contents is not None:
            return self._contents.get(path)
        descriptor = _open_answering(path)
        if descriptor is None:
            return None
        try:
            return os.pread(descriptor, _READ_SIZE, 0)
        except OSError:  # the group went away just now
            return None
        finally:
            os.close(descriptor)

    def _gone(self, error: OSError) -> ProbeError:
        return ProbeError(f"the job's control group {self._main} cannot be read: {error.strerror}")

    def _count_processes(self) -> int:
        if isinstance(self._processes, bytes):
            return self._processes.count(b"\n")
        # Two links and one more per sub-group: the groups that a job made have processes too.
        if os.stat(self._main).st_nlink > 2:
            return len(list_pids(self._main))
        return _read_whole(self._processes).count(b"\n")

    def _add_io(self, fields: dict[str, Any], devices: dict[str, DeviceIo]) -> None:
        fields["devices"] = devices
        bottom = [io for name, io in devices.items() if not self._stands_on_others(name)]
        fields["io_read_bytes"] = sum(io.read_bytes for io in bottom)
        fields["io_write_bytes"] = sum(io.write_bytes for io in bottom)
        fields["io_read_ops"] = sum(io.read_ops for io in bottom)
        fields["io_write_ops"] = sum(io.write_ops for io in bottom)

    def _stands_on_others(self, device: str) -> bool:
        """The kernel counts one request on an LVM, RAID or encrypted volume and again on the disks below:
        totals take the disks only."""
        known = self._is_stacked.get(device)
        if known is None:
            try:
                known = bool(os.listdir(f"{self._sysfs}/dev/block/{device}/slaves"))
            except OSError:
                known = False
            self._is_stacked[device] = known
        return known


def _read_whole(file: _File) -> bytes:
    if isinstance(file, bytes):
        return file
    if isinstance(file, int):
        return pread_whole(file)
    with open(file, "rb", buffering=0) as opened:
        return opened.read()


def _open_answering(path: str) -> int | None:
    """None: there is no such file, or it is there but does not answer (pressure that is switched off)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise ProbeError(
                f"cannot open {path}: {error.strerror}", hint="raise the limit on open files (ulimit -n)"
            ) from error
        return None
    try:
        os.pread(descriptor, 1, 0)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
