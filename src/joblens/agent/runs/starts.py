"""Jobs of a run that the schedule has started and that are not handed over yet: their turn has not come where
starts are spread, or their input files are being read."""

import time
from collections import deque
from collections.abc import Callable

from joblens.agent.provenance.file_stamps import FileStamps
from joblens.engine.schedule.events import StartAttempt
from joblens.model.jobs.run_link import FileStamp
from joblens.model.runs.plan import Plan


class RunStarts:
    def __init__(
        self,
        plan: Plan,
        stamps: FileStamps,
        hand_over: Callable[[StartAttempt, tuple[FileStamp, ...]], None],
    ) -> None:
        self._plan = plan
        self._stamps = stamps
        self._hand_over = hand_over
        self._every_s = plan.execution.staggered_start_s
        self._in_line: deque[StartAttempt] = deque()
        self._next_s = 0.0
        self._reading: dict[int, StartAttempt] = {}

    def add(self, start: StartAttempt) -> None:
        if self._every_s > 0:
            self._in_line.append(start)
            self.wake()
        else:
            self._read(start)

    def take_out(self, index: int) -> StartAttempt | None:
        """It is not to be started any more. None: it has been handed over."""
        for start in self._in_line:
            if start.index == index:
                self._in_line.remove(start)
                return start
        return self._reading.pop(index, None)

    def next_wake_s(self) -> float | None:
        return self._next_s if self._in_line else None

    def wake(self) -> None:
        now_s = time.monotonic()
        if self._in_line and now_s >= self._next_s:
            self._next_s = now_s + self._every_s
            self._read(self._in_line.popleft())

    def close(self) -> None:
        self._stamps.close()

    def _read(self, start: StartAttempt) -> None:
        inputs = self._plan.jobs[start.index].input_files
        if not inputs:
            self._hand_over(start, ())
            return
        self._reading[start.index] = start
        paths = [self._plan.files[place].path for place in inputs]
        self._stamps.stamp(paths, lambda stamps: self._has_read(start, stamps))

    def _has_read(self, start: StartAttempt, stamps: tuple[FileStamp, ...]) -> None:
        if self._reading.pop(start.index, None) is not None:
            self._hand_over(start, stamps)
