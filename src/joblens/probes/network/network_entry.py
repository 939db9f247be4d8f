"""Asking for sockets in another network namespace, as a container has one."""

import os

from joblens.model.errors import ProbeError
from joblens.probes.network.socket_dump import SocketDump
from joblens.probes.proc.system_calls import call

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
