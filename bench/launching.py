"""How fast jobs can be started, each with exact numbers and a record of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median

from bench.commands import Workbench
from bench.goals import Figure

JOBS = 2000
AT_ONCE = 2

_OURS = f"""
import sys, time, joblens
start = time.perf_counter()
results = list(joblens.map_commands([["/bin/true"]] * {JOBS}, jobs={AT_ONCE}, store=sys.argv[1]))
print(time.perf_counter() - start)
assert len(results) == {JOBS} and all(one.ok and one.usage.cpu_total_usec for one in results)
"""


def figures(bench: Workbench) -> Iterator[Figure]:
    ratios, rates = [], []
    for repeat in range(5):
        before = floor_rate()
        ours = JOBS / _seconds(bench, repeat)
        rates.append(ours)
        ratios.append(ours / ((before + floor_rate()) / 2))
    note = f"{median(rates):.0f} jobs/s"
    yield Figure(
        f"{JOBS:,} true jobs, {AT_ONCE} at a time, against posix_spawn + wait4",
        median(ratios),
        "x",
        0.8,
        at_least=True,
        note=note,
    )


def floor_rate() -> float:
    """Measures a plain posix_spawn + wait4 loop in one process: no measurements, no record."""
    running, left = 0, JOBS
    start = time.perf_counter()
    while left or running:
        while running < AT_ONCE and left:
            os.posix_spawn("/bin/true", ["true"], {})
            running += 1
            left -= 1
        os.wait4(-1, 0)
        running -= 1
    return JOBS / (time.perf_counter() - start)


def _seconds(bench: Workbench, repeat: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _OURS, bench.path(f"launch-{repeat}.db")],
        env=bench.env,
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout)
