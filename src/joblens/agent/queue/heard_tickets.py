"""Tickets that a worker was told of and has not claimed yet."""

from collections import deque
from collections.abc import Callable, Collection, Sequence

Settled = Callable[[], None]
_MOST_LEFT = 1000


class HeardTickets:
    """Filled from the thread that hears."""

    def __init__(self) -> None:
        self._heard: deque[tuple[str, Settled]] = deque()
        # For which there was no room: their message has done its work, they are tried again.
        self._left: deque[str] = deque(maxlen=_MOST_LEFT)

    def __bool__(self) -> bool:
        return bool(self._heard)

    @property
    def are_left(self) -> bool:
        return bool(self._left)

    def put(self, uuid: str, settled: Settled) -> None:
        self._heard.append((uuid, settled))

    def take(self, most: int) -> list[tuple[str, Settled]]:
        return [self._heard.popleft() for _ in range(min(most, len(self._heard)))]

    def put_back(self, batch: Sequence[tuple[str, Settled]]) -> None:
        self._heard.extendleft(reversed(batch))

    def leave(self, uuids: Collection[str]) -> None:
        self._left.extend(uuids)

    def try_left(self) -> None:
        """Something is free again."""
        while self._left:
            self._heard.append((self._left.popleft(), _nothing))

    def forget(self, uuid: str) -> bool:
        """-> whether it was there"""
        before = len(self._heard) + len(self._left)
        self._heard = deque(one for one in self._heard if one[0] != uuid)
        self._left = deque((one for one in self._left if one != uuid), maxlen=_MOST_LEFT)
        return len(self._heard) + len(self._left) < before

    def clear(self) -> list[str]:
        """-> what was there"""
        uuids = [*(uuid for uuid, _ in self._heard), *self._left]
        self._heard.clear()  # the broker gives them to others
        self._left.clear()
        return uuids


def _nothing() -> None:
    pass
