"""Start of a slot's launcher where it takes more than joining groups. slot_launcher.py imports it where that
runs as a plain file."""

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
    """-> files to join them, descriptors. Ends this process when the owner is gone, or wants it no longer."""
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
    """Memory that the kernel counts packets in. The descriptor is not handed on to jobs."""
    memory = mmap.mmap(descriptor, _PACKET_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
    os.close(descriptor)
    return memory


def set_limits(limits: str) -> None:
    """The owner has more for itself than its jobs are to have."""
    for limit in limits.split(","):
        which, soft, hard = map(int, limit.split(":"))
        resource.setrlimit(which, (soft, hard))
