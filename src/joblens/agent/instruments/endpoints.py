"""Endpoints instrument: peers that a job exchanges data with, including those found by an earlier owner."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from joblens.agent.instruments.table import Instruments, MissingDetails, Watched, read_last, rescan
from joblens.model.jobs.details import Details, Endpoint, EndpointTable
from joblens.probes.network.cgroup_network import v2_group

if TYPE_CHECKING:
    from joblens.agent.runtime.driver_thread import DriverThread
    from joblens.ports.probe import DetailProbe
    from joblens.probes.network.endpoints import SocketDriver


_Key = tuple[str, str, int, bool]
_MOST_SHOWN = 50
_COUNTED = ("sockets", "gone", "rx_bytes", "tx_bytes", "retransmits")


class ResumedEndpoints:
    """Adds the endpoints of `probe` to those of an earlier owner.

    A connection that is open at the first scan was counted by both owners from its start, so it is counted
    once. Bytes between the two owners may be missing if the connection shares an endpoint with others."""

    def __init__(self, probe: "DetailProbe", earlier: EndpointTable) -> None:
        self.name = probe.name
        self._probe = probe
        self._earlier = earlier
        self._first: dict[_Key, Endpoint] | None = None

    @property
    def interval_s(self) -> float:
        return self._probe.interval_s

    def read(self) -> Details:
        return self._with_earlier(self._probe.read())

    def rescan(self) -> None:
        rescan(self._probe)

    def read_last(self) -> Details:
        return self._with_earlier(read_last(self._probe))

    def _with_earlier(self, details: Details) -> Details:
        table = details.endpoints
        return details if table is None else replace(details, endpoints=self._merged(table))

    def close(self) -> None:
        self._probe.close()

    def _merged(self, table: EndpointTable) -> EndpointTable:
        now = {_key(each): each for each in table.endpoints}
        if self._first is None:
            self._first = now
        before = {_key(each): each for each in self._earlier.endpoints}
        added = [_summed(before.get(key), self._first.get(key), each) for key, each in now.items()]
        kept = [each for key, each in before.items() if key not in now]
        new_ones = table.seen - len(now.keys() & before.keys())
        return replace(
            table,
            endpoints=tuple(_busiest([*added, *kept])[:_MOST_SHOWN]),
            seen=max(table.seen, self._earlier.seen + new_ones),
            open_at_us=table.open_at_us or self._earlier.open_at_us,
        )


def _summed(before: Endpoint | None, first: Endpoint | None, now: Endpoint) -> Endpoint:
    if before is None:
        return now
    return replace(now, **{name: _count(name, before, first, now) for name in _COUNTED})


def _count(name: str, before: Endpoint, first: Endpoint | None, now: Endpoint) -> int | None:
    known: int | None = getattr(before, name)
    value: int | None = getattr(now, name)
    if known is None or value is None:
        return value if known is None else known
    at_first: int = (getattr(first, name) or 0) if first is not None else 0
    return max(value, known + value - at_first)


def _key(endpoint: Endpoint) -> _Key:
    return endpoint.protocol, endpoint.address, endpoint.port, endpoint.is_listener


def _busiest(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    return sorted(
        endpoints,
        key=lambda each: (-((each.rx_bytes or 0) + (each.tx_bytes or 0)), -each.sockets, _key(each)),
    )


_DRIVER = "sock_diag"
_BEGIN_AFTER_S = 0.5
_SHORTEST_S, _LONGEST_S = 1.0, 5.0
_LAST_SCAN_S = 0.05  # limit for the end of a job; most scans take a millisecond
_TOO_SHORT = "it ended before its sockets were first listed"
_NOTHING_NEW = Details()


class EndpointProbe:
    """Returns endpoints that the driver has found. The driver does not scan a job that ends at once: its
    sockets are gone before they could be listed."""

    name = "endpoints"

    def __init__(self, watched: Watched, group_dir: str, instruments: Instruments) -> None:
        self._watched = watched
        self._group_dir = group_dir
        self._instruments = instruments
        self._thread: DriverThread[Any] | None = None
        self._opened_s = time.monotonic()
        self._taken_at_us = 0
        # The first scan of a running job sets the baseline of its connections: take it at once.
        self._is_guest = not watched.is_own and not watched.is_resumed

    @property
    def interval_s(self) -> float:
        """Returns an interval that grows, because the driver scans less and less often."""
        return min(_LONGEST_S, max(_SHORTEST_S, (time.monotonic() - self._opened_s) / 10))

    def read(self) -> Details:
        if self._thread is not None:
            return self._latest_details(self._thread)
        if self._is_guest or time.monotonic() - self._opened_s >= _BEGIN_AFTER_S:
            self._begin()
        return _NOTHING_NEW

    def rescan(self) -> None:
        """Reads what its sockets carried since the last scan, before the job's groups are removed or scanning
        ends."""
        if self._thread is None:
            return
        job, asked_at_us = self._watched.job.uuid, time.time_ns() // 1000
        self._driver(self._thread).hurry(job)

        def is_wanted(known: Any) -> bool:
            table, _ = known.get(job, (None, ""))
            return table is not None and table.at_us >= asked_at_us

        self._thread.read_now(is_wanted, _LAST_SCAN_S)

    def read_last(self) -> Details:
        news = self._latest_details(self._thread) if self._thread is not None else _NOTHING_NEW
        return (
            Details(unknown={"endpoints": _TOO_SHORT})
            if news is _NOTHING_NEW and not self._taken_at_us
            else news
        )

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._driver(thread).forget(self._watched.job.uuid)
            thread.leave()

    def _begin(self) -> None:
        from joblens.probes.network.endpoints import SocketDriver

        self._thread = self._instruments.driver(_DRIVER, SocketDriver)
        self._driver(self._thread).watch(
            self._watched.job.uuid, self._group_dir, self._watched.pids, has_begun=self._is_guest
        )
        self._thread.use()

    @staticmethod
    def _driver(thread: "DriverThread[Any]") -> "SocketDriver":
        driver: SocketDriver = thread.driver  # type: ignore[assignment]
        return driver

    def _latest_details(self, thread: "DriverThread[Any]") -> Details:
        problem = thread.problem()
        if problem:
            return Details(unknown={"endpoints": problem})
        latest = thread.latest()
        known = latest.value if latest is not None else {}
        table, problem = known.get(self._watched.job.uuid, (None, ""))
        if table is None or table.at_us == self._taken_at_us:
            return _NOTHING_NEW
        self._taken_at_us = table.at_us
        return Details(endpoints=table, unknown={"endpoints": problem} if problem else {})


def open_probe(watched: Watched, instruments: Instruments) -> "DetailProbe":
    group_dir, why = v2_group(watched.groups)
    if why:
        return MissingDetails("endpoints", {"endpoints": why})
    probe, earlier = EndpointProbe(watched, group_dir, instruments), watched.earlier.endpoints
    if earlier is None:
        return probe

    return ResumedEndpoints(probe, earlier)
