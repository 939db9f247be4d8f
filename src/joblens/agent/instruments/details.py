"""Brings the details of one job up to date: each of its detail probes in turn, seldom, within a budget."""

import contextlib
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from joblens.agent.runtime.measuring_budget import pause_ns
from joblens.model.jobs.details import Details
from joblens.model.writes import DetailsTaken
from joblens.ports.probe import DetailProbe

_NOTHING = Details()


class DetailTaker:
    """`tick` is called with every sample, on the sampler's thread."""

    def __init__(
        self,
        uuid: str,
        probes: Sequence[DetailProbe],
        put: Callable[[list[DetailsTaken]], object],
        earlier: Details = _NOTHING,
    ) -> None:
        """`earlier`: what another process has taken of the job."""
        self._uuid = uuid
        self._probes = tuple(probes)
        self._put = put
        self._due_ns = dict.fromkeys((probe.name for probe in probes), 0)
        self._spent_ns = dict(self._due_ns)
        self.latest = earlier

    def tick(self, *, final: bool = False) -> None:
        """`final`: the job is about to be taken away; everyone looks once more."""
        now_ns = time.monotonic_ns()
        if final:
            for probe in self._probes:
                with contextlib.suppress(Exception):  # then what was seen before has to do
                    look_again(probe)
        taken = [
            self._look(probe, now_ns, final=final)
            for probe in self._probes
            if final or now_ns >= self._due_ns[probe.name]
        ]
        news = _NOTHING
        for details in taken:
            if details is not _NOTHING and details != _NOTHING:
                news = news.updated(details)
        self._tell(news)

    def _tell(self, news: Details) -> None:
        if news != _NOTHING:
            self.latest = self.latest.updated(news)
            self._put([DetailsTaken(self._uuid, news)])

    def end(self) -> Details:
        """The job is over, and others may be in its place already: nobody looks at it once more, but what is
        at hand is taken, and its threads have ended. -> all that was seen"""
        news = _NOTHING
        for probe in self._probes:
            if hasattr(probe, "read_last"):
                news = news.updated(self._look(probe, 0, final=True))
        threads = self.latest.threads
        if threads is not None and any(use.is_alive for use in threads.threads):
            ended = tuple(replace(use, is_alive=False) for use in threads.threads)
            news = news.updated(Details(threads=replace(threads, threads=ended)))
        self._tell(news)
        return self.latest

    def close(self) -> None:
        for probe in self._probes:
            with contextlib.suppress(Exception):  # what one of them has left open is all that is lost
                probe.close()

    def _look(self, probe: DetailProbe, now_ns: int, *, final: bool) -> Details:
        cpu_before_ns = time.thread_time_ns()
        try:
            details = read_last(probe) if final else probe.read()
        except Exception as error:  # noqa: BLE001 - one that fails must not keep the others from looking
            details = Details(unknown={probe.name: str(error) or type(error).__name__})
        cost_ns = time.thread_time_ns() - cpu_before_ns
        spent_ns = self._spent_ns[probe.name] = self._spent_ns[probe.name] + cost_ns
        pause = max(int(probe.interval_s * 1e9), pause_ns(cost_ns, spent_ns))
        self._due_ns[probe.name] = now_ns + pause
        return details


def look_again(probe: DetailProbe) -> None:
    """Of one that hands out what another thread has seen: that one looks once more, right now."""
    look: Callable[[], None] | None = getattr(probe, "look_again", None)
    if look is not None:
        look()


def read_last(probe: DetailProbe) -> Details:
    """Its last look."""
    read: Callable[[], Details] = getattr(probe, "read_last", probe.read)
    return read()
