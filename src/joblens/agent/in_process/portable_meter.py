"""Meter of windows for systems other than Linux: numbers of psutil, on one thread for all windows. Every
window measures the whole process and its descendants, so overlapping windows count the same work twice,
and a finding says so."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from joblens.agent.measuring.window_measurement import Measurement
from joblens.analysis.numbers.sample_buffer import UNRECLAIMABLE
from joblens.analysis.numbers.usage import mean_unreclaimable
from joblens.model.jobs.job import USAGE_NUMBERS, Usage
from joblens.model.jobs.sample import Sample
from joblens.probes.host.portable import COUNTERS, PortableTree, has_psutil, read_portable_host

MIN_INTERVAL_S = 0.05
_MOST_KEPT = 4096
_LINGER_S = 5.0
_COUNTERS = frozenset({*COUNTERS, "cpu_system_usec", "host_network_rx_bytes", "host_network_tx_bytes"})
_TOTALS = (
    "cpu_total_usec",
    "cpu_user_usec",
    "cpu_system_usec",
    "io_read_bytes",
    "io_write_bytes",
    "io_call_read_bytes",
    "io_call_write_bytes",
    "io_call_reads",
    "io_call_writes",
)
_PEAKS = {
    "memory_peak_bytes": "memory_anon_bytes",
    "memory_largest_process_bytes": "memory_largest_process_bytes",
    "processes_peak": "processes",
    "threads_peak": "threads",
    "open_files_peak": "open_files",
}
_GROUPS = ("cpu", "memory_peak", "memory_largest_process", "memory_parts", "io", "io_calls", "processes")
_SAMPLED = ("memory_peak_bytes", "memory_largest_process_bytes", "processes_peak", "threads_peak")


class PortableWindow(Struct, eq=False, kw_only=True):
    """Changed only by the meter, under its lock."""

    interval_s: float
    started_mono_s: float
    due_mono_s: float
    base: dict[str, int]
    on_samples: Callable[[int, tuple[Sample, ...]], None]
    is_whole: bool = False
    is_shared: bool = False
    samples: int = 0
    kept: list[Sample] = field(default_factory=list)
    # peaks over all samples, by the usage numbers they become
    peaks: dict[str, int] = field(default_factory=dict)
    pending: list[Sample] = field(default_factory=list)
    first_pending: int = 0


class PortableMeter:
    """Has the interface of `InProcessMeter`."""

    def __init__(self) -> None:
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._windows: list[PortableWindow] = []
        self._tree = PortableTree()
        self._thread: threading.Thread | None = None

    def begin(
        self,
        interval_s: float,
        on_samples: Callable[[int, tuple[Sample, ...]], None],
        *,
        is_whole: bool = False,
        instruments: object = None,
    ) -> PortableWindow:
        interval_s = max(interval_s, MIN_INTERVAL_S)
        with self._changed:
            fields, now_s = self._read(), self._tree.scanned_mono_s
            window = PortableWindow(
                interval_s=interval_s,
                started_mono_s=now_s,
                due_mono_s=now_s + interval_s,
                base={name: value for name, value in fields.items() if name in _COUNTERS},
                on_samples=on_samples,
                is_whole=is_whole,
            )
            for other in self._windows:
                if not (is_whole or other.is_whole):
                    other.is_shared = window.is_shared = True
            self._windows.append(window)
            _take(window, fields, now_s)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="joblens-in-process", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return window

    def end(self, window: PortableWindow) -> Measurement:
        with self._changed:
            measured = self._measure(window)
            self._windows.remove(window)
            return measured

    def peek(self, window: PortableWindow) -> Measurement:
        with self._changed:
            return self._measure(window)

    def pids(self) -> list[int]:
        with self._changed:
            return self._tree.pids

    def flush(self) -> None:
        with self._changed:
            windows = list(self._windows)
        for window in windows:
            self._write(window)

    def close(self) -> None:
        """The thread is a daemon: nothing waits for it."""

    def _measure(self, window: PortableWindow) -> Measurement:
        if window not in self._windows:
            raise ValueError("this measurement has already ended, or was started before a fork")
        fields = self._read()
        _take(window, fields, self._tree.scanned_mono_s)
        duration_s = window.kept[-1].elapsed_us / 1e6
        return Measurement(
            ended_at_us=time.time_ns() // 1000,
            duration_s=duration_s,
            usage=_usage_of(window),
            findings=(),
            samples=window.samples,
            sampling_interval_s=duration_s / (window.samples - 1),
            first_pending=window.first_pending,
            pending=tuple(window.pending),
            kept=tuple(window.kept),
        )

    def _read(self) -> dict[str, Any]:
        return {**self._tree.read(), **read_portable_host()}

    def _run(self) -> None:
        idle_until_s = time.monotonic() + _LINGER_S
        while True:
            with self._changed:
                if self._windows:
                    idle_until_s = time.monotonic() + _LINGER_S
                due_s = min((window.due_mono_s for window in self._windows), default=idle_until_s)
                wait_s = due_s - time.monotonic()
                if wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                if not self._windows:
                    self._thread = None
                    return
                sampled = self._tick()
            for window in sampled:
                self._write(window)

    def _tick(self) -> list[PortableWindow]:
        fields, now_s = self._read(), time.monotonic()
        due = [window for window in self._windows if window.due_mono_s <= now_s]
        for window in due:
            _take(window, fields, self._tree.scanned_mono_s)
            missed = (now_s - window.due_mono_s) // window.interval_s
            window.due_mono_s += (missed + 1) * window.interval_s
        return due

    def _write(self, window: PortableWindow) -> None:
        with self._changed:
            if window not in self._windows or not window.pending:
                return
            first, samples = window.first_pending, tuple(window.pending)
            window.pending = []
            window.first_pending += len(samples)
        window.on_samples(first, samples)


def _take(window: PortableWindow, fields: dict[str, Any], at_mono_s: float) -> None:
    since = {
        name: max(0, value - window.base.get(name, 0)) for name, value in fields.items() if name in _COUNTERS
    }
    sample = Sample(
        at_us=time.time_ns() // 1000,
        elapsed_us=max(0, int((at_mono_s - window.started_mono_s) * 1e6)),
        **{**fields, **since},
    )
    window.samples += 1
    window.pending.append(sample)
    window.kept.append(sample)
    for number, name in _PEAKS.items():
        if (value := getattr(sample, name)) is not None:
            window.peaks[number] = max(value, window.peaks.get(number, 0))
    if len(window.kept) >= _MOST_KEPT:
        window.kept = window.kept[::2]


def _usage_of(window: PortableWindow) -> Usage:
    last = window.kept[-1]
    numbers: dict[str, int | None] = {name: getattr(last, name) for name in _TOTALS} | window.peaks
    numbers["memory_mean_bytes"] = mean_unreclaimable(window.kept, window.kept)
    known = {name: value for name, value in numbers.items() if value is not None}
    why = "not provided by psutil on this system" if has_psutil() else "psutil is not installed"
    return Usage(
        **known,
        sources=dict.fromkeys(
            ("cpu", "memory_peak", "memory_parts", "io", "io_calls", "processes"), "psutil"
        ),
        unknown={name: why for name in USAGE_NUMBERS if name not in known},
        lower_bounds=tuple(name for name in _SAMPLED if name in known),
        estimates=(),
        memory_peak_basis=UNRECLAIMABLE,
        shared=window.is_shared,
    )
