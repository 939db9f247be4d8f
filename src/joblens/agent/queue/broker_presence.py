"""Whether a worker hears of jobs from a broker."""

from collections.abc import Callable


class BrokerPresence:
    """Told on the thread that hears."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._has_been_lost = False
        self.is_there = False

    def comes(self) -> None:
        self.is_there = True
        if self._has_been_lost:
            self._has_been_lost = False
            self._note("the broker is back")

    def goes(self, why: str) -> None:
        self.is_there = False
        self._has_been_lost = True
        self._note(f"the broker is away: {why.rstrip('.')}; looks into the store every second")
