"""Memory of a command and its descendants, sampled often from outside."""

import os
import subprocess
import time
from pathlib import Path

_EVERY_S = 0.02


def peak_bytes(command: list[str], env: dict[str, str]) -> int:
    """Returns the largest sum of anonymous memory, with proportional shares of shared pages.

    Files do not count: the kernel reclaims their pages when needed.
    """
    peak = 0
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, sum(map(_anonymous_bytes, _tree(process.pid))))
            time.sleep(_EVERY_S)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return peak


def _tree(pid: int) -> list[int]:
    found = [pid]
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii").split():
                found += _tree(int(child))
    except OSError:  # it has ended meanwhile
        pass
    return found


def _anonymous_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    _, found, rest = text.partition("Pss_Anon:")
    return int(rest.split(None, 1)[0]) * 1024 if found else 0
