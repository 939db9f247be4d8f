"""All processes below one, found anew at every look and kept while they live.

A process once seen stays a member although its parent is gone: what daemonised is still the job."""

import os
from collections.abc import Iterator

from joblens.probes.proc.descriptors import BUDGET, DescriptorBudget
from joblens.probes.proc.proc_files import ProcStat, parse_stat
from joblens.probes.proc.watched_process import WatchedProcess

_FULL_LOOK_EVERY = 5


class Member:
    """A process of the tree with its last reading. `process` is pinned to it where the budget allows."""

    __slots__ = ("process", "stat", "stat_text")

    def __init__(self, process: WatchedProcess, stat_text: bytes) -> None:
        self.process = process
        self.stat_text = stat_text
        self.stat: ProcStat = parse_stat(stat_text)

    def renew(self) -> bool:
        """Whether anything changed since the last look. Raises ProcessLookupError once it is gone."""
        text = self.process.read("stat")
        if text == self.stat_text:
            return False
        stat = parse_stat(text)
        if stat.start_ticks != self.stat.start_ticks:
            raise ProcessLookupError(self.process.pid)  # the pid has been given to another process
        self.stat_text, self.stat = text, stat
        return True


class Descendants:
    """`members` by pid, the root left out; zombies are members until someone waits for them."""

    def __init__(self, root_pid: int, proc: str = "/proc", budget: DescriptorBudget = BUDGET) -> None:
        self.members: dict[int, Member] = {}
        self.gone: list[Member] = []  # since the look before
        self.changed: set[int] = set()  # pids whose reading differs from the look before, new ones included
        self._root_pid = root_pid
        self._proc = proc
        self._budget = budget
        self._looks = 0
        self._kernel_lists_children = os.path.exists(f"{proc}/{root_pid}/task/{root_pid}/children")

    def look(self) -> None:
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
        self._looks += 1
        look_at_all = self._looks % _FULL_LOOK_EVERY == 0
        found: list[int] = []
        for pid, member in self.members.items():
            if member.stat.threads <= 1 or look_at_all or pid in self.changed:
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
        seen = set(pending)
        while pending:
            for pid in children.get(pending.pop(), ()):
                if pid not in seen:
                    seen.add(pid)
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
