"""What a run has handed over and what has not ended yet."""

from msgspec import Struct

from joblens.engine.schedule.events import RunActionCommand, RunRecovery, StartAttempt


class InFlightAttempt(Struct):
    what: StartAttempt | RunActionCommand | RunRecovery
    uuid: str


class InFlightAttempts(dict[str, InFlightAttempt]):
    """By the uuid of the attempt's job."""

    def add(self, what: StartAttempt | RunActionCommand | RunRecovery, uuid: str) -> None:
        self[uuid] = InFlightAttempt(what, uuid)

    def attempts(self) -> tuple[tuple[int, int], ...]:
        """(index, attempt) of jobs of the plan."""
        whats = (flight.what for flight in self.values())
        return tuple((what.index, what.attempt) for what in whats if isinstance(what, StartAttempt))

    def beside(self) -> list[str]:
        """Of commands that are no job of the plan."""
        return [uuid for uuid, flight in self.items() if not isinstance(flight.what, StartAttempt)]

    def recovery_of(self, index: int) -> list[str]:
        whats = ((uuid, flight.what) for uuid, flight in self.items())
        return [uuid for uuid, what in whats if isinstance(what, RunRecovery) and what.index == index]

    def in_words(self) -> str:
        """'2 jobs', or '1 job and 1 action' where something runs beside the jobs."""
        whats = [flight.what for flight in self.values()]
        counts = (
            (sum(isinstance(what, StartAttempt) for what in whats), "job"),
            (sum(isinstance(what, RunActionCommand) for what in whats), "action"),
            (sum(isinstance(what, RunRecovery) for what in whats), "recovery script"),
        )
        parts = [f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count]
        return " and ".join(parts) or "0 jobs"
