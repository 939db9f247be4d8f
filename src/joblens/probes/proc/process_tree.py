"""Process tree of a job without a cgroup: the sum over all descendants of one process.

It sees living processes. Ended ones are in the counters of the process that reaped them (a parent in the
tree, or the launcher, whose part the caller adds). One exception: children of a process that ignores SIGCHLD
are reaped by no one, and only their samples are known.

A process stays a member after its parent has ended: daemons are still part of the job.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from joblens.model.errors import ProbeError
from joblens.probes.proc.kernel_files import (
    USEC_PER_TICK,
    LargestProcess,
    ProcIo,
    ProcStat,
    ProcStatus,
    parse_io,
    parse_soft_open_files,
    parse_stat,
    parse_statm,
    parse_status,
)
from joblens.probes.proc.processes import (
    BUDGET,
    IO_FIELDS,
    DescriptorBudget,
    Resident,
    SharedPages,
    WatchedProcess,
    count_open_files,
    has_descriptor_counts,
    sum_io,
    unknown_fields,
)

_FULL_SCAN_EVERY = 5


class Member:
    """A process of the tree with its last reading. `process` is pinned to it where the budget allows."""

    __slots__ = ("process", "stat", "stat_text")

    def __init__(self, process: WatchedProcess, stat_text: bytes) -> None:
        self.process = process
        self.stat_text = stat_text
        self.stat: ProcStat = parse_stat(stat_text)

    def renew(self) -> bool:
        """Whether anything changed since the last sample. Raises ProcessLookupError if it has ended."""
        text = self.process.read("stat")
        if text == self.stat_text:
            return False
        stat = parse_stat(text)
        if stat.start_ticks != self.stat.start_ticks:
            raise ProcessLookupError(self.process.pid)  # the pid was reused
        self.stat_text, self.stat = text, stat
        return True


class Descendants:
    """`members` by pid, without the root; zombies are members until reaped."""

    def __init__(self, root_pid: int, proc: str = "/proc", budget: DescriptorBudget = BUDGET) -> None:
        self.members: dict[int, Member] = {}
        self.gone: list[Member] = []  # since the previous sample
        self.changed: set[int] = set()  # pids whose reading has changed, including new ones
        self._root_pid = root_pid
        self._proc = proc
        self._budget = budget
        self._scans = 0
        self._kernel_lists_children = os.path.exists(f"{proc}/{root_pid}/task/{root_pid}/children")

    def scan(self) -> None:
        self.gone, self.changed = [], set()
        for pid, member in list(self.members.items()):
            try:
                if member.renew():
                    self.changed.add(pid)
            except OSError:
                self.gone.append(self.members.pop(pid))
                member.process.close()
        if self._kernel_lists_children:
            self._follow_children()
        else:
            self._scan_parents()

    def close(self) -> None:
        for member in self.members.values():
            member.process.close()
        self.members.clear()

    def _follow_children(self) -> None:
        pending = [*self._children_of_root(), *self._children_of_members()]
        while pending:
            pid = pending.pop()
            if pid not in self.members and (member := self._admit(pid)):
                pending += _children(member)

    def _children_of_root(self) -> Iterator[int]:
        base = f"{self._proc}/{self._root_pid}/task"
        try:
            threads = os.listdir(base)
        except OSError:
            return
        for thread in threads:
            try:
                with open(f"{base}/{thread}/children", "rb", buffering=0) as file:
                    yield from map(int, file.read().split())
            except OSError:
                continue

    def _children_of_members(self) -> list[int]:
        """The threads of a process that did not run have no new children; asking each of them is dear, so
        that is believed most of the time."""
        self._scans += 1
        scan_all = self._scans % _FULL_SCAN_EVERY == 0
        found: list[int] = []
        for pid, member in self.members.items():
            if member.stat.threads <= 1 or scan_all or pid in self.changed:
                found += _children(member)
        return found

    def _scan_parents(self) -> None:
        """Where the kernel lists no children (CONFIG_PROC_CHILDREN): every process names its parent."""
        parent_of: dict[int, int] = {}
        for name in os.listdir(self._proc):
            if name.isdigit():
                try:
                    with open(f"{self._proc}/{name}/stat", "rb", buffering=0) as file:
                        parent_of[int(name)] = parse_stat(file.read()).parent_pid
                except (OSError, ValueError):
                    continue
        children: dict[int, list[int]] = {}
        for pid, parent in parent_of.items():
            children.setdefault(parent, []).append(pid)
        pending = [self._root_pid, *self.members]
        found_pids = set(pending)
        while pending:
            for pid in children.get(pending.pop(), ()):
                if pid not in found_pids:
                    found_pids.add(pid)
                    self._admit(pid)
                    pending.append(pid)

    def _admit(self, pid: int) -> Member | None:
        try:
            process = WatchedProcess(pid, self._proc, self._budget)
        except OSError:
            return None
        try:
            member = Member(process, process.read("stat"))
        except OSError:
            process.close()
            return None
        self.members[pid] = member
        self.changed.add(pid)
        return member


def _children(member: Member) -> list[int]:
    process = member.process
    try:
        if member.stat.threads <= 1:
            return [int(pid) for pid in process.read_whole(f"task/{process.pid}/children").split()]
        files = [f"task/{thread}/children" for thread in process.names_in("task")]
        return [int(pid) for file in files for pid in process.read_once(file).split()]
    except OSError:
        return []


_STATUS_A_READING = 8  # /proc/PID/status is dear: the processes take turns
# Processes whose stat line stands still: they may read and write and grow all the same, within a clock tick.
_STILL_A_READING = 64
_NO_GROUP = "needs a control group, which the job does not have"
_DENIED = "no permission to read a process of the job"
_NO_STATUS = ProcStatus(None, None, None, None, ignores_sigchld=False)
_NO_IO = ProcIo(0, 0, 0, 0, 0, 0)


class _Detail:
    """Last readings of one process besides its stat line."""

    __slots__ = ("anon_bytes", "denied", "io", "open_files", "status")

    def __init__(self) -> None:
        self.denied: set[str] = set()  # fields that it does not let this user see
        self.anon_bytes = 0
        self.open_files = 0
        self.io = _NO_IO
        self.status = _NO_STATUS


class ProcessTreeProbe:
    """Everything below `root_pid`; `include_root` adds that process, else it is the launcher and excluded.

    Counters are of living processes, including those they reaped. `lower_bounds`: groups of numbers that are
    known to miss something.
    """

    name = "process-tree"

    def __init__(
        self, root_pid: int, *, include_root: bool, proc: str = "/proc", budget: DescriptorBudget = BUDGET
    ) -> None:
        self.sources: Mapping[str, str] = {
            "cpu": "/proc/PID/stat",
            "faults": "/proc/PID/stat",
            "memory_parts": "/proc/PID/statm, smaps_rollup",
            "memory_largest_process": "/proc/PID/status VmHWM",
            "memory_virtual": "/proc/PID/stat",
            "memory_swap": "/proc/PID/status VmSwap",
            "io": "/proc/PID/io",
            "io_calls": "/proc/PID/io",
            "processes": "/proc/PID/task/TID/children",
            "threads": "/proc/PID/stat",
            "open_files": "/proc/PID/fd",
            "open_files_limit": "/proc/PID/limits",
        }
        self.unknown: dict[str, str] = _what_no_process_tells()
        self.lower_bounds: set[str] = set()
        self._tree = Descendants(root_pid, proc, budget)
        self._root: Member | None = None
        if include_root:
            try:
                process = WatchedProcess(root_pid, proc, budget)
                self._root = Member(process, process.read("stat"))
            except ProcessLookupError:
                raise ProbeError(f"there is no process {root_pid} to measure") from None
        self._details: dict[Member, _Detail] = {}
        self._shared = SharedPages()
        self._fd_has_size = has_descriptor_counts(proc)
        self._turn = self._still_turn = 0
        self._changed: set[int] = set()  # pids, since the last reading
        self._is_last = False
        self._largest = LargestProcess()
        self._open_files_limit: int | None = None
        self._lost = [0, 0, 0, 0]  # user, system ticks, faults: of children that were never reaped

    def read(self) -> dict[str, Any]:
        members = self._sample()
        alive = [member for member in members if member.stat.is_alive]
        self._renew_details(alive)
        self._take_turns(alive)
        fields = self._times(members)
        fields.update(self._memory(alive))
        fields["processes"] = len(alive)
        fields["threads"] = sum(member.stat.threads for member in alive)
        fields["open_files"] = sum(self._details[member].open_files for member in alive)
        # A zombie's I/O is in no other counter until it is reaped.
        fields.update(sum_io([self._details[member].io for member in members if member in self._details]))
        if self._open_files_limit is not None:
            fields["open_files_limit"] = self._open_files_limit
        for detail in self._details.values():
            for name in detail.denied:
                fields.pop(name, None)
                self.unknown[name] = _DENIED
        return fields

    def scan_all(self) -> None:
        """Makes the next reading complete, because it is the last."""
        self._is_last = True

    def descendants(self) -> list[int]:
        """Living processes below the root right now, zombies not counted."""
        self._sample()
        return [pid for pid, member in self._tree.members.items() if member.stat.is_alive]

    def forget_peaks(self) -> None:
        """Discards peaks of processes that had not become the job yet."""
        self._largest.forget()

    def close(self) -> None:
        self._tree.close()
        if self._root is not None:
            self._root.process.close()
        self._details.clear()

    def _sample(self) -> list[Member]:
        self._tree.scan()
        for member in self._tree.gone:
            self._note_loss(member)
            self._details.pop(member, None)
            self._shared.forget(member.process)
        members = list(self._tree.members.values())
        self._changed |= self._tree.changed  # listing descendants scans too, and reads nothing
        if self._root is not None:
            try:
                if self._root.renew():
                    self._changed.add(self._root.process.pid)
            except OSError as error:
                raise ProbeError(f"process {self._root.process.pid} has ended") from error
            members.append(self._root)
        return members

    def _note_loss(self, member: Member) -> None:
        """Keeps the last sample of a child that its parent never reaped: it is in no other counter."""
        parent_pid = member.stat.parent_pid
        parent = self._tree.members.get(parent_pid)
        if parent is None and self._root is not None and self._root.process.pid == parent_pid:
            parent = self._root
        detail = self._details.get(parent) if parent else None
        if detail is None or not detail.status.ignores_sigchld:
            return
        for index, value in enumerate(_own_and_reaped(member)):
            self._lost[index] += value

    def _renew_details(self, alive: Sequence[Member]) -> None:
        """Updates new and active processes, and as many idle ones as the budget allows."""
        still: list[Member] = []
        for member in alive:
            if member not in self._details:
                self._details[member] = _Detail()
            elif member.process.pid not in self._changed:
                still.append(member)
                continue
            self._renew_detail(member)
        self._changed.clear()
        if not self._is_last and len(still) > _STILL_A_READING:
            first = self._still_turn % len(still)
            self._still_turn = first + _STILL_A_READING
            still = [*still[first:], *still[:first]][:_STILL_A_READING]
        for member in still:
            self._renew_detail(member)

    def _renew_detail(self, member: Member) -> None:
        detail, process = self._details[member], member.process
        denied: set[str] = set()
        try:
            detail.anon_bytes = parse_statm(process.read("statm")).anon_bytes
            detail.open_files = count_open_files(process, denied, has_size=self._fd_has_size)
            detail.io = parse_io(process.read("io"))
        except PermissionError:
            denied.update(IO_FIELDS)
        except ProcessLookupError:
            return  # the next sample finds it ended
        detail.denied = denied

    def _take_turns(self, alive: Sequence[Member]) -> None:
        """New processes first, then everyone in turn."""
        fresh = [member for member in alive if self._details[member].status is _NO_STATUS]
        turns = fresh[:_STATUS_A_READING]
        for _ in range(min(_STATUS_A_READING, len(alive)) - len(turns)):
            turns.append(alive[self._turn % len(alive)])
            self._turn += 1
        for member in turns:
            try:
                status = parse_status(member.process.read_once("status"))
                if self._open_files_limit is None:
                    self._open_files_limit = parse_soft_open_files(member.process.read_once("limits"))
            except OSError:
                continue
            self._details[member].status = status
            self._largest.add(member.process.pid, status)
            if status.ignores_sigchld:
                self.lower_bounds.update(("cpu", "faults", "io", "io_calls"))

    def _times(self, members: Sequence[Member]) -> dict[str, Any]:
        counted = [_own_and_reaped(member) for member in members]
        user, system, minor, major = map(sum, zip(*counted, self._lost, strict=True))
        return {
            "cpu_total_usec": (user + system) * USEC_PER_TICK,
            "cpu_user_usec": user * USEC_PER_TICK,
            "cpu_system_usec": system * USEC_PER_TICK,
            "faults_minor": minor,
            "faults_major": major,
            "memory_virtual_bytes": sum(member.stat.virtual_bytes for member in members),
        }

    def _memory(self, alive: Sequence[Member]) -> dict[str, Any]:
        residents = []
        swap_bytes: int | None = 0
        for member in alive:
            detail = self._details[member]
            # An unreadable stack start is 0 for all: then each is a family of its own.
            origin = member.stat.stack_start or -member.process.pid
            shmem = detail.status.shmem_bytes or 0
            residents.append(Resident(member.process, origin, detail.anon_bytes, shmem))
            swap_bytes = (swap_bytes or 0) + (detail.status.swap_bytes or 0)
        anon_bytes, shmem_bytes = self._shared.sum_up(residents)
        if self._shared.is_lower_bound:
            self.lower_bounds.add("memory_parts")
        return {
            "memory_anon_bytes": anon_bytes,
            "memory_shmem_bytes": shmem_bytes,
            "memory_swap_bytes": swap_bytes,
            **self._largest.fields(),
        }


def _own_and_reaped(member: Member) -> tuple[int, int, int, int]:
    stat = member.stat
    return (
        stat.user_ticks + stat.user_ticks_reaped,
        stat.system_ticks + stat.system_ticks_reaped,
        stat.faults_minor + stat.faults_minor_reaped,
        stat.faults_major + stat.faults_major_reaped,
    )


def _what_no_process_tells() -> dict[str, str]:
    groups = (
        "throttling",
        "cpu_pressure",
        "memory_pressure",
        "io_pressure",
        "memory",
        "memory_kernel_peak",
        "memory_kernel",
        "memory_kernel_parts",
        "memory_limit",
        "memory_limit_events",
        "oom_events",
        "oom_kills",
        "io_ops",
        "io_devices",
        "pids_limit",
        "pids_limit_events",
    )
    unknown = unknown_fields(dict.fromkeys(groups, _NO_GROUP))
    for part in ("file", "file_mapped", "file_dirty", "file_writeback"):
        unknown[f"memory_{part}_bytes"] = _NO_GROUP
    return unknown
