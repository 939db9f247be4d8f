"""Network endpoints of jobs: the peers of their sockets and the bytes exchanged."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from joblens.model.errors import ProbeError
from joblens.model.jobs.details import Endpoint, EndpointTable
from joblens.probes.network.cgroup_network import network_namespace
from joblens.probes.network.socket_dump import TCP, SocketDump, SocketSeen, dump_in
from joblens.probes.proc.kernel_files import read_bytes, subgroups

SOURCE = "sock_diag"
_MOST_SHOWN = 50
_MOST_KEPT = 4096  # peers; those with the least traffic are dropped first

_Peer = tuple[str, str, int, bool]  # protocol, address, port, whether that is a port of the job's own
_Socket = tuple[int, int]  # network namespace, cookie


class _Total(Struct):
    sockets: int = 0
    gone: int = 0
    rx_bytes: int | None = None
    tx_bytes: int | None = None
    retransmits: int | None = None
    rtt_usec: int | None = None

    def add(self, socket_now: SocketSeen, before: SocketSeen | None, *, is_new: bool) -> None:
        """Adds traffic since `before`; None: since the connection started."""
        if is_new and not socket_now.is_listening:
            self.sockets += 1
        for field in ("rx_bytes", "tx_bytes", "retransmits"):
            value = getattr(socket_now, field)
            if value is not None:
                known = (getattr(before, field) or 0) if before is not None else 0
                setattr(self, field, (getattr(self, field) or 0) + max(0, value - known))
        if socket_now.rtt_usec is not None:
            self.rtt_usec = socket_now.rtt_usec

    @property
    def traffic(self) -> int:
        return (self.rx_bytes or 0) + (self.tx_bytes or 0)


class EndpointTally:
    """Endpoints of one job. Connections are tracked while open; those between two samples are missed.

    `has_begun`: the job is older than the measurement, so earlier traffic of its connections is excluded.
    """

    def __init__(self, *, has_begun: bool = False) -> None:
        self._takes_base = has_begun
        self._open: dict[_Socket, tuple[_Peer, SocketSeen]] = {}
        self._totals: dict[_Peer, _Total] = {}
        self._ports: set[tuple[str, int]] = set()  # where the job has ever waited for connections
        self._seen = 0
        self._open_at_us: int | None = None

    def add(self, sockets: Iterable[tuple[int, SocketSeen]]) -> None:
        """All sockets that are open now, each with its network namespace."""
        now = {(namespace, socket_now.cookie): socket_now for namespace, socket_now in sockets}
        self._ports.update(
            (socket_now.protocol, socket_now.local_port)
            for socket_now in now.values()
            if socket_now.is_listening
        )
        still_open = {}
        for key, socket_now in now.items():
            peer, before = self._open.get(key, (None, None))
            is_new = before is None or before.remote_port != socket_now.remote_port
            if peer is None or is_new:
                peer, before = self._peer(socket_now), socket_now if self._takes_base else None
            if peer not in self._totals:
                self._seen += 1
                self._totals[peer] = _Total()
            self._totals[peer].add(socket_now, before, is_new=is_new)
            still_open[key] = (peer, socket_now)
        for key in self._open.keys() - now.keys():
            peer, socket_now = self._open[key]
            if socket_now.rx_bytes is not None and peer in self._totals:
                self._totals[peer].gone += 1
        self._open = still_open
        self._takes_base = False
        if len(self._totals) > _MOST_KEPT:
            self._forget_small_ones()

    def table(self, at_us: int) -> EndpointTable:
        """Returns the table as of the last sample."""
        if any(socket_now.rx_bytes is not None for _, socket_now in self._open.values()):
            self._open_at_us = at_us
        busiest = sorted(self._totals.items(), key=lambda item: (-item[1].traffic, -item[1].sockets, item[0]))
        return EndpointTable(
            at_us=at_us,
            endpoints=tuple(_endpoint(peer, total) for peer, total in busiest[:_MOST_SHOWN]),
            seen=self._seen,
            open_at_us=self._open_at_us,
            source=SOURCE,
        )

    def _peer(self, socket_now: SocketSeen) -> _Peer:
        """Returns the peer.

        Connections to a server are identified by its port, because the client's is arbitrary.
        """
        if not socket_now.remote_port:
            return socket_now.protocol, socket_now.local, socket_now.local_port, True
        is_served = socket_now.protocol == TCP and (TCP, socket_now.local_port) in self._ports
        return (
            socket_now.protocol,
            socket_now.remote,
            socket_now.local_port if is_served else socket_now.remote_port,
            is_served,
        )

    def _forget_small_ones(self) -> None:
        in_use = {peer for peer, _ in self._open.values()}
        largest = sorted(self._totals.items(), key=lambda item: -item[1].traffic)
        largest_peers = dict(largest[: _MOST_KEPT // 2])
        self._totals = {
            peer: total for peer, total in self._totals.items() if peer in largest_peers or peer in in_use
        }


def _endpoint(peer: _Peer, total: _Total) -> Endpoint:
    protocol, address, port, is_own_port = peer
    return Endpoint(
        protocol=protocol,
        address=address,
        port=port,
        sockets=total.sockets,
        gone=total.gone,
        is_listener=is_own_port,
        rx_bytes=total.rx_bytes,
        tx_bytes=total.tx_bytes,
        retransmits=total.retransmits,
        rtt_usec=total.rtt_usec,
    )


_FIRST_GAP_S, _LONGEST_GAP_S = 1.0, 10.0  # doubled from sample to sample, because many jobs are short
_BUDGET = 1 / 2000  # of a core, in the long run
_SAVED_S = 0.02  # CPU time budget at once: the first samples of a job find the most
_FEW = 4  # processes to check for their namespace: those of a container share one

Known = dict[str, tuple[EndpointTable | None, str]]  # job -> (table, why there is nothing new)


class _Job(Struct):
    group_dir: str
    pids: Callable[[], Sequence[int]]
    tally: EndpointTally
    gap_s: float = _FIRST_GAP_S
    due_s: float = 0.0
    table: EndpointTable | None = None
    problem: str = ""
    cpu_time: bytes = b""  # before the last listing

    def may_have_sockets(self) -> bool:
        """Returns False if it had none and has not run since: a listing walks all sockets of the machine."""
        before = self.cpu_time
        try:
            self.cpu_time = read_bytes(f"{self.group_dir}/cpu.stat").partition(b"\n")[0]
        except OSError:  # the group was removed, or the kernel is old
            self.cpu_time = b""
        had_none = self.table is not None and not self.table.endpoints and not self.problem
        return not (had_none and self.cpu_time and self.cpu_time == before)


class SocketDriver:
    """Wakes every second while jobs are young;
    samples each job less and less often, finally every ten seconds.

    Only `read` queries the kernel, on the driver's thread.
    """

    name = "sock_diag"
    interval_s = 1.0

    def __init__(
        self,
        mono_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._mono_s = mono_s
        self._cpu_s = cpu_s
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._here: SocketDump | None = None
        self._credit_s = _SAVED_S
        self._credit_at_s = mono_s()

    def watch(
        self, job: str, group_dir: str, pids: Callable[[], Sequence[int]], *, has_begun: bool = False
    ) -> None:
        """`has_begun`: it was there before, and so may its connections have been."""
        with self._lock:
            self._jobs[job] = _Job(group_dir, pids, EndpointTally(has_begun=has_begun))

    def forget(self, job: str) -> None:
        with self._lock:
            self._jobs.pop(job, None)

    def hurry(self, job: str) -> None:
        """Samples the job with the next read."""
        with self._lock:
            if job in self._jobs:
                self._jobs[job].due_s = 0.0

    def read(self) -> Known | None:
        """Samples due jobs; None: none was due."""
        now_s = self._mono_s()
        with self._lock:
            jobs = {name: job for name, job in self._jobs.items() if job.due_s <= now_s}
        if not jobs:
            return None
        for job in jobs.values():
            # Half a tick less, so that a tick that comes a little early is not skipped.
            job.due_s = now_s + job.gap_s - self.interval_s / 2
            job.gap_s = min(2 * job.gap_s, _LONGEST_GAP_S)
        cpu_before_s = self._cpu_s()
        self._sample(jobs)
        pause_s = self._pause_s(now_s, self._cpu_s() - cpu_before_s)
        for job in jobs.values():
            job.due_s = max(job.due_s, now_s + pause_s)
        with self._lock:
            return {name: (job.table, job.problem) for name, job in self._jobs.items()}

    def _pause_s(self, now_s: float, cost_s: float) -> float:
        """Returns the pause. Unused budget is saved up to a limit; overspending is waited off."""
        earned_s = (now_s - self._credit_at_s) * _BUDGET
        self._credit_s = min(_SAVED_S, self._credit_s + earned_s) - cost_s
        self._credit_at_s = now_s
        return max(0.0, -self._credit_s / _BUDGET)

    def idle_until_s(self) -> float:
        with self._lock:
            return min((job.due_s for job in self._jobs.values()), default=float("inf"))

    def close(self) -> None:
        if self._here is not None:
            self._here.close()
            self._here = None

    def _sample(self, jobs: dict[str, _Job]) -> None:
        self._list_sockets({name: job for name, job in jobs.items() if job.may_have_sockets()})
        at_us = time.time_ns() // 1000
        for job in jobs.values():
            job.table = job.tally.table(at_us)

    def _list_sockets(self, jobs: dict[str, _Job]) -> None:
        if not jobs:
            return
        owners = {group: name for name, job in jobs.items() for group in group_ids(job.group_dir)}
        found: dict[str, list[tuple[int, SocketSeen]]] = {name: [] for name in jobs}
        for socket_now in self._sockets_here(list(owners)):
            if socket_now.group in owners:
                found[owners[socket_now.group]].append((0, socket_now))
        problems = self._read_other_namespaces(jobs, found)
        for name, job in jobs.items():
            job.tally.add(found[name])
            job.problem = problems.get(name, "")

    def _sockets_here(self, groups: list[int]) -> list[SocketSeen]:
        if self._here is None:
            self._here = SocketDump()
        try:
            return list(self._here.sockets(groups))
        except ProbeError:
            self.close()  # half an answer may still be in it
            raise

    def _read_other_namespaces(
        self, jobs: dict[str, _Job], found: dict[str, list[tuple[int, SocketSeen]]]
    ) -> dict[str, str]:
        """In the namespaces that jobs made for themselves. -> job -> why that could not be done"""
        problems = {}
        own = network_namespace("self")
        for name, job in jobs.items():
            for namespace, pid in _namespaces(job.pids()).items():
                if namespace == own:
                    continue
                try:
                    there = dump_in(pid)
                    try:
                        sockets = there.sockets(group_ids(job.group_dir))
                        found[name] += ((namespace, socket_now) for socket_now in sockets)
                    finally:
                        there.close()
                except ProbeError as error:
                    problems[name] = str(error)
        return problems


def group_ids(directory: str) -> list[int]:
    """Returns ids of the group and all below it: their inodes. Empty if it was removed."""
    try:
        ids = [os.stat(directory).st_ino]
    except OSError:
        return []
    for below in subgroups(directory):
        ids += group_ids(below)
    return ids


def _namespaces(pids: Iterable[int]) -> dict[int, int]:
    """Network namespace -> a process in it."""
    found: dict[int, int] = {}
    for pid in list(pids)[:_FEW]:
        namespace = network_namespace(pid)
        if namespace is not None:
            found.setdefault(namespace, pid)
    return found
