"""Jobs placed by Ray, compared with bare Ray tasks in the same cluster."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Self

from bench.commands import JOBLENS, WORKLOADS, Workbench
from bench.goals import Figure
from joblens.model.jobs.job import Status
from joblens.stores.sqlite import SqliteStore

JOBS = 1000
WARM_UP = 40
REPEATS = 5
CPUS = 2
_FLOW = f"""
name: many
jobs:
  - {{name: "warm_{{i}}", command: "true", parameters: {{i: "1:{WARM_UP}"}}}}
  - {{name: "job_{{i}}", command: "true", parameters: {{i: "1:{JOBS}"}}, depends_on_regexes: ["^warm_"]}}
"""


def figures(bench: Workbench) -> Iterator[Figure]:
    """Alternates in one cluster, so that other load affects both."""
    bare, ours, whole, bare_whole = [], [], [], []
    with _Cluster(bench) as cluster:
        for repeat in range(REPEATS):
            rate, seconds = cluster.run_bare()
            bare.append(rate)
            bare_whole.append(seconds)
            rate, seconds = _our_rate(bench, cluster.address, bench.path(f"ray-{repeat}.db"))
            ours.append(rate)
            whole.append(seconds)
    ratios = [mine / theirs for mine, theirs in zip(ours, bare, strict=True)]
    yield Figure(
        f"{JOBS:,} true jobs on Ray, {CPUS} at a time, against bare tasks of Ray",
        median(ratios),
        "x",
        0.8,
        at_least=True,
        note=f"{median(ours):.0f} jobs/s against {median(bare):.0f}; the whole command "
        f"{median(whole):.1f} s, a bare script {median(bare_whole):.1f} s",
    )


class _Cluster:
    """One node on this machine, as `ray start --head` makes it; it runs bare tasks by a script of its own."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._env = {**bench.env, "RAY_USAGE_STATS_ENABLED": "0"}
        self.address = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, str(WORKLOADS / "ray_cluster.py"), str(CPUS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self._env,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run_bare(self) -> tuple[float, float]:
        """Returns (jobs/s once its tasks run, seconds of the whole script)."""
        start = perf_counter()
        done = subprocess.run(
            [sys.executable, str(WORKLOADS / "bare_ray.py"), self.address, str(WARM_UP), str(JOBS)],
            capture_output=True,
            text=True,
            env=self._env,
            check=True,
        )
        return JOBS / float(done.stdout.split()[-1]), perf_counter() - start


def _our_rate(bench: Workbench, address: str, store_path: str) -> tuple[float, float]:
    """From the end of the last job before them until the run has read the last outcome from its store, each
    measured and with a durable record. The node's worker is there then, as Ray's own are for bare tasks."""
    flow = Path(bench.path("many.yaml"))
    flow.write_text(_FLOW)
    start = perf_counter()
    subprocess.run(
        [*JOBLENS, "run", str(flow), "--engine", "ray", "--address", address, "--store", store_path],
        cwd=bench.folder,
        env=bench.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    whole = perf_counter() - start
    store = SqliteStore(store_path)
    try:
        run = store.find_run(store.runs(store.workflows()[0].uuid)[-1].uuid)
        results = store.run_results(run.uuid)
    finally:
        store.close()
    assert len(results) == WARM_UP + JOBS
    assert {one.status for one in results} == {Status.SUCCESS}
    assert run.ended_at_us is not None
    ends_us = sorted(one.began_at_us + (one.duration_s or 0.0) * 1e6 for one in results)
    return JOBS / ((run.ended_at_us - ends_us[WARM_UP - 1]) / 1e6), whole
