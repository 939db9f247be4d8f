"""Network counters: of a job, at its control group, and of the interfaces of a machine or network namespace.

No network namespace is needed, and nothing is missed between two readings. The counters lie in memory that is
shared with the kernel, so reading them is no system call.

Put together by `traffic_program`, which says what it does; a test proves that both are the same.
"""

import array
import errno
import mmap
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from joblens.files.processes import process_start_ticks
from joblens.model.jobs.sample import InterfaceIo
from joblens.probes.cgroup.layout import UNIFIED
from joblens.probes.proc.kernel_files import (
    USEC_PER_TICK,
    call,
    call_writing,
    pread_whole,
    read_text,
)

NOT_ALLOWED = "a process of the job does not let this user look at its network"
SAME_NETWORK = "the job uses the machine's network, whose interfaces are everybody's"
_FEW = 4  # processes to look at: those of a container all have its network
_OFTEN, _SELDOM = 10, 15  # the first readings look for a namespace, after that one in so many
# A line has eight numbers of what came in, then eight of what went out.
_RX_BYTES, _RX_PACKETS, _RX_ERRORS, _RX_DROPPED = 0, 1, 2, 3
_TX_BYTES, _TX_PACKETS, _TX_ERRORS, _TX_DROPPED = 8, 9, 10, 11


class InterfacesProbe:
    """Of the first process that has a network of its own. What a namespace's interfaces counted before the
    job came to it is taken off; `has_begun`: the job itself was there before the measurement. `age_s`: how
    long ago it began."""

    name = "interfaces"

    def __init__(
        self,
        pids: Callable[[], Sequence[int]],
        *,
        has_begun: bool = False,
        age_s: float = 0.0,
        proc: str = "/proc",
        named: str = "/run/netns",
    ) -> None:
        self.sources: dict[str, str] = {}
        self.unknown: dict[str, str] = {"interfaces": SAME_NETWORK}
        self._pids = pids
        self._proc = proc
        self._has_begun = has_begun
        self._began_ticks = int((time.clock_gettime(time.CLOCK_BOOTTIME) - age_s) * 1e6) // USEC_PER_TICK
        self._named = frozenset[int]() if age_s else _named_namespaces(named)
        self._own = network_namespace("self", proc)
        self._file = -1
        self._base: Mapping[str, InterfaceIo] = {}
        self._seen: dict[str, InterfaceIo] = {}  # as last seen: an engine takes a container's away at its end
        self._readings = 0

    def read(self) -> dict[str, Any]:
        self._readings += 1
        if self._file < 0 and (self._readings <= _OFTEN or self._readings % _SELDOM == 0):
            self._look_for_namespace()
        if self._file < 0:
            return {}
        self._seen.update(interfaces_since(self._read(), self._base))
        return {"interfaces": dict(self._seen)}

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _look_for_namespace(self) -> None:
        pids = list(self._pids())
        for pid in pids[:_FEW]:
            try:
                found = os.stat(f"{self._proc}/{pid}/ns/net").st_ino
                if found == self._own:
                    continue
                # It stays readable when the process has ended.
                self._file = os.open(f"{self._proc}/{pid}/net/dev", os.O_RDONLY | os.O_CLOEXEC)
            except PermissionError:
                self.unknown["interfaces"] = NOT_ALLOWED
                continue
            except OSError:
                continue  # it has just ended
            if self._has_begun or self._is_older(found, pids):
                self._base = self._read()
            self.sources["interfaces"] = "/proc/PID/net/dev"
            self.unknown.clear()
            return

    def _is_older(self, namespace: int, own: Sequence[int]) -> bool:
        """The kernel does not tell when a namespace was made. It was there before the job if it had a name
        then, or if somebody else who is older than the job is in it."""
        if namespace in self._named:
            return True
        others = {int(name) for name in os.listdir(self._proc) if name.isdecimal()}.difference(own)
        return any(
            network_namespace(pid, self._proc) == namespace
            and (process_start_ticks(pid, self._proc) or self._began_ticks) < self._began_ticks
            for pid in others
        )

    def _read(self) -> dict[str, InterfaceIo]:
        return parse_interfaces(pread_whole(self._file))


def _named_namespaces(folder: str) -> frozenset[int]:
    """Those that `ip netns` keeps, whether or not somebody is in them."""
    try:
        return frozenset(os.stat(f"{folder}/{name}").st_ino for name in os.listdir(folder))
    except OSError:  # there are none, or one is just going
        return frozenset()


