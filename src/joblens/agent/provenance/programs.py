"""Programs that tools need, searched on this machine."""

import os
import shutil
import time
from collections.abc import Callable, Iterator

from joblens.model.delivery import Order
from joblens.model.errors import CommandNotFound
from joblens.spec.formats.positions import any_of

_CHECK_S = 30.0


class Programs:
    """Searches programs of a tool. `check_s`: time limit of a check. `failed_s`: time until a failed program
    is checked again, because it may be installed any time."""

    def __init__(
        self,
        check_s: float = _CHECK_S,
        failed_s: float = 0.0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._check_s = check_s
        self._failed_s = failed_s
        self._now_s = now_s
        self._passed: set[tuple[str, tuple[str, ...]]] = set()
        self._failed: dict[tuple[str, tuple[str, ...]], float] = {}

    def usable(self, names: tuple[str, ...], check: tuple[str, ...]) -> str | None:
        """Returns the path of the first program that exists and passes its check."""
        for name in names:
            for path in _all_named(name):
                if not check or self._passes(path, check):
                    return path
        return None

    def missing(self, names: tuple[str, ...], check: tuple[str, ...], needs: tuple[str, ...] = ()) -> str:
        """Returns a description of what is missing; '': nothing."""
        if names and self.usable(names, check) is None:
            there = [name for name in names if shutil.which(name)]
            either = any_of(list(dict.fromkeys(map(os.path.basename, names))))
            if not there:
                return f"there is no program {either}"
            return f"no {either} here passes its check ({there[0]} {' '.join(check)})"
        others = [name for name in needs if shutil.which(name) is None]
        return f"there is no program {others[0]}" if others else ""

    def command_of(self, order: Order) -> tuple[str, ...]:
        """Returns the command with the programs of this machine. Raises CommandNotFound."""
        wanted = order.programs
        if wanted is None:
            return order.argv
        argv = list(order.argv)
        for sought in wanted.sought:
            found = self.usable(sought.names, sought.check)
            if found is None:
                self._refuse(order, self.missing(sought.names, sought.check))
            else:
                argv[sought.index] = found.join(sought.around)
        if missing := self.missing((), (), wanted.needs):
            self._refuse(order, missing)
        return tuple(argv)

    def _refuse(self, order: Order, why: str) -> None:
        wanted = order.programs
        assert wanted is not None
        advice = f"; {wanted.install}" if wanted.install else ""
        raise CommandNotFound(f"{wanted.tool} cannot run on this worker's machine: {why}{advice}")

    def _passes(self, program: str, arguments: tuple[str, ...]) -> bool:
        check = (program, arguments)
        if check in self._passed:
            return True
        if self._now_s() < self._failed.get(check, 0.0):
            return False
        if _ends_well([program, *arguments], self._check_s):
            self._passed.add(check)
            return True
        if self._failed_s:
            self._failed[check] = self._now_s() + self._failed_s
        return False


def _all_named(program: str) -> Iterator[str]:
    """Yields all programs of that name: a second one in PATH may have what the first lacks."""
    folders = [""] if "/" in program else os.environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        found = shutil.which(program, path=folder or None) if folder or "/" in program else None
        if found is not None:
            yield os.path.abspath(found)


def _ends_well(argv: list[str], timeout_s: float) -> bool:
    import subprocess

    nothing = subprocess.DEVNULL
    try:
        check = subprocess.run(
            argv, stdin=nothing, stdout=nothing, stderr=nothing, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return check.returncode == 0
