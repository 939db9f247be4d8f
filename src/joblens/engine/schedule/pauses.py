"""Jobs that wait for the time of their next attempt."""

from collections.abc import Iterator
from heapq import heappop, heappush


class Pauses:
    def __init__(self) -> None:
        self._until_s: dict[int, float] = {}
        self._due: list[tuple[float, int]] = []  # heap over `_until_s`; what was removed is still inside

    def __contains__(self, index: int) -> bool:
        return index in self._until_s

    def __bool__(self) -> bool:
        return bool(self._until_s)

    def add(self, index: int, until_s: float) -> None:
        self._until_s[index] = until_s
        heappush(self._due, (until_s, index))

    def remove(self, index: int) -> bool:
        """Whether it was there."""
        return self._until_s.pop(index, None) is not None

    def clear(self) -> None:
        self._until_s.clear()

    def next_s(self) -> float | None:
        while self._due and self._until_s.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def over(self, now_s: float) -> Iterator[int]:
        """Takes out those whose time has come."""
        while (due_s := self.next_s()) is not None and due_s <= now_s:
            index = heappop(self._due)[1]
            del self._until_s[index]
            yield index
