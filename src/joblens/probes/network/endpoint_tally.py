"""Whom a job exchanged data with: its sockets, as they were seen at some moments, put together by peer."""

from collections.abc import Iterable

from msgspec import Struct

from joblens.model.jobs.details import Endpoint, EndpointTable
from joblens.probes.network.socket_dump import TCP, SocketSeen

SOURCE = "sock_diag"
_MOST_SHOWN = 50
_MOST_KEPT = 4096  # peers; those with the least traffic are forgotten first

_Peer = tuple[str, str, int, bool]  # protocol, address, port, whether that is a port of the job's own
_Socket = tuple[int, int]  # network namespace, cookie


class _Total(Struct):
    sockets: int = 0
    gone: int = 0
    rx_bytes: int | None = None
    tx_bytes: int | None = None
    retransmits: int | None = None
    rtt_usec: int | None = None

    def add(self, seen: SocketSeen, before: SocketSeen | None, *, is_new: bool) -> None:
        """What it has carried since it was seen `before`; None: since it began."""
        if is_new and not seen.is_listening:
            self.sockets += 1
        for field in ("rx_bytes", "tx_bytes", "retransmits"):
            value = getattr(seen, field)
            if value is not None:
                known = (getattr(before, field) or 0) if before is not None else 0
                setattr(self, field, (getattr(self, field) or 0) + max(0, value - known))
        if seen.rtt_usec is not None:
            self.rtt_usec = seen.rtt_usec

    @property
    def traffic(self) -> int:
        return (self.rx_bytes or 0) + (self.tx_bytes or 0)


class EndpointTally:
    """Of one job. A connection is followed while it is open; one that came and went between two looks was
    never seen. `has_begun`: the job is older than the measurement, so what its connections carried before the
    first look is left out."""

    def __init__(self, *, has_begun: bool = False) -> None:
        self._takes_base = has_begun
        self._open: dict[_Socket, tuple[_Peer, SocketSeen]] = {}
        self._totals: dict[_Peer, _Total] = {}
        self._ports: set[tuple[str, int]] = set()  # where the job has ever waited for connections
        self._seen = 0
        self._open_at_us: int | None = None

    def add(self, sockets: Iterable[tuple[int, SocketSeen]]) -> None:
        """All sockets that are open now, each with its network namespace."""
        now = {(namespace, seen.cookie): seen for namespace, seen in sockets}
        self._ports.update((seen.protocol, seen.local_port) for seen in now.values() if seen.is_listening)
        still_open = {}
        for key, seen in now.items():
            peer, before = self._open.get(key, (None, None))
            is_new = before is None or before.remote_port != seen.remote_port
            if peer is None or is_new:
                peer, before = self._peer(seen), seen if self._takes_base else None
            if peer not in self._totals:
                self._seen += 1
                self._totals[peer] = _Total()
            self._totals[peer].add(seen, before, is_new=is_new)
            still_open[key] = (peer, seen)
        for key in self._open.keys() - now.keys():
            peer, seen = self._open[key]
            if seen.rx_bytes is not None and peer in self._totals:
                self._totals[peer].gone += 1
        self._open = still_open
        self._takes_base = False
        if len(self._totals) > _MOST_KEPT:
            self._forget_small_ones()

    def table(self, at_us: int) -> EndpointTable:
        """As of the last look, which was then."""
        if any(seen.rx_bytes is not None for _, seen in self._open.values()):
            self._open_at_us = at_us
        busiest = sorted(self._totals.items(), key=lambda item: (-item[1].traffic, -item[1].sockets, item[0]))
        return EndpointTable(
            at_us=at_us,
            endpoints=tuple(_endpoint(peer, total) for peer, total in busiest[:_MOST_SHOWN]),
            seen=self._seen,
            open_at_us=self._open_at_us,
            source=SOURCE,
        )

    def _peer(self, seen: SocketSeen) -> _Peer:
        """A server's connections are told by the port they came to: the other end's means nothing."""
        if not seen.remote_port:
            return seen.protocol, seen.local, seen.local_port, True
        is_served = seen.protocol == TCP and (TCP, seen.local_port) in self._ports
        return seen.protocol, seen.remote, seen.local_port if is_served else seen.remote_port, is_served

    def _forget_small_ones(self) -> None:
        in_use = {peer for peer, _ in self._open.values()}
        largest = sorted(self._totals.items(), key=lambda item: -item[1].traffic)
        kept = dict(largest[: _MOST_KEPT // 2])
        self._totals = {peer: total for peer, total in self._totals.items() if peer in kept or peer in in_use}


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
