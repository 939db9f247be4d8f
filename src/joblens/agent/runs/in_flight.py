"""In-flight attempts of a run: started by the schedule and not ended yet."""

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from joblens.agent.provenance.file_stamps import FileStamps
from joblens.agent.runtime.loop import mono_s
from joblens.engine.schedule.events import RunActionCommand, RunRecovery, StartAttempt
from joblens.model.jobs.job import FileStamp
from joblens.model.runs.plan import Plan
from joblens.ports.clock import Clock


class InFlightAttempt(Struct):
    what: StartAttempt | RunActionCommand | RunRecovery
    uuid: str


class InFlightAttempts(dict[str, InFlightAttempt]):
    """In-flight attempts by the uuid of the attempt's job."""

    def __init__(self) -> None:
        super().__init__()
        self._uuids: dict[int, str] = {}  # of jobs of the plan, by index

    def add(self, what: StartAttempt | RunActionCommand | RunRecovery, uuid: str) -> None:
        self[uuid] = InFlightAttempt(what, uuid)
        if isinstance(what, StartAttempt):
            self._uuids[what.index] = uuid

    def remove(self, uuid: str) -> InFlightAttempt | None:
        """Returns the attempt, or None if it is not in flight."""
        flight = self.pop(uuid, None)
        if flight is not None and isinstance(flight.what, StartAttempt):
            self._uuids.pop(flight.what.index, None)
        return flight

    def uuid_of(self, index: int) -> str | None:
        """Returns the UUID of a job of the plan that is in flight."""
        return self._uuids.get(index)

    def attempts(self) -> tuple[tuple[int, int], ...]:
        """Returns (index, attempt) of jobs of the plan."""
        whats = (flight.what for flight in self.values())
        return tuple((what.index, what.attempt) for what in whats if isinstance(what, StartAttempt))

    def auxiliary(self) -> list[str]:
        """Returns commands that are not jobs of the plan."""
        return [uuid for uuid, flight in self.items() if not isinstance(flight.what, StartAttempt)]

    def recovery_of(self, index: int) -> list[str]:
        whats = ((uuid, flight.what) for uuid, flight in self.items())
        return [uuid for uuid, what in whats if isinstance(what, RunRecovery) and what.index == index]

    def describe(self) -> str:
        """Returns '2 jobs', or '1 job and 1 action' if other commands run too."""
        whats = [flight.what for flight in self.values()]
        counts = (
            (sum(isinstance(what, StartAttempt) for what in whats), "job"),
            (sum(isinstance(what, RunActionCommand) for what in whats), "action"),
            (sum(isinstance(what, RunRecovery) for what in whats), "recovery script"),
        )
        parts = [f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count]
        return " and ".join(parts) or "0 jobs"


class RunStarts:
    def __init__(
        self,
        plan: Plan,
        stamps: FileStamps,
        submit: Callable[[StartAttempt, tuple[FileStamp, ...]], None],
        clock: Clock,
    ) -> None:
        self._plan = plan
        self._stamps = stamps
        self._submit = submit
        self._clock = clock
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
        """Removes an attempt that should not start. Returns None if it was already passed on."""
        for start in self._in_line:
            if start.index == index:
                self._in_line.remove(start)
                return start
        return self._reading.pop(index, None)

    def next_wake_s(self) -> float | None:
        return self._next_s if self._in_line else None

    def wake(self) -> None:
        now_s = mono_s(self._clock)
        if self._in_line and now_s >= self._next_s:
            self._next_s = now_s + self._every_s
            self._read(self._in_line.popleft())

    def close(self) -> None:
        self._stamps.close()

    def _read(self, start: StartAttempt) -> None:
        inputs = self._plan.jobs[start.index].input_files
        if not inputs:
            self._submit(start, ())
            return
        self._reading[start.index] = start
        paths = [self._plan.files[number].path for number in inputs]
        self._stamps.stamp(paths, lambda stamps: self._has_read(start, stamps))

    def _has_read(self, start: StartAttempt, stamps: tuple[FileStamp, ...]) -> None:
        if self._reading.pop(start.index, None) is not None:
            self._submit(start, stamps)