def network_namespace(pid: int | str, proc: str = "/proc") -> int | None:
    """Its number; None: the process is gone, or may not be looked at."""
    try:
        return os.stat(f"{proc}/{pid}/ns/net").st_ino
    except OSError:
        return None


def parse_interfaces(data: bytes) -> dict[str, InterfaceIo]:
    """Loopback included: within a namespace it is the job's own."""
    found = {}
    for line in data.splitlines()[2:]:
        name, _, rest = line.rpartition(b":")
        numbers = [int(word) for word in rest.split()]
        found[name.strip().decode("ascii", "replace")] = InterfaceIo(
            rx_bytes=numbers[_RX_BYTES],
            tx_bytes=numbers[_TX_BYTES],
            rx_packets=numbers[_RX_PACKETS],
            tx_packets=numbers[_TX_PACKETS],
            rx_errors=numbers[_RX_ERRORS],
            tx_errors=numbers[_TX_ERRORS],
            rx_dropped=numbers[_RX_DROPPED],
            tx_dropped=numbers[_TX_DROPPED],
        )
    return found


def interfaces_since(
    now: Mapping[str, InterfaceIo], base: Mapping[str, InterfaceIo]
) -> dict[str, InterfaceIo]:
    if not base:
        return dict(now)
    nothing = InterfaceIo()
    return {
        name: InterfaceIo(
            *(
                max(0, getattr(io, field) - getattr(base.get(name, nothing), field))
                for field in InterfaceIo.__struct_fields__
            )
        )
        for name, io in now.items()
    }


INGRESS, EGRESS = 0, 1  # where a group's packets pass a program

_CALL_NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361}
_MAP_CREATE, _PROG_LOAD, _PROG_ATTACH = 0, 5, 8
_PROG_GET_FD, _MAP_GET_FD, _INFO, _PROG_QUERY, _LINK_CREATE = 13, 14, 15, 16, 28
_ARRAY = 2
_MMAPABLE = 1 << 10
_CGROUP_SKB = 8
_ALLOW_MULTI = 2  # beside the programs of others, above and below
_MOST_PROGRAMS = 64  # the kernel's own bound for one group
_INFO_BYTES = 80
_LICENSE = array.array("B", b"MIT\0")


def create_array(name: bytes, value_bytes: int) -> int:
    """A map of one value, which can be mapped into memory. -> descriptor"""
    attributes = struct.pack("=5I8x16s", _ARRAY, 4, value_bytes, 1, _MMAPABLE, name)
    return _bpf(_MAP_CREATE, attributes)


def map_value(descriptor: int, value_bytes: int) -> mmap.mmap:
    return mmap.mmap(descriptor, value_bytes, mmap.MAP_SHARED, mmap.PROT_READ)


def load_group_program(name: bytes, code: bytes, direction: int) -> int:
    """-> descriptor. Without a log, which is most of what loading costs."""
    instructions = array.array("B", code)
    attributes = struct.pack(
        "=IIQQIIQII16sII",
        _CGROUP_SKB,
        len(code) // 8,
        instructions.buffer_info()[0],
        _LICENSE.buffer_info()[0],
        0,
        0,
        0,
        0,
        0,
        name,
        0,
        direction,
    )
    return _bpf(_PROG_LOAD, attributes)


def attach(group: int, program: int, direction: int) -> None:
    """For as long as the group exists, whoever made it go there."""
    _bpf(_PROG_ATTACH, struct.pack("=4I", group, program, direction, _ALLOW_MULTI))


def attach_while_open(group: int, program: int, direction: int) -> int:
    """-> descriptor; the program is gone from the group when it is closed, also by this process's end."""
    return _bpf(_LINK_CREATE, struct.pack("=4I", program, group, direction, 0))


def attached_programs(group: int, direction: int) -> list[int]:
    """Ids of those that were attached to this very group."""
    ids = array.array("I", bytes(4 * _MOST_PROGRAMS))
    attributes = bytearray(
        struct.pack("=4IQI4x", group, direction, 0, 0, ids.buffer_info()[0], _MOST_PROGRAMS)
    )
    call_writing(_number(), _PROG_QUERY, attributes, len(attributes))
    (count,) = struct.unpack_from("=I", attributes, 24)
    return ids[:count].tolist()


