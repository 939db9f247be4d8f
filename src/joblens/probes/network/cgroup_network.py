"""What went through a job's sockets, counted by the kernel: a program at its control group sees every packet.

No network namespace is needed, and nothing is missed between two readings. The counters lie in memory that is
shared with the kernel, so reading them is no system call."""

import errno
import mmap
import os
from collections.abc import Callable, Mapping

from joblens.probes.cgroup.layout import UNIFIED
from joblens.probes.network import bpf
from joblens.probes.network.traffic_code import FIELDS, VALUE_BYTES, parse_counters, program
from joblens.probes.proc.kernel_files import read_text

SOURCE = "BPF program at the job's control group"
NO_GROUP = "packets are counted at a control group, and this job has none"
NO_V2 = "packets can be counted at groups of cgroup v2 only, and there is no such hierarchy here"
NOT_COUNTED = "nobody counted its packets when it was started"
GONE = "its control group, where packets were counted, was gone before they were read"
MAY_NOT = "counting packets needs CAP_BPF and CAP_NET_ADMIN, or root"
_NAME = b"joblens_net"
_CAP_NET_ADMIN, _CAP_SYS_ADMIN, _CAP_BPF = 1 << 12, 1 << 21, 1 << 39


class PacketCounters:
    """`descriptor`: of the map, for a process that is to read it too; -1 once it is closed. `links`: closing
    them ends the counting."""

    def __init__(self, descriptor: int, links: tuple[int, ...] = ()) -> None:
        self.descriptor = descriptor
        self._links = links
        self._memory: mmap.mmap = bpf.map_value(descriptor, VALUE_BYTES)

    def read(self) -> dict[str, int]:
        return parse_counters(self._memory)

    def close_descriptor(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def close(self) -> None:
        self.close_descriptor()
        self._memory.close()
        links, self._links = self._links, ()
        for link in links:
            os.close(link)


def count_here(group_dir: str) -> PacketCounters:
    """From now until the group is removed, whatever becomes of this process. Raises OSError."""
    return _counting(group_dir, bpf.attach)


def count_as_guest(group_dir: str) -> PacketCounters:
    """At somebody else's group: nothing is left there when the counters are closed, or this process ends.
    Raises OSError."""
    return _counting(group_dir, bpf.attach_while_open)


def go_on_counting(group_dir: str) -> PacketCounters:
    """With what another process began by `count_here`. Raises OSError."""
    try:
        group = os.open(group_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise OSError(errno.ENOENT, GONE) from None
    try:
        for program_id in bpf.attached_programs(group, bpf.INGRESS):
            descriptor = bpf.open_map_of(program_id, _NAME)
            if descriptor is not None:
                return _mapped(descriptor)
    finally:
        os.close(group)
    raise OSError(errno.ENOENT, NOT_COUNTED)


def _counting(group_dir: str, attach: Callable[[int, int, int], int | None]) -> PacketCounters:
    group = os.open(group_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    opened: list[int] = []
    links: list[int] = []
    try:
        counters = bpf.create_array(_NAME, VALUE_BYTES)
        links.append(counters)  # until all has gone well it is one of those to be closed
        for direction in (bpf.INGRESS, bpf.EGRESS):
            opened.append(bpf.load_group_program(_NAME, program(counters, direction), direction))
            link = attach(group, opened[-1], direction)
            if link is not None:
                links.append(link)
    except OSError:
        opened += links
        raise
    finally:
        for descriptor in (*opened, group):
            os.close(descriptor)
    return _mapped(counters, tuple(links[1:]))


def _mapped(descriptor: int, links: tuple[int, ...] = ()) -> PacketCounters:
    try:
        return PacketCounters(descriptor, links)
    except OSError:
        for opened in (descriptor, *links):
            os.close(opened)
        raise


class CgroupNetworkProbe:
    """`group_dir`: of any cgroup v2 group; what runs in groups below it counts too. `begin` is one of the
    functions above. Never raises: what cannot be counted is unknown, with the reason."""

    name = "network"

    def __init__(
        self, group_dir: str, begin: Callable[[str], PacketCounters] = count_here, *, proc: str = "/proc"
    ) -> None:
        self.sources: dict[str, str] = {}
        self.unknown: Mapping[str, str] = {}
        self._counters: PacketCounters | None = None
        why = may_count(proc)
        if not why:
            try:
                self._counters = begin(group_dir)
            except OSError as error:
                why = _reason(error)
        if why:
            self.unknown = dict.fromkeys(FIELDS, why)
        else:
            self.sources["network"] = SOURCE

    @property
    def descriptor(self) -> int:
        """Of the counters, for a child that is to read them too; -1: there is none (any more)."""
        return self._counters.descriptor if self._counters is not None else -1

    def close_descriptor(self) -> None:
        """No child will need it."""
        if self._counters is not None:
            self._counters.close_descriptor()

    def read(self) -> dict[str, int]:
        return self._counters.read() if self._counters is not None else {}

    def parse(self, data: bytes) -> dict[str, int]:
        """What a child has read."""
        return parse_counters(data) if data else {}

    def close(self) -> None:
        counters, self._counters = self._counters, None
        if counters is not None:
            counters.close()


def v2_group(groups: Mapping[str, str]) -> tuple[str, str]:
    """(directory of the group where packets can be counted, why there is none)."""
    if UNIFIED in groups:
        return groups[UNIFIED], ""
    return "", NO_V2 if groups else NO_GROUP


def may_count(proc: str = "/proc") -> str:
    """Why this process may not count packets; '' where it may, as far as its capabilities tell."""
    for line in (read_text(f"{proc}/self/status") or "").splitlines():
        if line.startswith("CapEff:"):
            held = int(line.split()[1], 16)
            if held & _CAP_SYS_ADMIN or (held & _CAP_NET_ADMIN and held & _CAP_BPF):
                return ""
            return MAY_NOT
    return ""


def _reason(error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return MAY_NOT
    if error.errno == errno.ENOSYS:
        return "this kernel has no bpf call (CONFIG_BPF_SYSCALL, CONFIG_CGROUP_BPF)"
    if error.errno == errno.ENOENT and error.strerror in (NOT_COUNTED, GONE):
        return error.strerror
    return f"the program that counts packets could not be loaded: {error.strerror}"
