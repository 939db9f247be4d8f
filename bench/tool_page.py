"""`python -m bench.tool_page`: runs the scripts that come with joblens' tools, and writes what it measured of
each to docs/measured-tools.md. In containers too, where Docker can be had.

Every run is a job like any other, in a folder of its own; the machine's own programs are mounted into an
otherwise empty image, so that inside and outside differ in nothing but the container."""

import argparse
import contextlib
import os
import platform
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from msgspec import Struct, to_builtins
from msgspec.structs import replace

import joblens
from joblens.app.jobs.api import Result, SequentialRunner
from joblens.app.jobs.preparation import prepare
from joblens.app.queue.tools import find_tool, missing_for, placed, request_of, tool_request
from joblens.app.wiring.drivers import open_store
from joblens.app.wiring.machine import disturbances, system_info
from joblens.app.wiring.settings import load_settings
from joblens.model.jobs.job import ContainerJob, Requirements
from joblens.model.settings import Settings
from tests.integration.engines import shared_engine
from tests.integration.tool_images import host_container

PAGE = Path(__file__).parent.parent / "docs" / "measured-tools.md"
RUNS = 5


class Case(Struct, frozen=True):
    tool: str
    script: str
    params: dict[str, Any]
    cpus: float | None = None
    in_container: bool = False  # too
    warm_ups: int = 1


CASES = (
    # DOLFINx compiles its forms, and finds the last of them among those it kept only after a few runs.
    Case("fenicsx", "poisson.py", {"mesh_size": 64}, in_container=True, warm_ups=6),
    Case("fenicsx", "poisson.py", {"mesh_size": 256}),
    Case("fenicsx", "poisson.py", {"mesh_size": 64, "degree": 3}, warm_ups=6),
    Case("lammps", "example.lammps", {"cells": 10, "steps": 1000}, in_container=True),
    Case("lammps", "example.lammps", {"cells": 20, "steps": 500}),
    Case("openfoam", "example_cavity.py", {"cells": 32, "end_time": 15}, in_container=True),
    Case("openfoam", "example_cavity.py", {"cells": 48, "end_time": 15}),
    Case("mpi", "pi.py", {"intervals": 200_000_000}, cpus=1),
    Case("mpi", "pi.py", {"intervals": 200_000_000}, cpus=2),
    Case("python", "primes.py", {"limit": 10_000_000}),
)
VERSIONS = {
    "fenicsx": ("DOLFINx", ["-c", "import dolfinx; print(dolfinx.__version__)"]),
    "lammps": ("LAMMPS", ["-h"]),
    "mpi": ("", ["--version"]),
    "python": ("Python", ["-c", "import platform; print(platform.python_version())"]),
}

