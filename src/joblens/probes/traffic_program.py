"""The program that the kernel runs for every packet of a group: it adds up, and lets everything pass.

One value holds both directions, each on a cache line of its own, since several CPUs count at once."""

import mmap
import struct

from joblens.probes.bpf import EGRESS, INGRESS

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
_LAYOUT = struct.Struct("=5Q24x5Q24x")  # in the order of FIELDS
_STARTS = {INGRESS: 0, EGRESS: 64}
_BYTES, _PACKETS, _TCP, _UDP, _IPV6 = 0, 8, 16, 24, 32

# Places in what the kernel hands to such a program, and in a socket.
_LENGTH, _ETHERNET_PROTOCOL, _SOCKET, _SOCKET_PROTOCOL = 0, 16, 168, 12
_IPV6_BIG_ENDIAN = 0xDD86
_FULL_SOCKET = 95  # helper: the socket, unless it is a mere request for one
_IPPROTO_TCP, _IPPROTO_UDP = 6, 17

_R0, _R1, _R6, _R7, _R8 = 0, 1, 6, 7, 8
_LOAD_32, _LOAD_64, _LOAD_ADDRESS, _ADD_ATOMIC = 0x61, 0x79, 0x18, 0xDB
_COPY, _SET, _IF_EQUAL, _IF_OTHER, _CALL, _EXIT = 0xBF, 0xB7, 0x15, 0x55, 0x85, 0x95
_ADDRESS_IN_MAP = 2


def program(counters: int, direction: int) -> bytes:
    """`counters`: descriptor of the map. The protocol is the socket's, which knows it also where IPv6 hides
    it behind headers of its own."""
    return b"".join(
        (
            _step(_COPY, _R6, _R1),
            _step(_LOAD_32, _R7, _R6, _LENGTH),
            _step(_LOAD_ADDRESS, _R8, _ADDRESS_IN_MAP, value=counters),
            _step(0, value=_STARTS[direction]),  # second half of the address
            _step(_ADD_ATOMIC, _R8, _R7, _BYTES),
            _step(_SET, _R1, value=1),
            _step(_ADD_ATOMIC, _R8, _R1, _PACKETS),
            _step(_LOAD_32, _R1, _R6, _ETHERNET_PROTOCOL),
            _step(_IF_OTHER, _R1, offset=1, value=_IPV6_BIG_ENDIAN),
            _step(_ADD_ATOMIC, _R8, _R7, _IPV6),
            _step(_LOAD_64, _R1, _R6, _SOCKET),
            _step(_IF_EQUAL, _R1, offset=7, value=0),
            _step(_CALL, value=_FULL_SOCKET),
            _step(_IF_EQUAL, _R0, offset=5, value=0),
            _step(_LOAD_32, _R1, _R0, _SOCKET_PROTOCOL),
            _step(_IF_OTHER, _R1, offset=1, value=_IPPROTO_TCP),
            _step(_ADD_ATOMIC, _R8, _R7, _TCP),
            _step(_IF_OTHER, _R1, offset=1, value=_IPPROTO_UDP),
            _step(_ADD_ATOMIC, _R8, _R7, _UDP),
            _step(_SET, _R0, value=1),  # let it pass
            _step(_EXIT),
        )
    )


def parse_counters(data: bytes | mmap.mmap) -> dict[str, int]:
    return dict(zip(FIELDS, _LAYOUT.unpack_from(data), strict=True))


def _step(code: int, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhi", code, source << 4 | to, offset, value)
