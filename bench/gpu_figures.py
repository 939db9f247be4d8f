"""Figures of bench/gpu.py with their goals; none on a machine without an NVIDIA GPU and PyTorch."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.commands import Workbench
from bench.goals import Figure

PROJECT = Path(__file__).parent.parent


def figures(bench: Workbench) -> Iterator[Figure]:
    if shutil.which("nvidia-smi") is None or importlib.util.find_spec("torch") is None:
        print("gpu: left out, this machine has no NVIDIA GPU with PyTorch")
        return
    out = bench.path("gpu")
    command = [sys.executable, "-m", "bench.gpu"]
    subprocess.run(
        command, check=True, cwd=PROJECT, env={**os.environ, "OUT": out}, stdout=subprocess.DEVNULL
    )
    results = json.loads((Path(out) / "results.json").read_text())
    yield from figures_of(results)


def figures_of(results: dict[str, Any]) -> Iterator[Figure]:
    joint = results["two_jobs"]
    for job in ("heavy", "light"):
        for number in ("memory", "utilization"):
            both = joint["compared"][job][number]
            yield Figure(
                f"GPU {number} of the {job} job, off nvidia-smi's",
                _off_percent(both),
                "%",
                2.0,
                note=f"{both['joblens']:.4g} against {both['nvidia_smi']:.4g}",
            )
    yield Figure(
        "own CPU at 1 s sampling with a GPU",
        max(joint["joblens_cpu_percent_of_core"].values()),
        "% of a core",
        1.0,
    )


if __name__ == "__main__":
    for figure in figures_of(json.loads(Path(sys.argv[1]).read_text())):
        print(figure)


def _off_percent(both: dict[str, Any]) -> float:
    """Without a figure of nvidia-smi to divide by, only the same figure is right."""
    off = both.get("off_percent")
    if off is not None:
        return abs(float(off))
    return 0.0 if both["joblens"] == both["nvidia_smi"] else float("inf")
