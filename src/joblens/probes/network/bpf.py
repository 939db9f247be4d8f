"""The parts of bpf(2) that counting a group's packets needs, without a library."""

import array
import mmap
import os
import struct

from joblens.probes.proc.system_calls import call, call_writing

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
