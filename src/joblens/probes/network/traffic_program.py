"""BPF program that the kernel runs for every packet of a group: it counts, and lets everything pass.

A segment that TCP passes in one piece may be many packets on the wire; they are counted as such, each with
its headers, so that sender and receiver have the same numbers. One value holds both directions, each on a
cache line of its own, because several CPUs count at once.

The result is stored in `traffic_code`: assembling it at the start of a job would take too long.
"""

import struct

from joblens.probes.network.cgroup_network import STARTS

_BYTES, _PACKETS, _TCP, _UDP, _IPV6 = 0, 8, 16, 24, 32

# Offsets in the context of such a program, and in a socket.
_LENGTH, _ETHERNET_PROTOCOL, _SEGMENTS, _SOCKET, _SOCKET_PROTOCOL = 0, 16, 164, 168, 12
_IPV6_BIG_ENDIAN = 0xDD86
_IPV6_HEADER, _JUMBO_HEADER, _UDP_HEADER = 40, 8, 8
_IPV6_NEXT_OFFSET, _TCP_SIZE_OFFSET, _LONGEST_IPV6 = 6, 12, 0xFFFF
_HOP_BY_HOP, _IPPROTO_TCP, _IPPROTO_UDP = 0, 6, 17
_COPY_BYTES, _FULL_SOCKET = 26, 95  # helpers: bytes of the packet; the socket unless it is a mere request

_R0, _R1, _R2, _R3, _R4, _PACKET, _SIZE, _COUNTERS, _COUNT, _STACK = 0, 1, 2, 3, 4, 6, 7, 8, 9, 10
_ONE_BYTE, _IP_SIZE, _PROTOCOL = -8, -16, -24  # on the stack
_LOAD_8, _LOAD_32, _LOAD_64, _STORE_64, _LOAD_ADDRESS = 0x71, 0x61, 0x79, 0x7B, 0x18
_COPY, _SET, _ADD, _ADD_TO, _SUBTRACT, _MULTIPLY = 0xBF, 0xB7, 0x07, 0x0F, 0x17, 0x2F
_AND, _SHIFT_LEFT, _SHIFT_RIGHT, _ADD_ATOMIC = 0x57, 0x67, 0x77, 0xDB
_GO_IF_EQUAL, _GO_IF_OTHER, _GO_IF_ABOVE, _CALL, _EXIT = 0x15, 0x55, 0x25, 0x85, 0x95
_GO = 0x05
_ADDRESS_IN_MAP = 2


_Step = tuple[int, int, int, int, int, str]


def _step(
    code: int, to: int = 0, source: int = 0, field_offset: int = 0, value: int = 0, go: str = ""
) -> _Step:
    """`go`: label of the step that follows when the condition holds."""
    return code, to, source, field_offset, value, go


def program(counters: int, direction: int) -> bytes:
    """`counters`: descriptor of the map."""
    return _assembled((*_PROTOCOL_OF_SOCKET, *_SIZE_ON_THE_WIRE, *_adding(counters, direction)))


# The protocol is the socket's, which knows it also where IPv6 hides it behind headers of its own.
_PROTOCOL_OF_SOCKET: tuple[_Step | str, ...] = (
    _step(_COPY, _PACKET, _R1),
    _step(_SET, _R1),
    _step(_STORE_64, _STACK, _R1, _PROTOCOL),
    _step(_LOAD_64, _R1, _PACKET, _SOCKET),
    _step(_GO_IF_EQUAL, _R1, value=0, go="size"),
    _step(_CALL, value=_FULL_SOCKET),
    _step(_GO_IF_EQUAL, _R0, value=0, go="size"),
    _step(_LOAD_32, _R1, _R0, _SOCKET_PROTOCOL),
    _step(_STORE_64, _STACK, _R1, _PROTOCOL),
)


def _one_byte(otherwise: str) -> tuple[_Step, ...]:
    """Loads a byte of the packet, at the offset in R2, into R1."""
    return (
        _step(_COPY, _R1, _PACKET),
        _step(_COPY, _R3, _STACK),
        _step(_ADD, _R3, value=_ONE_BYTE),
        _step(_SET, _R4, value=1),
        _step(_CALL, value=_COPY_BYTES),
        _step(_GO_IF_OTHER, _R0, value=0, go=otherwise),
        _step(_LOAD_8, _R1, _STACK, _ONE_BYTE),
    )


