"""Time comes in by a port, so that logic can be tested without waiting."""

from typing import Protocol


class Clock(Protocol):
    def now_us(self) -> int:
        """UTC, may jump."""
        ...

    def mono_ns(self) -> int:
        """Never jumps; durations are differences of it."""
        ...

    def boot_ns(self) -> int:
        """Like `mono_ns`, and also counts while the machine is suspended, as leases do."""
        ...
