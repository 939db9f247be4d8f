"""Whole workflows:

throughput of small jobs, packing of large ones, latency to a dependant, and the cost of 100,000 jobs before
the first has run.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench.commands import JOBLENS, Workbench
from bench.goals import Figure
from bench.launching import AT_ONCE, floor_rate
from joblens.model.runs.run import JobResult, Run
from joblens.stores.sqlite.store import SqliteStore

JOBS = 2000
MIXED_JOBS = 200
MIXED_CPUS, MIXED_MEMORY_G = 8, 16
CHAIN = 60
MANY = 100_000


def figures(bench: Workbench) -> Iterator[Figure]:
    yield _launching(bench)
    yield _makespan(bench)
    yield from _gaps(bench)
    yield from _many(bench)


class _Ended:
    """An ended run, from its store."""

    def __init__(self, bench: Workbench, name: str, spec: dict[str, Any], *options: str) -> None:
        file, store_path = bench.path(f"{name}.json"), bench.path(f"{name}.db")
        Path(file).write_text(json.dumps(spec), encoding="utf-8")
        where = ["--store", store_path, "-o", bench.path(f"{name}-output")]
        command = [*JOBLENS, "run", file, *where, *options]
        subprocess.run(
            command, env=bench.env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        store = SqliteStore(store_path, read_only=True)
        self.run: Run = store.find_run(spec["name"])
        self.results: list[JobResult] = [one for one in store.run_results(self.run.uuid) if one.index >= 0]
        store.close()

    @property
    def wall_s(self) -> float:
        assert self.run.started_at_us is not None
        assert self.run.ended_at_us is not None
        return (self.run.ended_at_us - self.run.started_at_us) / 1e6


def _launching(bench: Workbench) -> Figure:
    spec = {"name": "tiny", "jobs": [{"name": "j{i}", "command": "true", "parameters": {"i": f"1:{JOBS}"}}]}
    ratios, rates = [], []
    for repeat in range(5):
        before = floor_rate()
        ended = _Ended(bench, f"tiny-{repeat}", spec, "--jobs", str(AT_ONCE))
        assert len(ended.results) == JOBS
        rates.append(JOBS / ended.wall_s)
        ratios.append(rates[-1] / ((before + floor_rate()) / 2))
    what = f"{JOBS:,} true jobs of a spec, {AT_ONCE} at a time, against posix_spawn + wait4"
    return Figure(what, median(ratios), "x", 0.6, at_least=True, note=f"{median(rates):.0f} jobs/s")


def _makespan(bench: Workbench) -> Figure:
    ratios = []
    for seed in range(3):
        jobs, bound_s = mixed_workflow(random.Random(seed))
        offered = ["--cpus", str(MIXED_CPUS), "--memory", f"{MIXED_MEMORY_G}g"]
        ended = _Ended(bench, f"mixed-{seed}", {"name": "mixed", "jobs": jobs}, *offered)
        ratios.append(ended.wall_s / bound_s)
    what = f"makespan of {MIXED_JOBS} jobs of mixed sizes against the lower bound"
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    return Figure(what, median(ratios), "x", 1.15, note=spread)


def mixed_workflow(dice: random.Random) -> tuple[list[dict[str, Any]], float]:
    """Returns jobs that sleep for their declared time, a third of them after others, and the least makespan.

    That is all work at full use of the machine, or the longest chain.
    """
    jobs: list[dict[str, Any]] = []
    longest: list[float] = []
    work = {"cpus": 0.0, "memory": 0.0}
    for place in range(MIXED_JOBS):
        seconds = round(dice.uniform(0.2, 1.5), 2)
        cpus, memory = dice.choice([1, 1, 1, 2, 2, 4, 6]), dice.choice([1, 1, 2, 2, 4, 8])
        before = dice.sample(range(place), k=dice.randint(1, 2)) if place > 10 and dice.random() < 0.3 else []
        longest.append(seconds + max((longest[other] for other in before), default=0.0))
        work["cpus"] += seconds * cpus
        work["memory"] += seconds * memory
        needs = {"num_cpus": cpus, "memory": f"{memory}g", "runtime": f"PT{seconds + 20}S"}
        jobs.append(
            {
                "name": f"j{place}",
                "command": f"sleep {seconds}",
                "resource_requirements": needs,
                "depends_on": [f"j{other}" for other in before],
            }
        )
    return jobs, max(work["cpus"] / MIXED_CPUS, work["memory"] / MIXED_MEMORY_G, *longest)


def _gaps(bench: Workbench) -> Iterator[Figure]:
    kinds: dict[str, dict[str, Any]] = {
        "without limits": {},
        "with limits": {"resource_requirements": {"num_cpus": 1, "memory": "100m", "runtime": "PT1M"}},
    }
    for kind, needs in kinds.items():
        chain = [
            {
                "name": f"j{place}",
                "command": "sleep 0.05",
                "depends_on": [f"j{place - 1}"] if place else [],
                **needs,
            }
            for place in range(CHAIN)
        ]
        ended = _Ended(bench, f"chain-{len(needs)}", {"name": "chain", "jobs": chain})
        gaps_ms = [
            (later.began_at_us - earlier.began_at_us) / 1e3 - (earlier.duration_s or 0.0) * 1e3
            for earlier, later in zip(ended.results, ended.results[1:], strict=False)
        ]
        note = f"90 % within {sorted(gaps_ms)[len(gaps_ms) * 9 // 10]:.1f} ms"
        yield Figure(
            f"end of a job to the start of its dependant, {kind}", median(gaps_ms), "ms", 10, note=note
        )


_PARSE = """
import sys, time, yaml
text = open(sys.argv[1]).read()
start = time.perf_counter()
yaml.load(text, yaml.CSafeLoader)
print(time.perf_counter() - start)
"""
_LOAD = """
import sys, time
from joblens.app.workflows.loader import load_spec
from joblens.engine.schedule.capacity import RunCapacity
from joblens.engine.schedule.schedule import Schedule
start = time.perf_counter()
loaded = load_spec(sys.argv[1])
schedule = Schedule(loaded.plan, RunCapacity(cpus=2, memory_bytes=1 << 34))
schedule.begin(0.0)
print(time.perf_counter() - start)
"""
_SIZE = """
import ctypes, gc, os, sys
from joblens.app.workflows.loader import load_spec
from joblens.engine.schedule.capacity import RunCapacity
from joblens.engine.schedule.schedule import Schedule

