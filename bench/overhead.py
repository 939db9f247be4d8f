"""Cost of joblens itself, compared with peers that measure less."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.commands import Workbench, cpu_s, median_wall_s, wall_s
from bench.goals import Figure

IDLE_S = 20
REPEATS = 3
PROJECT = str(Path(__file__).parent.parent)


def figures(bench: Workbench, peers: Path) -> Iterator[Figure]:
    joblens = [_installed(peers, PROJECT, "joblens")]
    measured = [*joblens, "run", "--"]
    tools = {"joblens": measured, **dict(_peer_commands(bench, peers))}
    used = _own_cpu_in_turns(bench, tools)
    ours = used.pop("joblens")
    for name, theirs in used.items():
        yield Figure(
            f"own CPU over {IDLE_S} s, 1 process, against {name}'s",
            ours / theirs,
            "x",
            1.0,
            note=f"{ours:.3f} s against {theirs:.3f} s",
        )
    many = median(_own_cpu(bench, measured, 200) for _ in range(REPEATS))
    yield Figure(
        "own CPU with 200 processes, against 1 process",
        many / ours,
        "x",
        1.2,
        note=f"{many:.3f} s against {ours:.3f} s",
    )
    yield _slow_down(bench, joblens)
    yield _version(bench, joblens)
    yield _short_job(bench, joblens)
    yield _modules(bench, peers)


def _own_cpu_in_turns(bench: Workbench, tools: dict[str, list[str]]) -> dict[str, float]:
    """Returns the median of each tool; alternates, so that other load affects all of them."""
    used: dict[str, list[float]] = {name: [] for name in tools}
    for _ in range(REPEATS):
        for name, prefix in tools.items():
            used[name].append(_own_cpu(bench, prefix, 1, as_one_word=name == "psrecord"))
    return {name: median(each) for name, each in used.items()}


def _own_cpu(bench: Workbench, prefix: list[str], processes: int, *, as_one_word: bool = False) -> float:
    """Returns CPU of the tool: everything it ran, minus the job's own figure."""
    job = bench.workload("idle", processes, IDLE_S)
    command = [*prefix, " ".join(job)] if as_one_word else [*prefix, *job]
    if as_one_word:
        command += ["--interval", "1", "--include-children", "--log", bench.path("psrecord.txt")]
    return cpu_s(command, bench.env) - bench.truth()


def _peer_commands(bench: Workbench, peers: Path) -> Iterator[tuple[str, list[str]]]:
    runexec = _installed(peers, "benchexec", "runexec")
    yield "runexec", [runexec, "--no-container", "--output", bench.path("runexec.log"), "--"]
    yield "psrecord", [_installed(peers, "psrecord", "psrecord")]


def _installed(peers: Path, package: str, command: str) -> str:
    """Installs each in a virtual environment of its own, as a user would.

    Other installed packages change the start-up cost. Created once; joblens is installed again every time.
    """
    home = peers / command
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    if package == PROJECT or not (home / "bin" / command).exists():
        install = [str(python), "-m", "pip", "-q", "install", "--upgrade", "--force-reinstall", package]
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        subprocess.run(install, check=True, env=env, stderr=subprocess.DEVNULL)
    return str(home / "bin" / command)


def _slow_down(bench: Workbench, joblens: list[str]) -> Figure:
    """A CPU-bound job with and without joblens, alternating; start and end of joblens included."""
    job = [sys.executable, str(Path(__file__).parent / "workloads" / "spin.py"), "24"]
    alone, measured = [], []
    for _ in range(5):
        alone.append(wall_s(job, bench.env))
        measured.append(wall_s([*joblens, "run", "--", *job], bench.env))
    ratio = median(measured) / median(alone)
    note = (
        f"{median(measured):.2f} s against {median(alone):.2f} s; "
        f"fastest {min(measured):.2f} and {min(alone):.2f}"
    )
    return Figure("wall time of a CPU-bound job, with against without", ratio, "x", 1.005, note=note)


def _version(bench: Workbench, joblens: list[str]) -> Figure:
    ours, bare = [], []
    for _ in range(5):
        ours.append(median_wall_s([*joblens, "--version"], bench.env, 5))
        bare.append(median_wall_s([sys.executable, "-c", "pass"], bench.env, 5))
    note = f"{median(ours) * 1000:.1f} ms against {median(bare) * 1000:.1f} ms"
    return Figure(
        "joblens --version against python -c pass", median(ours) / median(bare), "x", 2.5, note=note
    )


def _short_job(bench: Workbench, joblens: list[str]) -> Figure:
    ours, bare = [], []
    for _ in range(5):
        ours.append(median_wall_s([*joblens, "run", "--", "true"], bench.env, 5))
        bare.append(median_wall_s([sys.executable, "-c", "pass"], bench.env, 5))
    note = f"{median(ours) * 1000:.1f} ms against {median(bare) * 1000:.1f} ms"
    return Figure(
        "joblens run -- true against python -c pass", median(ours) / median(bare), "x", 5.0, note=note
    )


def _modules(bench: Workbench, peers: Path) -> Figure:
    """The store exists: the figures before this one have run jobs."""
    command = [
        str(peers / "joblens" / "bin" / "python"),
        "-X",
        "importtime",
        "-m",
        "joblens",
        "run",
        "--",
        "true",
    ]
    done = subprocess.run(command, env=bench.env, check=True, capture_output=True, text=True)
    count = sum("joblens" in line for line in done.stderr.splitlines())
    return Figure("joblens modules imported by run -- true", count, "", 120)
