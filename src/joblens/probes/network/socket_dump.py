"""Socket listing by sock_diag, for cgroups here or in another network namespace.

The kernel gets a filter with the groups' ids, so that it returns only their sockets, however many others
there are.
"""

import _socket
import errno
import os
import struct
import sys
from collections.abc import Iterator, Sequence

from msgspec import Struct

from joblens.model.errors import ProbeError
from joblens.probes.proc.kernel_files import call

TCP, UDP = "tcp", "udp"
_PROTOCOLS = {TCP: _socket.IPPROTO_TCP, UDP: _socket.IPPROTO_UDP}
_FAMILIES = (_socket.AF_INET, _socket.AF_INET6)
_NETLINK_SOCK_DIAG = 4
_ASK_BY_FAMILY, _REQUEST_DUMP = 20, 0x301
_ERROR, _DONE = 2, 3
_REQUEST_BYTECODE = 1
_INFO, _CGROUP_ID = 2, 21  # attributes of an answer
_LISTENING = 10
_ALL_STATES = 0xFFF
_PASSING = 1 << 6 | 1 << 12  # time-wait, half-open requests: they belong to no group
_MOST_GROUPS = 1000  # of one filter
_ANSWER_BYTES = 1 << 16
_TIMEOUT_S = 5.0

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_REQUEST = struct.Struct("=BBBxI48x")
_SOCKET = struct.Struct("=BBxx2s2s16s16s4xQ20x")  # family, state, ports, addresses, cookie
_CONDITION = struct.Struct("=BBHQ")
_JUMP = struct.Struct("=BBH")
_CODE_JUMP, _CODE_CGROUP = 1, 13
# Offsets in tcp_info.
_RTT, _RETRANSMITS, _ACKED, _RECEIVED, _SENT, _RESENT = 68, 100, 120, 128, 200, 208


class SocketSeen(Struct, frozen=True):
    """One socket at one moment. Bytes are payload; None: the kernel does not count them for its kind."""

    group: int
    cookie: int  # never used again
    protocol: str
    local: str
    local_port: int
    remote: str
    remote_port: int  # 0: not connected
    is_listening: bool
    rx_bytes: int | None = None
    tx_bytes: int | None = None
    retransmits: int | None = None
    rtt_usec: int | None = None


class SocketDump:
    """Of the network namespace of the thread that opens it. Raises ProbeError."""

    def __init__(self) -> None:
        kind = _socket.SOCK_RAW | _socket.SOCK_CLOEXEC
        try:
            self._netlink = _socket.socket(_socket.AF_NETLINK, kind, _NETLINK_SOCK_DIAG)
        except OSError as error:
            raise ProbeError(f"cannot list sockets: {error.strerror}") from error
        self._netlink.settimeout(_TIMEOUT_S)

    def close(self) -> None:
        self._netlink.close()

    def sockets(self, groups: Sequence[int]) -> Iterator[SocketSeen]:
        """`groups`: ids, which are the inode numbers of their directories."""
        for start in range(0, len(groups), _MOST_GROUPS):
            bytecode = filter_for(groups[start : start + _MOST_GROUPS])
            for protocol in _PROTOCOLS:
                for family in _FAMILIES:
                    yield from self._dump(protocol, family, bytecode)

    def _dump(self, protocol: str, family: int, bytecode: bytes) -> Iterator[SocketSeen]:
        wants_info = 1 << (_INFO - 1) if protocol == TCP else 0
        states = _ALL_STATES & ~_PASSING
        body = _REQUEST.pack(family, _PROTOCOLS[protocol], wants_info, states)
        body += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(bytecode), _REQUEST_BYTECODE) + bytecode
        head = _HEADER.pack(_HEADER.size + len(body), _ASK_BY_FAMILY, _REQUEST_DUMP, 0, 0)
        try:
            self._netlink.send(head + body)
            while True:
                data = self._netlink.recv(_ANSWER_BYTES)
                for kind, message in _messages(data):
                    if kind == _DONE:
                        return
                    if kind == _ERROR:
                        self._refused(struct.unpack_from("=i", message)[0], protocol)
                        return
                    yield parse_socket(message, protocol)
        except OSError as error:
            raise ProbeError(f"the kernel did not list the sockets: {error.strerror or error}") from error

    def _refused(self, code: int, protocol: str) -> None:
        if -code == errno.ENOENT:
            return  # the kernel has no such sockets: udp_diag is not loaded, or there is no IPv6
        if -code == errno.EINVAL:
            raise ProbeError("this kernel cannot filter sockets by cgroup (Linux 5.9 and later can)")
        raise ProbeError(f"the kernel does not list {protocol} sockets: {os.strerror(-code)}")


