"""Jobs whose traffic is known, as Python programs."""

import os
import subprocess
from pathlib import Path

import pytest

from joblens.agent.cgroups.groups import JobGroups
from joblens.probes.network.cgroup_network import CgroupNetworkProbe, count_as_guest
from tests.integration.cgroup_jobs import make_groups, start_python_in

IP4, IP6, UDP_HEADER = 20, 40, 8
# Brings loopback up in a network namespace that is new.
LOOPBACK_UP = (
    "import fcntl, socket, struct\n"
    "with socket.socket() as s:\n"
    "    fcntl.ioctl(s, 0x8914, struct.pack('16sh14x', b'lo', 1))\n"
)
# What the namespace's loopback carried in all: bytes and packets.
TELL_LOOPBACK = (
    "line = next(one for one in open('/proc/net/dev') if 'lo:' in one).split(':')[1].split()\n"
    "print(line[0], line[1])\n"
)


def udp(count: int, size: int, address: str = "127.0.0.1") -> str:
    """Sends to itself, and has received all when it ends."""
    family = "AF_INET6" if ":" in address else "AF_INET"
    return (
        f"import socket\ns = socket.socket(socket.{family}, socket.SOCK_DGRAM)\ns.bind(({address!r}, 0))\n"
        f"for _ in range({count}): s.sendto(bytes({size}), s.getsockname()); s.recv(65536)\n"
    )


def tcp(size: int, address: str = "127.0.0.1") -> str:
    """A server and its client in one process."""
    family = "AF_INET6" if ":" in address else "AF_INET"
    return (
        f"import socket, threading\nserver = socket.create_server(({address!r}, 0), family=socket.{family})\n"
        f"client = socket.create_connection(server.getsockname()[:2])\nserved, _ = server.accept()\n"
        f"sender = threading.Thread(target=client.sendall, args=(bytes({size}),))\nsender.start()\n"
        f"left = {size}\nwhile left: left -= len(served.recv(1 << 20))\nsender.join()\n"
    )


def run_in(groups: JobGroups, code: str) -> str:
    """-> what it printed"""
    process = start_python_in(groups, code, stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    return out.decode()


def packets_or_skip() -> None:
    """For tests that need packets to be counted."""
    for groups in make_groups():
        group_dir = groups.paths.get("unified")
        if group_dir is None:
            pytest.skip("no cgroup v2 hierarchy here")
        trial = CgroupNetworkProbe(group_dir, count_as_guest)
        trial.close()
        if trial.unknown:
            pytest.skip(next(iter(trial.unknown.values())))


def has_ipv6() -> bool:
    return (
        b" lo" in Path("/proc/net/if_inet6").read_bytes() if os.path.exists("/proc/net/if_inet6") else False
    )
