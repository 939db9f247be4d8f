"""Manages N sleeping jobs in one process, each with limits and groups of its own: N SECONDS."""

import signal
import sys

import joblens


def end(_number: int, _frame: object) -> None:
    """Leaves the loop below, which ends its jobs on the way out."""
    raise SystemExit(0)


signal.signal(signal.SIGTERM, end)
count, seconds = int(sys.argv[1]), float(sys.argv[2])
for _ in joblens.map_commands([["sleep", str(seconds)]] * count, jobs=count, timeout=10 * seconds + 600):
    pass
