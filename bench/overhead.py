"""What joblens itself costs, beside peers that measure less."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.commands import JOBLENS, Workbench, cpu_s, median_wall_s, wall_s
from bench.goals import Figure

IDLE_S = 20
PEERS = ("benchexec", "psrecord")


def figures(bench: Workbench, peers: Path) -> Iterator[Figure]:
    ours = _own_cpu(bench, [*JOBLENS, "run", "--"], 1, repeats=3)
    for name, prefix in _peer_commands(bench, peers):
        theirs = _own_cpu(bench, prefix, 1, repeats=3, as_one_word=name == "psrecord")
        yield Figure(
            f"own CPU over {IDLE_S} s, 1 process, against {name}'s",
            ours / theirs,
            "x",
            1.0,
            note=f"{ours:.3f} s against {theirs:.3f} s",
        )
    many = _own_cpu(bench, [*JOBLENS, "run", "--"], 200, repeats=3)
    yield Figure(
        "own CPU with 200 processes, against 1 process",
        many / ours,
        "x",
        1.2,
        note=f"{many:.3f} s against {ours:.3f} s",
    )
    yield _slow_down(bench)
    yield _version(bench)


def _own_cpu(
    bench: Workbench, prefix: list[str], processes: int, repeats: int, *, as_one_word: bool = False
) -> float:
    """CPU of the tool: everything it ran, less what the job says it used itself."""
    job = bench.workload("idle", processes, IDLE_S)
    command = [*prefix, " ".join(job)] if as_one_word else [*prefix, *job]
    if as_one_word:
        command += ["--interval", "1", "--include-children", "--log", bench.path("psrecord.txt")]
    return median(cpu_s(command, bench.env) - bench.truth() for _ in range(repeats))


def _peer_commands(bench: Workbench, peers: Path) -> Iterator[tuple[str, list[str]]]:
    """Peers live in a virtual environment of their own, made once beside the project's."""
    python = peers / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(peers)], check=True)
        subprocess.run([str(python), "-m", "pip", "-q", "install", *PEERS], check=True)
    runexec = shutil.which("runexec", path=str(peers / "bin"))
    if runexec:
        yield "runexec", [runexec, "--no-container", "--output", bench.path("runexec.log"), "--"]
    psrecord = shutil.which("psrecord", path=str(peers / "bin"))
    if psrecord:
        yield "psrecord", [psrecord]


def _slow_down(bench: Workbench) -> Figure:
    """A CPU-bound job with and without joblens, turn and turn about; start and end of joblens included."""
    job = [sys.executable, str(Path(__file__).parent / "workloads" / "spin.py"), "24"]
    alone, measured = [], []
    for _ in range(5):
        alone.append(wall_s(job, bench.env))
        measured.append(wall_s([*JOBLENS, "run", "--", *job], bench.env))
    ratio = median(measured) / median(alone)
    note = (
        f"{median(measured):.2f} s against {median(alone):.2f} s; "
        f"fastest {min(measured):.2f} and {min(alone):.2f}"
    )
    return Figure("wall time of a CPU-bound job, with against without", ratio, "x", 1.005, note=note)


def _version(bench: Workbench) -> Figure:
    ours, bare = [], []
    for _ in range(5):
        ours.append(median_wall_s([*JOBLENS, "--version"], bench.env, 5))
        bare.append(median_wall_s([sys.executable, "-c", "pass"], bench.env, 5))
    note = f"{median(ours) * 1000:.1f} ms against {median(bare) * 1000:.1f} ms"
    return Figure(
        "joblens --version against python -c pass", median(ours) / median(bare), "x", 2.5, note=note
    )
