"""Profiling from inside a Python program: the usage of this process and everything it starts between a
start and a stop, as a profile. Nothing is stored; use `JobMonitor` for records."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from joblens.agent.measuring.window_measurement import Measurement
from joblens.analysis.numbers.profile import chosen_metrics, detailed_profile, without_others
from joblens.app.in_process.host_meter import (
    IN_PROCESS_PROBES,
    HostMeter,
    ProgramWide,
    open_instruments,
    shared_meter,
)
from joblens.app.jobs.requests import LEAST_INTERVAL_S, plain_text
from joblens.model.errors import InputError
from joblens.model.jobs.job import EVERY_GPU, Job
from joblens.model.values.ids import new_uuid
from joblens.model.values.units import format_instant

if TYPE_CHECKING:  # imports the client of container engines
    from joblens.app.in_process.watched_container import WatchedContainer

DEFAULT_INTERVAL_S = 0.5
_MOST_SNAPSHOTS = 1000
_NO_CO2 = {"co2_mg": "computed for jobs only, with energy.grid_co2_g_per_kwh; a profile has the energy"}

logger = logging.getLogger("joblens.profiler")


class _ActiveProfile(Struct, eq=False):
    meter: HostMeter
    window: Any
    container: "WatchedContainer | None"
    stopped: threading.Event


class ResourceProfiler:
    """Safe to use from any number of threads; any number at once, each measures the whole process.
    `metrics` are names such as cpu, memory, gpu (default: all; if gpu is named, every GPU of the machine,
    otherwise those in use); `interval` is the time between samples in seconds. With `snapshot_interval` a
    profile of the time so far is taken at this interval, stored in `snapshots` and passed to
    `on_snapshot`, on its own thread."""

    def __init__(
        self,
        interval: float = DEFAULT_INTERVAL_S,
        metrics: str | Iterable[str] | None = None,
        *,
        snapshot_interval: float | None = None,
        on_snapshot: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        self.interval = _seconds("interval", interval)
        self.metrics = chosen_metrics(metrics)
        self._shows_every_gpu = metrics is not None and "gpu" in self.metrics
        if on_snapshot is not None and snapshot_interval is None:
            raise InputError("on_snapshot needs snapshot_interval", hint="for example snapshot_interval=60")
        self.snapshot_interval = (
            None if snapshot_interval is None else _seconds("snapshot_interval", snapshot_interval)
        )
        self._on_snapshot = on_snapshot
        self.profile: dict[str, Any] = {}  # of the last measurement
        self.snapshots: deque[dict[str, Any]] = deque(maxlen=_MOST_SNAPSHOTS)
        self._forget()
        _profilers.add(self)

    def _forget(self) -> None:
        """Forgets the measurement. A forked child does too: the measurement is the parent's."""
        self._lock = threading.RLock()
        self._active: _ActiveProfile | None = None

    @property
    def is_profiling(self) -> bool:
        return self._active is not None

    def start_profiling(self, container_name: str | None = None) -> None:
        """With `container_name` the profile has `container_stats` too; the container may be started
        later. If profiling is already running, it is stopped first, with a warning; `profile` has its
        result."""
        with self._lock:
            if self._active is not None:
                logger.warning("Profiling was started again before it was stopped")
                self.stop_profiling()
            self.snapshots.clear()
            container = None
            if container_name is not None and "container" in self.metrics:
                from joblens.app.in_process.watched_container import WatchedContainer

                container = WatchedContainer(_container_name(container_name), self.interval, self.metrics)
            meter = shared_meter()
            # Last, so that the set-up is not measured.
            window = meter.begin(
                self.interval,
                lambda _first, _samples: None,
                is_whole=True,
                instruments=open_instruments(_as_job(self.metrics, every_gpu=self._shows_every_gpu)),
            )
            self._active = _ActiveProfile(meter, window, container, threading.Event())
            if self.snapshot_interval is not None:
                threading.Thread(
                    target=self._take_snapshots,
                    args=(self._active, self.snapshot_interval),
                    name="joblens-snapshots",
                    daemon=True,
                ).start()

    def stop_profiling(self) -> dict[str, Any]:
        """Returns the profile; {} with a warning if nothing is being profiled."""
        with self._lock:
            active, self._active = self._active, None
            if active is None:
                logger.warning("Profiling was stopped before it was started")
                return {}
            active.stopped.set()
            measured = active.meter.end(active.window)
            container = active.container
            stats = {} if container is None else container.stats(container.end())
            self.profile = self._profile_of(measured, container, stats)
            if container is not None and (why := container.problem()):
                logger.warning("Container %s could not be measured: %s", container.name, why)
            return self.profile

    def snapshot(self) -> dict[str, Any]:
        """Returns the profile so far, with `snapshot_time`; profiling continues. {} if there is none."""
        with self._lock:
            active = self._active
            if active is None:
                return {}
            measured = active.meter.peek(active.window)
            container = active.container
            stats = {} if container is None else container.stats(container.peek())
            profile = self._profile_of(measured, container, stats)
        return profile | {"snapshot_time": format_instant(measured.ended_at_us)}

    def __enter__(self) -> Self:
        self.start_profiling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_profiling:
            self.stop_profiling()

    def _profile_of(
        self, measured: Measurement, container: "WatchedContainer | None", container_stats: dict[str, str]
    ) -> dict[str, Any]:
        profile = profile_of(measured, self.interval, self.metrics, container_stats)
        unknown = {**measured.usage.unknown, **_NO_CO2}
        if container is not None and (why := container.problem()):
            unknown["container_stats"] = why
        return profile | {"unknown": unknown}

    def _take_snapshots(self, active: _ActiveProfile, every_s: float) -> None:
        due_s = time.monotonic() + every_s
        while not active.stopped.wait(max(0.0, due_s - time.monotonic())):
            with self._lock:
                if self._active is not active:
                    return
                profile = self.snapshot()
                self.snapshots.append(profile)
            if self._on_snapshot is not None:
                try:
                    self._on_snapshot(profile)
                except Exception:
                    logger.exception("on_snapshot failed; profiling continues")
            # Missed snapshots are skipped, never made up for in a burst.
            due_s += max(1, -int(-(time.monotonic() - due_s) // every_s)) * every_s


class ContainerResourceMonitor:
    """Measures a container that runs or will run, whatever its pid namespace. Docker or Podman is asked
    through its socket, the numbers come from the container's control group if it is readable."""

    def __init__(
        self,
        container_name: str,
        interval: float = DEFAULT_INTERVAL_S,
        metrics: str | Iterable[str] | None = None,
    ) -> None:
        self.container_name = _container_name(container_name)
        self.interval = _seconds("interval", interval)
        self.metrics = chosen_metrics(metrics)
        self.profile: dict[str, Any] = {}  # of the last measurement
        self._forget()
        _profilers.add(self)

    def _forget(self) -> None:
        self._lock = threading.RLock()
        self._container: WatchedContainer | None = None

    def start_monitoring(self) -> None:
        """The container may be started later. If monitoring is already running, it is stopped first, with
        a warning."""
        with self._lock:
            if self._container is not None:
                logger.warning(
                    "Monitoring of %s was started again before it was stopped", self.container_name
                )
                self.stop_monitoring()
            from joblens.app.in_process.watched_container import WatchedContainer

            self._container = WatchedContainer(self.container_name, self.interval, self.metrics)

    def stop_monitoring(self) -> dict[str, Any]:
        """Returns the profile; {} with a warning if nothing is being monitored. `container_stats` is
        empty if the container was not found: `unknown` says why."""
        with self._lock:
            container, self._container = self._container, None
            if container is None:
                logger.warning("Monitoring of %s was stopped before it was started", self.container_name)
                return {}
            self.profile = self._profile_of(container, container.end())
            if why := container.problem():
                logger.warning("Container %s could not be measured: %s", self.container_name, why)
            return self.profile

    def snapshot(self) -> dict[str, Any]:
        """Returns the profile so far, with `snapshot_time`; {} if nothing is being monitored."""
        with self._lock:
            if self._container is None:
                return {}
            measured = self._container.peek()
            profile = self._profile_of(self._container, measured)
        return profile | {"snapshot_time": format_instant(measured.ended_at_us)}

    def get_container_info(self) -> dict[str, Any]:
        """Returns the engine's information about the container, running or not. Raises ContainerError if
        there is no such container, or no engine answers."""
        from joblens.app.in_process.watched_container import container_info

        return container_info(self.container_name)

    def __enter__(self) -> Self:
        self.start_monitoring()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._container is not None:
            self.stop_monitoring()

    def _profile_of(self, container: "WatchedContainer", measured: Measurement) -> dict[str, Any]:
        profile = profile_of(measured, self.interval, self.metrics, container.stats(measured))
        unknown = {**measured.usage.unknown, **_NO_CO2}
        if why := container.problem():
            unknown = dict.fromkeys(("container_stats", *unknown), why)
        return profile | {"unknown": unknown}


def profile_of(
    measured: Measurement, interval_s: float, metrics: Iterable[str], container_stats: dict[str, str]
) -> dict[str, Any]:
    profile = detailed_profile(
        measured.kept,
        measured.usage,
        measured.duration_s,
        count=measured.samples,
        details=measured.details,
        container_stats=container_stats,
        running=measured.kept,
        counted_s=measured.counted_s,
    )
    if profile["sampling_interval_seconds"] is None:
        profile["sampling_interval_seconds"] = interval_s  # too short to derive it
    return without_others(profile, metrics)


def _as_job(metrics: tuple[str, ...], *, every_gpu: bool) -> Job:
    """Returns the target of the instruments."""
    return Job(
        uuid=new_uuid(),
        argv=(),
        created_at_us=time.time_ns() // 1000,
        probes=tuple(name for name in IN_PROCESS_PROBES if name in metrics),
        gpu_devices=(EVERY_GPU,) if every_gpu else (),
    )


def _seconds(name: str, value: Any) -> float:
    if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise InputError(f"{name} {value!r}: expected seconds, more than 0")
    if value < LEAST_INTERVAL_S:
        raise InputError(f"{name} {value!r}: at least {LEAST_INTERVAL_S:g}")
    return float(value)


def _container_name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise InputError(f"container_name {name!r}: expected the name or the id of a container")
    return plain_text(name)


_profilers = ProgramWide(ResourceProfiler, lambda profiler: profiler._forget())  # noqa: SLF001


def get_profiler() -> ResourceProfiler:
    """Returns the profiler of the whole program."""
    return _profilers.get()
