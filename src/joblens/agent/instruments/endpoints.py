"""Whom one job exchanges data with."""

import time
from typing import TYPE_CHECKING, Any

from joblens.agent.instruments.missing import MissingDetails
from joblens.agent.instruments.table import Instruments, Watched
from joblens.model.jobs.details import Details
from joblens.ports.probe import DetailProbe
from joblens.probes.network.cgroup_network import v2_group

if TYPE_CHECKING:
    from joblens.agent.runtime.driver_thread import DriverThread
    from joblens.probes.network.endpoints import SocketDriver

_DRIVER = "sock_diag"
_BEGIN_AFTER_S = 0.5
_SHORTEST_S, _LONGEST_S = 1.0, 5.0
_LAST_LOOK_S = 0.05  # the end of a job waits no longer for it; most looks take a millisecond
_TOO_SHORT = "it was over before its sockets were listed for the first time"
_NO_NEWS = Details()


class EndpointProbe:
    """Hands out what the driver has seen. The driver is not bothered with a job that is over at once: its
    sockets are gone before they could be listed."""

    name = "endpoints"

    def __init__(self, watched: Watched, group_dir: str, instruments: Instruments) -> None:
        self._watched = watched
        self._group_dir = group_dir
        self._instruments = instruments
        self._thread: DriverThread[Any] | None = None
        self._opened_s = time.monotonic()
        self._taken_at_us = 0
        # Of a job that was there before, the first look says where its connections stand: it comes at once.
        self._is_guest = not watched.is_own and not watched.is_resumed

    @property
    def interval_s(self) -> float:
        """The driver looks less and less often, too."""
        return min(_LONGEST_S, max(_SHORTEST_S, (time.monotonic() - self._opened_s) / 10))

    def read(self) -> Details:
        if self._thread is not None:
            return self._news(self._thread)
        if self._is_guest or time.monotonic() - self._opened_s >= _BEGIN_AFTER_S:
            self._begin()
        return _NO_NEWS

    def look_again(self) -> None:
        """The job's groups are about to go, or nobody will look from here on: what its sockets carried since
        the last look is told now or never."""
        if self._thread is None:
            return
        job, asked_at_us = self._watched.job.uuid, time.time_ns() // 1000
        self._driver(self._thread).hurry(job)

        def has_come(known: Any) -> bool:
            table, _ = known.get(job, (None, ""))
            return table is not None and table.at_us >= asked_at_us

        self._thread.read_until(has_come, _LAST_LOOK_S)

    def read_last(self) -> Details:
        news = self._news(self._thread) if self._thread is not None else _NO_NEWS
        return (
            Details(unknown={"endpoints": _TOO_SHORT}) if news is _NO_NEWS and not self._taken_at_us else news
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

    def _news(self, thread: "DriverThread[Any]") -> Details:
        problem = thread.problem()
        if problem:
            return Details(unknown={"endpoints": problem})
        latest = thread.latest()
        known = latest.value if latest is not None else {}
        table, problem = known.get(self._watched.job.uuid, (None, ""))
        if table is None or table.at_us == self._taken_at_us:
            return _NO_NEWS
        self._taken_at_us = table.at_us
        return Details(endpoints=table, unknown={"endpoints": problem} if problem else {})


def open_probe(watched: Watched, instruments: Instruments) -> DetailProbe:
    group_dir, why = v2_group(watched.groups)
    if why:
        return MissingDetails("endpoints", {"endpoints": why})
    probe, earlier = EndpointProbe(watched, group_dir, instruments), watched.earlier.endpoints
    if earlier is None:
        return probe
    from joblens.agent.instruments.earlier_endpoints import EndpointsGoOn

    return EndpointsGoOn(probe, earlier)
