"""Jobs in containers: is their CPU time right, is it that of the same job outside, what does the engine cost?

Uses the Docker engine and the Podman service that the tests start; skips an unavailable one.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from msgspec import Struct

from bench.commands import JOBLENS, Workbench, median_wall_s
from bench.goals import Figure
from tests.integration.engines import IMAGE, Engine, shared_engine

REPEATS = 12
# A shell that counts for about a second and then prints the kernel's figure of its use, in nanoseconds.
WORK = "i=0; while [ $i -lt 900000 ]; do i=$((i+1)); done; cat /proc/$$/schedstat"


class Run(Struct, frozen=True):
    reported_s: float  # by the kernel, to the job itself
    measured_s: float
    facts: dict[str, float]


def figures(bench: Workbench) -> Iterator[Figure]:
    for name in ("docker", "podman"):
        shared = Path(bench.path("engines"))
        shared.mkdir(exist_ok=True)
        try:
            with shared_engine(name, shared) as engine:
                yield from _figures_of(bench, engine)
        except pytest.skip.Exception as reason:
            print(f"containers: left out: {reason}")


def _figures_of(bench: Workbench, engine: Engine) -> Iterator[Figure]:
    name = engine.name
    outside, inside = [], []
    for _ in range(REPEATS):  # alternating, so that a busy moment affects both
        outside.append(_run(bench, ["/bin/busybox", "sh", "-c", WORK]))
        inside.append(_run(bench, ["sh", "-c", WORK], *engine.options))
    off = median(abs(run.measured_s / run.reported_s - 1) for run in inside) * 100
    note = f"{inside[0].measured_s:.3f} s against {inside[0].reported_s:.3f} s told by the job"
    yield Figure(f"{name}: CPU time of a job, off what it says itself", off, "%", 2.0, note=note)
    # The minimum of each: other load only ever adds (shared caches, hyper-threads).
    ratio = min(run.measured_s for run in inside) / min(run.measured_s for run in outside)
    spread = [run.measured_s for run in outside]
    note = f"the runs outside lie between {min(spread):.3f} and {max(spread):.3f} s"
    apart = abs(ratio - 1) * 100
    yield Figure(f"{name}: CPU time of a job against the same outside, apart", apart, "%", 2.0, note=note)
    yield from _overhead(name, inside)
    ours = [*JOBLENS, "run", *engine.options, "--", "true"]
    theirs = _engine_run(engine)
    if theirs:
        joblens_s, engine_s = (
            median_wall_s(ours, bench.env, REPEATS),
            median_wall_s(theirs, bench.env, REPEATS),
        )
        note = f"{joblens_s:.2f} s against {engine_s:.2f} s of {name} run"
        yield Figure(
            f"{name}: a whole `true` against the engine's own run", joblens_s / engine_s, "x", 3.0, note=note
        )


def _overhead(name: str, inside: list[Run]) -> Iterator[Figure]:
    def middle(key: str) -> float:
        return median(run.facts.get(key, 0.0) for run in inside)

    startup_s = middle("startup_s")
    yield Figure(f"{name}: asking for a container until it runs", startup_s, "s", 2.0)
    cpu_s = middle("helper_cpu_s")
    note = f"and {middle('engine_cpu_s'):.2f} s of the engine, {middle('client_cpu_s'):.2f} s of our client"
    yield Figure(f"{name}: CPU of the engine's helper for a container", cpu_s, "s", 0.5, note=note)
    memory = middle("helper_memory_bytes") / 2**20
    note = f"and {middle('client_memory_bytes') / 2**20:.0f} MiB of our client"
    yield Figure(f"{name}: memory of the engine's helper", memory, "MiB", 64, note=note)
    written = middle("helper_io_write_bytes") / 2**20
    note = f"{middle('helper_io_read_bytes') / 2**20:.2f} MiB read"
    yield Figure(f"{name}: written to disk by the helper", written, "MiB", 4, note=note)


def _run(bench: Workbench, job: list[str], *options: str) -> Run:
    report = bench.path("report.json")
    done = subprocess.run(
        [*JOBLENS, "run", "--report", report, *options, "--", *job],
        env=bench.env,
        check=True,
        capture_output=True,
        text=True,
    )
    record = json.loads(Path(report).read_text(encoding="utf-8"))
    facts: dict[str, float] = {}
    if options:
        shown = subprocess.run(
            [*JOBLENS, "--json", "show", record["job_uuid"]],
            env=bench.env,
            check=True,
            capture_output=True,
            text=True,
        )
        container = json.loads(shown.stdout)["details"]["container"]
        facts = {**container["overhead"], "startup_s": container["startup_s"]}
    used = record["resource_usage"]["cpu_total_seconds"]
    return Run(int(done.stdout.split()[0]) / 1e9, used, facts)


def _engine_run(engine: Engine) -> list[str]:
    """The engine's own command line for the same, where it has one that needs nothing else."""
    if engine.name != "docker":
        return []
    return ["docker", "-H", f"unix://{engine.socket}", "run", "--rm", "--network", "none", IMAGE, "true"]
