"""What this process has started, and what that has: who they are, whether they live, and their end. By /proc
and pidfds, so that a number that somebody else has by now is nobody's."""

import contextlib
import os
import select
import time
from collections.abc import Collection

_LONGEST_POLL_MS = 1000


class OwnDescendants:
    """Those that there are now; `names`: only those that are called so."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self._pidfds: list[int] = []
        children: dict[int, list[tuple[int, str]]] = {}
        for pid, parent, name in _processes():
            children.setdefault(parent, []).append((pid, name))
        reached = [os.getpid()]
        while reached:
            for pid, name in children.get(reached.pop(), ()):
                reached.append(pid)
                if not names or name in names:
                    with contextlib.suppress(OSError):  # it has ended meanwhile
                        self._pidfds.append(os.pidfd_open(pid))

    @property
    def all_live(self) -> bool:
        return not self._ended(self._pidfds, 0)

    def wait(self, most_s: float) -> None:
        """Until all have ended."""
        left = list(self._pidfds)
        deadline_s = time.monotonic() + most_s
        while left and (left_s := deadline_s - time.monotonic()) > 0:
            ended = self._ended(left, min(_LONGEST_POLL_MS, int(left_s * 1000) + 1))
            left = [one for one in left if one not in ended]

    @staticmethod
    def _ended(pidfds: Collection[int], wait_ms: int) -> set[int]:
        """Also those that nobody has waited for."""
        poll = select.poll()
        for one in pidfds:
            poll.register(one, select.POLLIN)
        return {one for one, _ in poll.poll(wait_ms)}

    def close(self) -> None:
        pidfds, self._pidfds = self._pidfds, []
        for one in pidfds:
            os.close(one)


def _processes() -> list[tuple[int, int, str]]:
    """-> (pid, parent, name) of each"""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{entry}/stat", errors="replace") as file:
            before, _, behind = file.read().rpartition(")")  # a name may have any character
            found.append((int(entry), int(behind.split()[1]), before.partition("(")[2]))
    return found
