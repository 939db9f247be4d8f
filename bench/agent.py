"""Cost of the process that manages jobs while they run, with all measurements."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.commands import JOBLENS, WORKLOADS, Workbench
from bench.goals import Figure

PROBES = "all,-gpu"
WATCHED_S = 30
REST_S = 5.0
MANY = 100
BLOCKS_S = 10


def figures(bench: Workbench) -> Iterator[Figure]:
    alone = [_watch(bench, _one(bench), REST_S) for _ in range(3)]
    cpu = median(one.cpu_percent for one in alone)
    memory = max(one.memory_mb for one in alone)
    everything = "all probes but the GPU's, sampled every second"
    yield Figure("own CPU, 1 job", cpu, "% of a core", 0.2, note=everything)
    yield Figure("resident memory, 1 job", memory, "MB", 40.0)
    few, many = _owner(bench, 10), _owner(bench, MANY)
    yield Figure(f"own CPU, {MANY} jobs", many.cpu_percent, "% of a core", 5.0, note=everything)
    growth = many.cpu_percent / MANY / (few.cpu_percent / 10)
    yield Figure(
        f"own CPU a job, {MANY} jobs against 10", growth, "x", 1.0, note=f"10 jobs: {few.cpu_percent:.2f} %"
    )
    each_kb = (many.memory_mb - few.memory_mb) / (MANY - 10) * 1024
    yield Figure(
        "resident memory of each more job",
        each_kb,
        "KB",
        100.0,
        note=f"{few.memory_mb:.1f} MB with 10, {many.memory_mb:.1f} MB with {MANY}; launchers apart",
    )
    yield _blocked(bench)


class _Watched:
    def __init__(self, cpu_percent: float, memory_mb: float) -> None:
        self.cpu_percent = cpu_percent
        self.memory_mb = memory_mb


def _one(bench: Workbench) -> list[str]:
    seconds = str(REST_S + WATCHED_S + 10)
    return [
        *JOBLENS,
        "--store",
        bench.path("agent.db"),
        "run",
        "-q",
        "--probes",
        PROBES,
        "--",
        "sleep",
        seconds,
    ]


def _owner(bench: Workbench, jobs: int) -> _Watched:
    begins_s = REST_S + jobs * 0.1
    script = str(WORKLOADS / "many_jobs.py")
    command = [sys.executable, script, str(jobs), str(begins_s + WATCHED_S + 10)]
    return _watch(bench, command, begins_s)


def _watch(bench: Workbench, command: list[str], rest_time_s: float) -> _Watched:
    env = {
        **bench.env,
        "JOBLENS_STORE": bench.path("agent.db"),
        "JOBLENS_JOB_METRICS_PROBES": PROBES,
    }
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(rest_time_s)
        began_s, before_s = time.monotonic(), _cpu_s(process.pid)
        time.sleep(WATCHED_S)
        used_s, took_s = _cpu_s(process.pid) - before_s, time.monotonic() - began_s
        return _Watched(100 * used_s / took_s, _resident_mb(process.pid))
    finally:
        process.terminate()
        process.wait()
        # Groups that it could not remove itself, while there is a store that knows the jobs.
        subprocess.run([*JOBLENS, "list"], env=env, check=True, capture_output=True)


def _cpu_s(pid: int) -> float:
    """Returns nanoseconds; the ticks of /proc/PID/stat are too coarse."""
    tasks = [
        Path(f"/proc/{pid}/task/{task}/schedstat").read_text(encoding="ascii")
        for task in os.listdir(f"/proc/{pid}/task")
    ]
    return sum(int(text.split()[0]) for text in tasks) / 1e9


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def _blocked(bench: Workbench) -> Figure:
    late = {blocks: _latest_tick_ms(bench, blocks) for blocks in (0, BLOCKS_S)}
    return Figure(
        f"latest tick while a driver blocks {BLOCKS_S} s",
        late[BLOCKS_S],
        "ms late",
        50.0,
        note=f"{late[0]:.1f} ms without one",
    )


def _latest_tick_ms(bench: Workbench, blocks_s: int) -> float:
    script = str(WORKLOADS / "blocked_probe.py")
    env = {**bench.env, "JOBLENS_STORE": bench.path("blocked.db")}
    command = [sys.executable, script, str(BLOCKS_S + 1), str(blocks_s)]
    answer = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return float(answer.stdout.split()[0])