def resident() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

small = load_spec(sys.argv[2])  # everything is imported
before = resident()
plan = load_spec(sys.argv[1]).plan
schedule = Schedule(plan, RunCapacity(cpus=2, memory_bytes=1 << 34))
schedule.begin(0.0)
text = sum(len(job.name) + len(job.command) for job in plan.jobs)
print((resident() - before - text) / len(plan.jobs))
"""


def _many(bench: Workbench) -> Iterator[Figure]:
    large, small = bench.path("many.yaml"), bench.path("few.yaml")
    for path, count in ((large, MANY), (small, 10)):
        Path(path).write_text(_written_out(count), encoding="utf-8")
    parsing = median(_answer(bench, _PARSE, large) for _ in range(3))
    loading = median(_answer(bench, _LOAD, large) for _ in range(3))
    what = f"load, expand and plan {MANY:,} written jobs against parsing alone"
    yield Figure(what, loading / parsing, "x", 10, note=f"{loading:.1f} s; parsing {parsing:.1f} s")
    sweep = bench.path("sweep.yaml")
    Path(sweep).write_text(
        f"name: sweep\njobs:\n  - name: j{{i}}\n    command: echo {{i}}\n    parameters: {{i: '1:{MANY}'}}\n",
        encoding="utf-8",
    )
    seconds = median(_answer(bench, _LOAD, sweep) for _ in range(3))
    yield Figure(f"load, expand and plan a sweep of {MANY:,} jobs", seconds, "s", 10)
    for kind, path in (("written", large), ("of a sweep", sweep)):
        size = median(_answer(bench, _SIZE, path, small) for _ in range(3))
        yield Figure(f"memory of a waiting job, {kind}, of {MANY:,}, beyond its text", size, "bytes", 1024)
    yield _driving(bench)


def _driving(bench: Workbench) -> Figure:
    """Returns the memory of `joblens run` while jobs wait, minus that of a run of few jobs.

    The text is that of the file, and that of names and commands.
    """
    sizes = []
    for count in (MANY, 10):
        began, file = Path(bench.path(f"began-{count}")), bench.path(f"waiting-{count}.yaml")
        text = _written_out(count).replace("python work.py", "touch $BEGAN; sleep 600;")
        Path(file).write_text(text, encoding="utf-8")
        where = ["--store", bench.path(f"waiting-{count}.db"), "-o", bench.path(f"waiting-{count}-output")]
        driver = subprocess.Popen(
            [*JOBLENS, "run", file, "--jobs", "1", *where],
            env={**bench.env, "BEGAN": str(began)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not began.exists() and driver.poll() is None:
            time.sleep(0.1)
        status = Path(f"/proc/{driver.pid}/status").read_text(encoding="utf-8")
        driver.terminate()
        driver.wait()
        own = sum(len(f"job_{n}touch $BEGAN; sleep 600; --part {n}") for n in range(count))
        sizes.append(1024 * int(status.partition("VmRSS:")[2].split()[0]) - len(text) - own)
    what = f"memory of the driver for each of {MANY:,} waiting jobs, beyond their text"
    return Figure(what, (sizes[0] - sizes[1]) / MANY, "bytes", 1024)


def _written_out(count: int) -> str:
    small = "{name: small, num_cpus: 1, memory: 1g, runtime: PT10M}"
    head = f"name: many\nresource_requirements:\n  - {small}\njobs:\n"
    jobs = (
        f"  - name: job_{place}\n    command: python work.py --part {place}\n"
        f"    resource_requirements: small\n"
        + (f"    depends_on: [job_{place - 100}]\n" if place >= 100 else "")
        for place in range(count)
    )
    return head + "".join(jobs)


def _answer(bench: Workbench, code: str, *arguments: str) -> float:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=bench.env, check=True, capture_output=True, text=True)
    return float(done.stdout)