INTRODUCTION = """\
# What tools use, measured

Made by `scripts/measure-tools`: the scripts that come with the [tools](tools.md), each run {runs} times after
runs that are not counted, each a measured job in a folder of its own. The figures are of one machine on
one day; run the command to regenerate the page for yours.

{machine}

| tool | version |
|---|---|
{versions}

## On the machine

Medians, and for the duration the shortest and the longest. CPU is the time of all the job's processes, memory
what cannot be reclaimed at its highest, both of the whole job. Read and written is what its processes asked
the kernel for, from the page cache or not. [metrics](metrics.md) says what each number is exactly, and where
it is read.

{outside}
"""
CONTAINERS = """
## In a container

The same jobs with the same programs in a Docker container, alternating with those outside. `start` is
from asking the engine for a container until it runs. The helper is the engine's process beside a container;
neither it nor the client of joblens is among what the job used.

{inside}
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tool_page", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--output", type=Path, default=PAGE)
    given = parser.parse_args()
    machine = _machine()  # before it is busy with this
    with tempfile.TemporaryDirectory(prefix="joblens-tools-") as folder, _docker(folder) as inside:
        settings = load_settings(overrides={"store.url": f"{folder}/store.db"}).settings
        with SequentialRunner(settings) as jobs:
            cases = [case for case in CASES if _is_there(case)]
            measured = [_measure(case, jobs, settings, given.runs, inside) for case in cases]
        given.output.write_text(_page(measured, given.runs, machine), encoding="utf-8")
    print(given.output)


class Measured(Struct, frozen=True):
    case: Case
    outside: list[Result]
    inside: list[Result]
    overheads: list[dict[str, Any]]  # of those inside


@contextlib.contextmanager
def _docker(folder: str) -> Iterator[ContainerJob | None]:
    shared = Path(folder) / "engines"
    shared.mkdir()
    try:
        with shared_engine("docker", shared) as engine:
            container = host_container(engine)
            # FEniCSx compiles what it solves once: a container by itself would do it anew every time.
            kept = Path(folder) / "compiled"
            kept.mkdir()
            yield replace(container, volumes=(*container.volumes, f"{kept}:/root/.cache"))
    except pytest.skip.Exception as reason:
        print(f"containers: left out: {reason}")
        yield None


def _is_there(case: Case) -> bool:
    missing = missing_for(find_tool(case.tool))
    if missing:
        print(f"{case.tool}: left out: {missing}")
    return not missing


def _measure(
    case: Case, jobs: SequentialRunner, settings: Settings, runs: int, inside: ContainerJob | None
) -> Measured:
    def run(container: ContainerJob | None) -> Result:
        planned = tool_request(
            case.tool,
            case.script,
            case.params,
            container=container,
            requirements=Requirements(cpus=case.cpus),
        )
        with tempfile.TemporaryDirectory(prefix="joblens-tool-") as folder:
            result = jobs.run(prepare(request_of(placed(planned, folder)), settings))
        if not result.ok:
            raise SystemExit(
                f"{case.tool} {case.script} {case.params}: {result.status}\n{result.stderr[-2000:]}"
            )
        print(
            f"{case.tool} {case.params} {'inside' if container else ''} {result.duration_s:.2f} s", flush=True
        )
        return result

    places = [None, inside] if inside is not None and case.in_container else [None]
    found: dict[bool, list[Result]] = {False: [], True: []}
    for number in range(-case.warm_ups, runs):
        for place in places:
            result = run(place)
            if number >= 0:
                found[place is not None].append(result)
    return Measured(case, found[False], found[True], _overheads(found[True], settings))


def _overheads(results: Sequence[Result], settings: Settings) -> list[dict[str, Any]]:
    store = open_store(settings)
    try:
        details = [store.details(result.uuid) for result in results]
    finally:
        store.close()
    return [_container_details(each) for each in details]


def _container_details(details: Any) -> dict[str, Any]:
    container = to_builtins(details).get("container") or {}
    return {**container.get("overhead", {}), "startup_s": container.get("startup_s")}


# ---- the page ---------------------------------------------------------------------------------------------


def _page(measured: Sequence[Measured], runs: int, machine: str) -> str:
    tools = dict.fromkeys(each.case.tool for each in measured)
    page = INTRODUCTION.format(
        runs=runs,
        machine=machine,
        versions="\n".join(f"| {name} | {_version(name)} |" for name in tools),
        outside=_table(OUTSIDE, [_outside_row(each) for each in measured]),
    )
    inside = [each for each in measured if each.inside]
    if inside:
        page += CONTAINERS.format(inside=_table(INSIDE, [_inside_row(each) for each in inside]))
    return page


OUTSIDE = ("job", "duration", "CPU", "user", "system", "memory", "read", "written", "processes")
INSIDE = (
    "job",
    "outside",
    "inside",
    "start",
    "CPU outside",
    "CPU inside",
    "memory outside",
    "memory inside",
    "helper: CPU",
    "helper: memory",
)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    align = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, align, *rows))


def _outside_row(measured: Measured) -> list[str]:
    results = measured.outside
    return [
        _job(measured.case),
        _spread(results),
        _seconds(results, "cpu_total_usec"),
        _seconds(results, "cpu_user_usec"),
        _seconds(results, "cpu_system_usec"),
        _mib(results, "memory_peak_bytes"),
        _mib(results, "io_call_read_bytes"),
        _mib(results, "io_call_write_bytes"),
        _number(results, "processes_peak", lambda value: f"{value:.0f}"),
    ]


def _inside_row(measured: Measured) -> list[str]:
    outside, inside = measured.outside, measured.inside
    return [
        _job(measured.case),
        _spread(outside),
        _spread(inside),
        _overhead(measured, "startup_s", lambda value: f"{value:.2f} s"),
        _seconds(outside, "cpu_total_usec"),
        _seconds(inside, "cpu_total_usec"),
        _mib(outside, "memory_peak_bytes"),
        _mib(inside, "memory_peak_bytes"),
        _overhead(measured, "helper_cpu_s", lambda value: f"{value:.2f} s"),
        _overhead(measured, "helper_memory_bytes", lambda value: f"{value / 2**20:.1f} MiB"),
    ]


def _job(case: Case) -> str:
    params = ", ".join(f"{name} {value}" for name, value in case.params.items())
    ranks = f", {case.cpus:g} ranks" if case.tool == "mpi" and case.cpus else ""
    return f"{case.tool} `{case.script}` {params}{ranks}"


def _spread(results: Sequence[Result]) -> str:
    durations = sorted(result.duration_s for result in results)
    return f"{median(durations):.2f} s ({durations[0]:.2f} to {durations[-1]:.2f})"


def _number(results: Sequence[Result], name: str, form: Callable[[float], str]) -> str:
    values = [getattr(result.usage, name) for result in results]
    known = [value for value in values if value is not None]
    if not known:
        return "not known"
    bound = "≥ " if any(name in result.usage.lower_bounds for result in results) else ""
    return bound + form(median(known))


def _seconds(results: Sequence[Result], name: str) -> str:
    return _number(results, name, lambda value: f"{value / 1e6:.2f} s")


def _mib(results: Sequence[Result], name: str) -> str:
    return _number(results, name, lambda value: f"{value / 2**20:.1f} MiB")


def _overhead(measured: Measured, name: str, form: Callable[[float], str]) -> str:
    known = [each[name] for each in measured.overheads if each.get(name) is not None]
    return form(median(known)) if known else "not known"


def _machine() -> str:
    system = system_info()
    memory_gib = (system["memory_total_mb"] or 0) / 1024
    cpus = f"{system['cpu_model']}, {system['usable_cpus']:g} CPUs"
    disturbed = [
        f"{each[0].upper()}{each[1:]}: durations are longer for it." for each in disturbances(system)
    ]
    machine = f"{cpus}, {memory_gib:.0f} GiB, Linux {platform.release()}, joblens {joblens.__version__}."
    return "\n".join([machine, *disturbed])


def _version(name: str) -> str:
    if name == "openfoam":
        told = _told(["blockMesh", "-help"], tool_request(name, find_tool(name).benchmark).env)
        found = re.search(r"OpenFOAM-\S* \((\w+)\)", told)
        return f"OpenFOAM {found[1]}" if found else "OpenFOAM"
    label, arguments = VERSIONS[name]
    script = find_tool(name).benchmark
    program = tool_request(name, script).argv[0]
    lines = [line for line in _told([program, *arguments]).splitlines() if line.strip()]
    text = lines[0] if lines else "not known"
    if name == "lammps":
        text = text.partition(" - ")[2] or text
    return f"{label} {text}".strip()


def _told(command: list[str], env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print(f"{shlex.join(command)}: {done.stderr[-200:]}")
    return done.stdout


if __name__ == "__main__":
    main()