# All but the first packet of several in one piece have headers that are not in its length.
_SIZE_ON_THE_WIRE: tuple[_Step | str, ...] = (
    "size",
    _step(_LOAD_32, _SIZE, _PACKET, _LENGTH),
    _step(_LOAD_32, _COUNT, _PACKET, _SEGMENTS),
    _step(_GO_IF_ABOVE, _COUNT, value=1, go="several"),
    _step(_SET, _COUNT, value=1),
    _step(_GO, go="add"),
    "several",
    _step(_LOAD_32, _R1, _PACKET, _ETHERNET_PROTOCOL),
    _step(_GO_IF_EQUAL, _R1, value=_IPV6_BIG_ENDIAN, go="ipv6"),
    _step(_SET, _R2),
    *_one_byte(otherwise="add"),
    _step(_AND, _R1, value=15),
    _step(_SHIFT_LEFT, _R1, value=2),  # it is in units of four bytes
    _step(_COPY, _R2, _R1),
    _step(_STORE_64, _STACK, _R2, _IP_SIZE),
    _step(_GO, go="behind ip"),
    "ipv6",
    _step(_SET, _R2, value=_IPV6_NEXT_OFFSET),
    *_one_byte(otherwise="add"),
    _step(_SET, _R2, value=_IPV6_HEADER),
    _step(_STORE_64, _STACK, _R2, _IP_SIZE),
    _step(_GO_IF_EQUAL, _R1, value=_IPPROTO_TCP, go="behind ip"),
    _step(_GO_IF_EQUAL, _R1, value=_IPPROTO_UDP, go="behind ip"),
    _step(_GO_IF_OTHER, _R1, value=_HOP_BY_HOP, go="add"),
    # A piece too long for IPv6 has an extra header, which no packet on the wire will have.
    _step(_GO_IF_ABOVE, _SIZE, value=_LONGEST_IPV6, go="jumbo"),
    _step(_GO, go="add"),
    "jumbo",
    _step(_SUBTRACT, _SIZE, value=_JUMBO_HEADER),
    _step(_ADD, _R2, value=_JUMBO_HEADER),
    "behind ip",
    _step(_LOAD_64, _R3, _STACK, _PROTOCOL),
    _step(_SET, _R1, value=_UDP_HEADER),
    _step(_GO_IF_EQUAL, _R3, value=_IPPROTO_UDP, go="headers"),
    _step(_GO_IF_OTHER, _R3, value=_IPPROTO_TCP, go="add"),
    _step(_ADD, _R2, value=_TCP_SIZE_OFFSET),
    *_one_byte(otherwise="add"),
    _step(_SHIFT_RIGHT, _R1, value=4),
    _step(_SHIFT_LEFT, _R1, value=2),
    "headers",
    _step(_LOAD_64, _R2, _STACK, _IP_SIZE),
    _step(_ADD_TO, _R1, _R2),
    _step(_COPY, _R2, _COUNT),
    _step(_SUBTRACT, _R2, value=1),
    _step(_MULTIPLY, _R1, _R2),
    _step(_ADD_TO, _SIZE, _R1),
)


def _adding(counters: int, direction: int) -> tuple[_Step | str, ...]:
    return (
        "add",
        _step(_LOAD_ADDRESS, _COUNTERS, _ADDRESS_IN_MAP, value=counters),
        _step(0, value=STARTS[direction]),  # second half of the address
        _step(_ADD_ATOMIC, _COUNTERS, _SIZE, _BYTES),
        _step(_ADD_ATOMIC, _COUNTERS, _COUNT, _PACKETS),
        _step(_LOAD_32, _R1, _PACKET, _ETHERNET_PROTOCOL),
        _step(_GO_IF_OTHER, _R1, value=_IPV6_BIG_ENDIAN, go="tcp"),
        _step(_ADD_ATOMIC, _COUNTERS, _SIZE, _IPV6),
        "tcp",
        _step(_LOAD_64, _R1, _STACK, _PROTOCOL),
        _step(_GO_IF_OTHER, _R1, value=_IPPROTO_TCP, go="udp"),
        _step(_ADD_ATOMIC, _COUNTERS, _SIZE, _TCP),
        "udp",
        _step(_GO_IF_OTHER, _R1, value=_IPPROTO_UDP, go="pass"),
        _step(_ADD_ATOMIC, _COUNTERS, _SIZE, _UDP),
        "pass",
        _step(_SET, _R0, value=1),
        _step(_EXIT),
    )


def _assembled(parts: tuple[_Step | str, ...]) -> bytes:
    """Words among the steps are labels of the step behind them."""
    steps: list[_Step] = []
    labels: dict[str, int] = {}
    for part in parts:
        if isinstance(part, str):
            labels[part] = len(steps)
        else:
            steps.append(part)
    code = b""
    for number, (operation, to, source, field_offset, value, go) in enumerate(steps):
        offset = labels[go] - number - 1 if go else field_offset
        code += struct.pack("=BBhi", operation, source << 4 | to, offset, value)
    return code