def open_map_of(program_id: int, name: bytes) -> int | None:
    """Descriptor of the one map that the program of that name uses; None: it is another's program."""
    program = _bpf(_PROG_GET_FD, struct.pack("=3I", program_id, 0, 0))
    try:
        maps = array.array("I", bytes(4))
        info = array.array("B", struct.pack("=52xIQ16s", 1, maps.buffer_info()[0], b""))
        _bpf(_INFO, struct.pack("=IIQ", program, _INFO_BYTES, info.buffer_info()[0]))
        found_name = info.tobytes()[64:80].rstrip(b"\0")
    finally:
        os.close(program)
    if found_name != name or not maps[0]:
        return None
    return _bpf(_MAP_GET_FD, struct.pack("=3I", maps[0], 0, 0))


def _bpf(command: int, attributes: bytes) -> int:
    return call(_number(), command, attributes, len(attributes))


def _number() -> int:
    machine = os.uname().machine
    if machine not in _CALL_NUMBERS:
        raise OSError(38, f"the number of the bpf call on {machine} is not known")
    return _CALL_NUMBERS[machine]


VALUE_BYTES = 128
FIELDS = (
    "network_rx_bytes",
    "network_rx_packets",
    "network_tcp_rx_bytes",
    "network_udp_rx_bytes",
    "network_ipv6_rx_bytes",
    "network_tx_bytes",
    "network_tx_packets",
    "network_tcp_tx_bytes",
    "network_udp_tx_bytes",
    "network_ipv6_tx_bytes",
)
STARTS = {INGRESS: 0, EGRESS: 64}  # of the counters of a direction
_LAYOUT = struct.Struct("=5Q24x5Q24x")  # in the order of FIELDS
_MAP_PLACE, _START_PLACE = 532, 540  # in the code: descriptor of the map, and where its counters begin
_NUMBER = struct.Struct("=i")
_CODE = bytes.fromhex(
    "bf16000000000000b7010000000000007b1ae8ff000000007961a800000000001501040000000000850000005f000000"
    "150002000000000061010c00000000007b1ae8ff0000000061670000000000006169a400000000002509020001000000"
    "b7090000010000000500340000000000616110000000000015010d0086dd0000b702000000000000bf61000000000000"
    "bfa300000000000007030000f8ffffffb704000001000000850000001a00000055002b000000000071a1f8ff00000000"
    "570100000f0000006701000002000000bf120000000000007b2af0ff000000000500110000000000b702000006000000"
    "bf61000000000000bfa300000000000007030000f8ffffffb704000001000000850000001a00000055001e0000000000"
    "71a1f8ff00000000b7020000280000007b2af0ff00000000150106000600000015010500110000005501180000000000"
    "25070100ffff000005001600000000001707000008000000070200000800000079a3e8ff00000000b701000008000000"
    "15030b00110000005503100006000000070200000c000000bf61000000000000bfa300000000000007030000f8ffffff"
    "b704000001000000850000001a000000550009000000000071a1f8ff0000000077010000040000006701000002000000"
    "79a2f0ff000000000f21000000000000bf9200000000000017020000010000002f210000000000000f17000000000000"
    "18280000000000000000000000000000db78000000000000db9808000000000061611000000000005501010086dd0000"
    "db7820000000000079a1e8ff000000005501010006000000db781000000000005501010011000000db78180000000000"
    "b7000000010000009500000000000000"
)


def program(counters: int, direction: int) -> bytes:
    """`counters`: descriptor of the map."""
    code = bytearray(_CODE)
    _NUMBER.pack_into(code, _MAP_PLACE, counters)
    _NUMBER.pack_into(code, _START_PLACE, STARTS[direction])
    return bytes(code)


def parse_counters(data: bytes | mmap.mmap) -> dict[str, int]:
    return dict(zip(FIELDS, _LAYOUT.unpack_from(data), strict=True))


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
        self._memory: mmap.mmap = map_value(descriptor, VALUE_BYTES)

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
    return _counting(group_dir, attach)


def count_as_guest(group_dir: str) -> PacketCounters:
    """At somebody else's group: nothing is left there when the counters are closed, or this process ends.
    Raises OSError."""
    return _counting(group_dir, attach_while_open)


def go_on_counting(group_dir: str) -> PacketCounters:
    """With what another process began by `count_here`. Raises OSError."""
    try:
        group = os.open(group_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise OSError(errno.ENOENT, GONE) from None
    try:
        for program_id in attached_programs(group, INGRESS):
            descriptor = open_map_of(program_id, _NAME)
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
        counters = create_array(_NAME, VALUE_BYTES)
        links.append(counters)  # until all has gone well it is one of those to be closed
        for direction in (INGRESS, EGRESS):
            opened.append(load_group_program(_NAME, program(counters, direction), direction))
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
