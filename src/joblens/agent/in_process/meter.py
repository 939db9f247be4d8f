"""Meter of windows inside the calling process: the usage of the process, its threads and the children it
starts between `begin` and `end`. Any number of windows share one sampling thread.

The host program is not disturbed: no signal handler, no subreaper, no wait. Everything is the difference
of two readings. If windows overlap, readings split time into segments: usage while only one window is
open belongs to it; otherwise a window gets the usage of its thread and that thread's children.
"""

import os
import resource
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from joblens.agent.in_process.window import Window, WindowInstruments, findings_of, usage_of
from joblens.agent.measuring.window_measurement import Measurement
from joblens.analysis.numbers.attribution import Counters, Identity, Segment, Snapshot, between, claim
from joblens.model.jobs.details import Details
from joblens.model.jobs.sample import Sample
from joblens.probes.proc.own_tree import OwnTree

MIN_INTERVAL_S = 0.05
_LINGER_NS = 5_000_000_000  # the sampling thread waits this long for another window before it ends
_IDLE_READ_NS = 250_000_000
_OVERLAP_READ_NS = 20_000_000  # between readings while windows overlap, to catch short children
_OVERLAP_BUDGET = 50  # … but at most 1/50 of the time is spent on them
_SAMPLES_PER_WRITE = 20
_WRITE_EVERY_NS = 5_000_000_000

__all__ = ["MIN_INTERVAL_S", "InProcessMeter", "Measurement"]

_enclosing: ContextVar[tuple[Window, ...]] = ContextVar("joblens_enclosing", default=())


