"""One thread that samples any number of jobs, each on its own drift-free schedule."""

import threading
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from joblens.ports.clock import Clock

MIN_INTERVAL_S = 0.05


class Sampler:
    """Calls `take(uuid)` at start + k * interval. A late tick is taken once and the schedule kept:
    missed places are skipped, never made up for in a burst."""

    def __init__(self, take: Callable[[str], None], after_round: Callable[[], None], clock: Clock) -> None:
        self._take = take
        self._after_round = after_round  # told when all that was due has been taken
        self._clock = clock
        self._due: list[tuple[int, str, int]] = []  # (mono ns, uuid, interval ns)
        self._dropped: set[str] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, uuid: str, interval_s: float) -> None:
        interval_ns = int(max(interval_s, MIN_INTERVAL_S) * 1e9)
        with self._changed:
            heappush(self._due, (self._clock.mono_ns() + interval_ns, uuid, interval_ns))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="joblens-sampler", daemon=True)
                self._thread.start()
            self._changed.notify()

    def remove(self, uuid: str) -> None:
        """After this returns no further tick for the job begins."""
        with self._changed:
            self._due = [entry for entry in self._due if entry[1] != uuid]
            heapify(self._due)
            self._dropped.add(uuid)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (wait_s := self._wait_s()) != 0:
                    self._changed.wait(wait_s)
                if self._closed:
                    return
                ready = self._pop_due()
            for uuid in ready:
                if uuid not in self._dropped:
                    self._take(uuid)
            self._after_round()

    def _wait_s(self) -> float | None:
        if not self._due:
            return None
        return max(0.0, (self._due[0][0] - self._clock.mono_ns()) / 1e9)

    def _pop_due(self) -> list[str]:
        now_ns = self._clock.mono_ns()
        ready = []
        while self._due and self._due[0][0] <= now_ns:
            due_ns, uuid, interval_ns = heappop(self._due)
            ready.append(uuid)
            missed = (now_ns - due_ns) // interval_ns
            heappush(self._due, (due_ns + (missed + 1) * interval_ns, uuid, interval_ns))
        self._dropped.clear()
        return ready
