"""Start of a slot's launcher beyond joining groups. slot_launcher.py, which runs as a plain file, imports
it."""

from __future__ import annotations

import _socket
import marshal
import mmap
import os
import resource
import sys

_MAX_MESSAGE = 1 << 17
_PACKET_BYTES = 128


def receive_groups(end: int) -> tuple[list[str], tuple[int, int]]:
    """Returns files to join the groups, and descriptors. Exits if the owner is gone or no longer needs this
    process."""
    socket = _socket.socket(fileno=end)
    data, ancillary, _, _ = socket.recvmsg(_MAX_MESSAGE, _socket.CMSG_SPACE(8))
    socket.detach()
    message = marshal.loads(data) if data else ()
    if not message:
        os._exit(0)
    _, attach, has_packets, has_peak = message
    rights = b"".join(part[2] for part in ancillary)
    sent = [int.from_bytes(rights[at : at + 4], sys.byteorder) for at in range(0, len(rights), 4)]
    packets = sent.pop(0) if has_packets else -1
    return attach, (packets, sent.pop(0) if has_peak else -1)


def mapped_packets(descriptor: int) -> mmap.mmap:
    """Returns the memory in which the kernel counts packets. The descriptor is not inherited by jobs."""
    memory = mmap.mmap(descriptor, _PACKET_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
    os.close(descriptor)
    return memory


def set_limits(limits: str) -> None:
    """Sets the limits of jobs: the owner has higher ones for itself."""
    for limit in limits.split(","):
        which, soft, hard = map(int, limit.split(":"))
        resource.setrlimit(which, (soft, hard))
