"""Time that passes only when a test says so."""


class FakeClock:
    def __init__(self) -> None:
        self.wall_us = 1_760_000_000_000_000
        self.mono = 5_000_000_000
        self.suspended = 0

    def now_us(self) -> int:
        return self.wall_us

    def mono_ns(self) -> int:
        return self.mono

    def boot_ns(self) -> int:
        return self.mono + self.suspended

    def pass_s(self, seconds: float) -> None:
        self.mono += round(seconds * 1e9)
        self.wall_us += round(seconds * 1e6)

    def suspend_s(self, seconds: float) -> None:
        """The machine sleeps meanwhile."""
        self.suspended += round(seconds * 1e9)
        self.wall_us += round(seconds * 1e6)