def filter_for(groups: Sequence[int]) -> bytes:
    """Returns a filter that passes the sockets of these groups. The kernel's filters jump by bytes: when a
    condition holds, the jump behind it leads to the end, else it is skipped. Behind the end means refused."""
    size = _CONDITION.size + _JUMP.size
    code = b""
    for index, group in enumerate(groups):
        skip = (len(groups) - 1 - index) * size
        is_last = not skip
        otherwise = _CONDITION.size + 4 if is_last else size
        code += _CONDITION.pack(_CODE_CGROUP, _CONDITION.size, otherwise, group)
        if not is_last:
            code += _JUMP.pack(_CODE_JUMP, _JUMP.size, skip)
    return code


def parse_socket(message: bytes, protocol: str) -> SocketSeen:
    family, state, local_port, remote_port, local, remote, cookie = _SOCKET.unpack_from(message)
    attributes = dict(_attributes(message[_SOCKET.size :]))
    info = attributes.get(_INFO, b"")
    group = int.from_bytes(attributes.get(_CGROUP_ID, b"")[:8], sys.byteorder)
    is_listening = state == _LISTENING
    numbers = _tcp_numbers(info) if protocol == TCP and not is_listening else {}
    return SocketSeen(
        group=group,
        cookie=cookie,
        protocol=protocol,
        local=_address(family, local),
        local_port=int.from_bytes(local_port, "big"),
        remote=_address(family, remote),
        remote_port=int.from_bytes(remote_port, "big"),
        is_listening=is_listening,
        **numbers,
    )


def _tcp_numbers(info: bytes) -> dict[str, int]:
    if len(info) < _RECEIVED + 8:
        return {}
    numbers = {
        "rx_bytes": struct.unpack_from("=Q", info, _RECEIVED)[0],
        "tx_bytes": struct.unpack_from("=Q", info, _ACKED)[0],
        "retransmits": struct.unpack_from("=I", info, _RETRANSMITS)[0],
        "rtt_usec": struct.unpack_from("=I", info, _RTT)[0],
    }
    if len(info) >= _RESENT + 8:
        # Acknowledged bytes include one for opening the connection; sent bytes do not.
        sent, resent = struct.unpack_from("=QQ", info, _SENT)
        numbers["tx_bytes"] = sent - resent
    return numbers


def _address(family: int, data: bytes) -> str:
    if family == _socket.AF_INET:
        return _socket.inet_ntop(_socket.AF_INET, data[:4])
    if data[:12] == b"\0" * 10 + b"\xff\xff":  # IPv4 through a socket for both
        return _socket.inet_ntop(_socket.AF_INET, data[12:])
    return _socket.inet_ntop(_socket.AF_INET6, data)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, start)
        yield kind, data[start + _HEADER.size : start + length]
        start += max(_HEADER.size, length + 3 & ~3)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        yield kind, data[start + _ATTRIBUTE.size : start + length]
        start += max(_ATTRIBUTE.size, length + 3 & ~3)


_SETNS = {"x86_64": 308, "aarch64": 268, "riscv64": 268, "ppc64le": 350}
_NEW_NETWORK = 0x40000000


def dump_in(pid: int) -> SocketDump:
    """In the namespace of that process. The calling thread, and no other, is there for a moment: a netlink
    socket belongs to the namespace that it was opened in. Raises ProbeError."""
    try:
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            theirs = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _enter(theirs)
            finally:
                os.close(theirs)
            try:
                return SocketDump()
            finally:
                _enter(own)
        finally:
            os.close(own)
    except OSError as error:
        raise ProbeError(
            f"the job has a network namespace of its own, which cannot be entered: {error.strerror}",
            hint="that needs CAP_SYS_ADMIN",
        ) from error


def _enter(namespace: int) -> None:
    number = _SETNS.get(os.uname().machine)
    if number is None:
        raise OSError(38, "the number of the setns call is not known here")
    call(number, namespace, _NEW_NETWORK)
