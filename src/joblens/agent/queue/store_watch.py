"""For how long a worker has had the store, and a clock for how long its own claims are good."""

import time

_MICRO = 1_000_000
_LONGEST_GAP = 0.5  # of a lease
_GAP_LOOKS = 1.5  # at least so many times the pause between two looks


def lease_now_s() -> float:
    """A clock that goes on while the machine sleeps, as leases do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class StoreWatch:
    """Whether whoever lives has had the chance to renew its leases. Told by the store's own clock at every
    look: where much of a lease lies between two looks, the store hung, or this process did, or the machine
    slept, or the clock was set; all the others may then just not have come to it. On one thread."""

    def __init__(self, lease_s: float, look_every_s: float) -> None:
        self._lease_us = round(lease_s * _MICRO)
        self._gap_us = round(max(lease_s * _LONGEST_GAP, look_every_s * _GAP_LOOKS) * _MICRO)
        self._since_us: int | None = None
        self._last_us = 0

    def is_away(self) -> None:
        self._since_us = None

    def answered(self, at_us: int) -> None:
        if self._since_us is None or not 0 <= at_us - self._last_us <= self._gap_us:
            self._since_us = at_us
        self._last_us = at_us

    @property
    def may_judge(self) -> bool:
        """It was there for a whole lease without a gap."""
        return self._since_us is not None and self._last_us - self._since_us > self._lease_us
