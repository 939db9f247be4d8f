"""Time comes in by a port, so that logic can be tested without waiting."""

from typing import Protocol


class Clock(Protocol):
    def now_us(self) -> int:
        """UTC, may jump."""
        ...

    def mono_ns(self) -> int:
        """Never jumps; durations are differences of it."""
        ...