class InProcessMeter:
    def __init__(self, read_host: Callable[[], dict[str, Any]] = dict) -> None:
        """`read_host` returns the host_… fields of a sample."""
        self._read_host = read_host
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Also called in a forked child: the sampling thread does not exist there, the lock may be held by a
        thread that does not exist either, and the windows belong to the parent."""
        self._changed = threading.Condition(threading.RLock())
        self._windows: list[Window] = []
        self._tree = OwnTree()
        self._last: Snapshot | None = None
        self._debts: dict[Identity | None, Counters] = {}
        self._parents: set[int] = set()
        self._thread: threading.Thread | None = None
        self._overhead_usec = 0  # CPU of all sampling threads so far
        self._thread_spent_usec = 0  # of the present one
        self._next_read_ns = 0
        self._sleeps_until_ns = 0  # when the sampling thread wakes up by itself
        self._is_closing = False

    def begin(
        self,
        interval_s: float,
        on_samples: Callable[[int, tuple[Sample, ...]], None],
        *,
        is_whole: bool = False,
        instruments: WindowInstruments | None = None,
    ) -> Window:
        """`is_whole`: measures the whole process and overlaps with nothing; otherwise overlapping usage
        is divided. `instruments` are closed when the window ends."""
        thread = threading.get_native_id()
        interval_ns = int(max(interval_s, MIN_INTERVAL_S) * 1e9)
        with self._changed:
            around = tuple(window for window in _enclosing.get() if window in self._windows)
            enclosing = () if is_whole else around
            last = self._advance({thread})
            level = self._tree.level()
            now_ns = time.monotonic_ns()
            window = Window(
                thread=thread,
                interval_ns=interval_ns,
                enclosing=enclosing,
                started_at_us=time.time_ns() // 1000,
                started_mono_ns=now_ns,
                due_mono_ns=now_ns + interval_ns,
                on_samples=on_samples,
                base_waited=resource.getrusage(resource.RUSAGE_CHILDREN),
                base_own=resource.getrusage(resource.RUSAGE_SELF),
                base_own_peak_bytes=level.own_peak_bytes,
                had_children=bool(last.live),
                is_whole=is_whole,
                instruments=instruments,
                written_mono_ns=now_ns,
            )
            self._windows.append(window)
            self._note_rivals()
            window.take_sample(now_ns, level, self._host_fields())
            self._wake()
        if not is_whole:
            _enclosing.set((*around, window))
        return window

    def end(self, window: Window) -> Measurement:
        with self._changed:
            measured = self._measure(window, final=True)
            self._windows.remove(window)
            if not self._windows:
                self._last, self._debts, self._parents = None, {}, set()
                self._tree.forget()
        _enclosing.set(tuple(other for other in _enclosing.get() if other is not window))
        if window.instruments is not None:
            window.instruments.close()
        return measured

    def peek(self, window: Window) -> Measurement:
        """Returns the usage so far. The window stays open and gets one more sample."""
        with self._changed:
            return self._measure(window)

    def pids(self) -> list[int]:
        """Returns this process and its descendants, as last read."""
        with self._changed:
            below = () if self._last is None else self._last.live
            return [os.getpid(), *(pid for pid, _ in below)]

    def _measure(self, window: Window, *, final: bool = False) -> Measurement:
        if window not in self._windows:
            raise ValueError("this measurement has already ended, or was started before a fork")
        last = self._advance(set())
        level = self._tree.level()
        window.take_sample(self._tree.scanned_mono_ns, level, self._host_fields(), final=final)
        usage = usage_of(window, level, has_children=bool(last.live))
        duration_s = (window.last_mono_ns - window.started_mono_ns) / 1e9
        return Measurement(
            ended_at_us=time.time_ns() // 1000,
            duration_s=duration_s,
            usage=usage,
            findings=findings_of(window),
            samples=window.samples,
            sampling_interval_s=duration_s / (window.samples - 1),
            first_pending=window.first_pending,
            pending=tuple(window.pending),
            kept=tuple(window.kept),
            details=Details() if window.instruments is None else window.instruments.details,
        )

    def flush(self) -> None:
        """Passes every window's samples to its `on_samples`, for the end of the host program."""
        with self._changed:
            windows = list(self._windows)
        for window in windows:
            self._write(window)

    def close(self) -> None:
        """Ends the sampling thread; a later `begin` starts another."""
        with self._changed:
            thread, self._is_closing = self._thread, True
            self._changed.notify_all()
        if thread is not None:
            thread.join(timeout=0.5)
        self._is_closing = False

    # -- with the lock held

    def _advance(self, more_threads: set[int]) -> Snapshot:
        """Reads counters and adds the usage since the last reading to the windows it belongs to."""
        threads = {window.thread for window in self._windows if not window.is_whole} | more_threads
        snapshot = self._tree.scan(threads, self._overhead_usec)
        self._parents.update(process.thread for process in snapshot.live.values() if process.thread)
        if self._last is not None and self._windows:
            segment = between(self._last, snapshot, self._debts)
            self._debts = dict(segment.debts)
            self._distribute(segment, snapshot)
        self._last = snapshot
        return snapshot

    def _distribute(self, segment: Segment, snapshot: Snapshot) -> None:
        total = segment.total()
        measured = {window.thread for window in self._windows if not window.is_whole}
        for window in self._windows:
            if not window.rivals_among(self._windows):
                window.used += total
                continue
            part = claim(segment, window.thread, measured, self._parents)
            window.used += part.used
            window.estimated_usec += part.estimated_usec
            window.unclaimed_usec += part.unclaimed_usec
            window.has_thread_ended |= window.thread not in snapshot.threads

    def _note_rivals(self) -> None:
        for window in self._windows:
            rivals = window.rivals_among(self._windows)
            window.rivals = max(window.rivals, len(rivals))
            window.has_rival_on_thread |= any(rival.thread == window.thread for rival in rivals)

    def _host_fields(self) -> dict[str, Any]:
        try:
            return self._read_host()
        except (OSError, ValueError, LookupError):
            return {}  # a host program that closes all descriptors closes the probe's too

    def _wake(self) -> None:
        if self._thread is None:
            self._thread_spent_usec = 0
            self._thread = threading.Thread(target=self._run, name="joblens-in-process", daemon=True)
            self._thread.start()
        elif self._next_due_ns() < self._sleeps_until_ns:
            self._changed.notify_all()

    def _next_due_ns(self) -> int:
        due_ns = min(window.due_mono_ns for window in self._windows)
        is_overlapping = any(window.rivals_among(self._windows) for window in self._windows)
        return min(due_ns, self._next_read_ns) if is_overlapping else due_ns

    # -- the sampling thread

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._wait_for_due():
                    self._thread = None
                    return
                sampled = self._tick()
            for window in sampled:
                waited_ns = window.last_mono_ns - window.written_mono_ns
                if len(window.pending) >= _SAMPLES_PER_WRITE or waited_ns > _WRITE_EVERY_NS:
                    self._write(window)

    def _wait_for_due(self) -> bool:
        """Returns False if there was nothing to do for a while."""
        idle_since_ns = time.monotonic_ns()
        while not self._is_closing:
            now_ns = time.monotonic_ns()
            if self._windows:
                self._sleeps_until_ns = self._next_due_ns()
                if self._sleeps_until_ns <= now_ns:
                    return True
            else:
                if idle_since_ns + _LINGER_NS <= now_ns:
                    return False
                # Short, so that a short window need not wake the thread.
                self._sleeps_until_ns = now_ns + _IDLE_READ_NS
            self._changed.wait((self._sleeps_until_ns - now_ns) / 1e9)
        return False

    def _tick(self) -> list[Window]:
        began_ns = time.monotonic_ns()
        self._advance(set())
        due = [window for window in self._windows if window.due_mono_ns <= began_ns]
        if due:
            level, host = self._tree.level(), self._host_fields()
            for window in due:
                window.take_sample(self._tree.scanned_mono_ns, level, host)
                # Missed samples are skipped, never made up for in a burst.
                missed = (began_ns - window.due_mono_ns) // window.interval_ns
                window.due_mono_ns += (missed + 1) * window.interval_ns
        now_ns = time.monotonic_ns()
        self._next_read_ns = now_ns + max(_OVERLAP_READ_NS, _OVERLAP_BUDGET * (now_ns - began_ns))
        spent_usec = time.thread_time_ns() // 1000
        self._overhead_usec += spent_usec - self._thread_spent_usec
        self._thread_spent_usec = spent_usec
        return due

    def _write(self, window: Window) -> None:
        with self._changed:
            if window not in self._windows or not window.pending:
                return
            first, samples = window.take_pending()
        window.on_samples(first, samples)
