"""The meter of the whole process, for everything that measures inside a host program, and its
instruments. A forked child starts without its parent's state."""

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from joblens.agent.measuring.window_measurement import Measurement
from joblens.model.jobs.job import Job
from joblens.model.jobs.sample import Sample

if TYPE_CHECKING:
    from joblens.agent.in_process.window import WindowInstruments
    from joblens.agent.instruments.table import Instruments

# Metrics of a process that shares its control group.
IN_PROCESS_PROBES = ("network", "gpu", "energy", "threads")


class HostMeter(Protocol):
    """`agent.in_process` on Linux, `agent.portable_meter` elsewhere; each accepts only its own windows."""

    def begin(
        self,
        interval_s: float,
        on_samples: Callable[[int, tuple[Sample, ...]], None],
        *,
        is_whole: bool = False,
        instruments: "WindowInstruments | None" = None,
    ) -> Any: ...

    def end(self, window: Any) -> Measurement: ...

    def peek(self, window: Any) -> Measurement: ...

    def pids(self) -> list[int]: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


T = TypeVar("T")


class ProgramWide(Generic[T]):
    """The one object of the whole program, made at first use; and all objects that a forked child resets,
    because their measurements are its parent's."""

    def __init__(self, make: Callable[[], T], reset: Callable[[Any], None]) -> None:
        self._make = make
        self._reset = reset
        self._lock = threading.Lock()
        self._shared: T | None = None
        self._objects: weakref.WeakSet[Any] = weakref.WeakSet()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def add(self, one: Any) -> None:
        self._objects.add(one)

    def get(self) -> T:
        with self._lock:
            if self._shared is None:
                self._shared = self._make()
            return self._shared

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # a thread that is not in this process may hold it
        for one in list(self._objects):
            self._reset(one)


_meters: list[HostMeter] = []
_instruments: "list[Instruments]" = []
_making = threading.Lock()


def has_linux() -> bool:
    return sys.platform.startswith("linux")


def shared_meter() -> HostMeter:
    with _making:
        if not _meters:
            meter = _meter_for_this_system()
            atexit.register(_leave, meter)
            _meters.append(meter)
        return _meters[0]


def _meter_for_this_system() -> HostMeter:
    if has_linux():
        from joblens.agent.in_process.meter import InProcessMeter
        from joblens.probes.host.machine_load import HostProbe

        return InProcessMeter(HostProbe().read)
    from joblens.agent.in_process.portable_meter import PortableMeter

    return PortableMeter()


def open_instruments(job: Job) -> "WindowInstruments | None":
    """Opens the probes of `job.probes` that are available here."""
    if not has_linux() or not job.probes:
        return None
    meter, instruments = shared_meter(), shared_instruments()
    with _making:
        from joblens.agent.in_process.window import WindowInstruments
        from joblens.agent.instruments.table import Watched

        opened = instruments.open(Watched(job=job, main_pid=None, pids=meter.pids))
    return WindowInstruments(job.uuid, opened)


def shared_instruments() -> "Instruments":
    with _making:
        if not _instruments:
            from joblens.agent.instruments.table import Instruments

            _instruments.append(Instruments())
        return _instruments[0]


def _leave(meter: HostMeter) -> None:
    """Stores measurements so far, including those that were not ended."""
    meter.flush()
    meter.close()


# Modules are imported under the lock: a child that is forked while another thread imports a module could
# never import it, so a fork waits for the lock.
_FORK_TIMEOUT_S = 5.0


def _before_fork() -> None:
    _making.acquire(timeout=_FORK_TIMEOUT_S)


def _after_fork_in_parent() -> None:
    with contextlib.suppress(RuntimeError):  # not ours: waiting was given up
        _making.release()


def _after_fork_in_child() -> None:
    global _making  # noqa: PLW0603  (it may be held by a thread that is not in this process)
    _making = threading.Lock()
    _instruments.clear()  # their threads are not in this process


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
