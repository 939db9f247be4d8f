"""Compares the peak memory of real programs with a warm and a cold page cache."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import joblens
from bench.commands import WORKLOADS, Workbench
from bench.goals import Figure

MIB = 1 << 20
_WARM_UPS = 4  # FEniCSx compiles its forms, and finds them again only after a few runs
_MAPPED_BYTES = 200 * MIB
_SCRIPTS = Path(joblens.__file__).parent / "spec" / "tools" / "scripts"
_SYSTEM_PYTHON = "/usr/bin/python3"  # packages of the distribution are there


def figures(bench: Workbench) -> Iterator[Figure]:
    for name, command in _programs(bench).items():
        yield _figure(bench, name, command)


def _programs(bench: Workbench) -> dict[str, list[str]]:
    """Programs that are installed here."""
    data = Path(bench.path("mapped"))
    data.write_bytes(os.urandom(MIB) * (_MAPPED_BYTES // MIB))
    found = {"a mapped file of 200 MB": [sys.executable, str(WORKLOADS / "mapped.py"), str(data)]}
    if _can([sys.executable, "-c", "import numpy"]):
        found["import numpy"] = [sys.executable, "-c", "import numpy"]
    lammps = shutil.which("lmp")
    if lammps is not None:
        script = str(_SCRIPTS / "example.lammps")
        found["LAMMPS"] = [lammps, "-in", script, "-log", "none", "-var", "cells", "5", "-var", "steps", "50"]
    if _can([_SYSTEM_PYTHON, "-c", "import dolfinx"]):
        found["FEniCSx"] = [_SYSTEM_PYTHON, str(_SCRIPTS / "poisson.py")]
    return found


def _can(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _figure(bench: Workbench, name: str, command: list[str]) -> Figure:
    """Difference of the peaks; up to 2 % or 1 MiB is allowed."""
    files = {word for word in command if os.path.isfile(word)}
    for _ in range(_WARM_UPS):
        files |= _files_of(command, bench)
    peaks: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(2):
        _drop(files)
        for state, seen in peaks.items():
            seen.append(_peak_mib(bench, command, state))
    cold, warm = (max(seen) for seen in peaks.values())
    off = max(abs(one - other) for one in peaks["cold"] for other in peaks["warm"])
    note = f"{cold:.2f} MiB cold, {warm:.2f} MiB warm, {cold / warm:.3f} times"
    return Figure(
        f"peak with a cold and a warm cache, {name}", off / max(1.0, 0.02 * warm), "", 1.0, note=note
    )


def _peak_mib(bench: Workbench, command: list[str], state: str) -> float:
    usage = bench.record("cgroup", command, "--cwd", bench.folder)["resource_usage"]
    peak, files = usage["memory_peak_mb"], usage["memory_file_peak_bytes"]
    print(f"  {state}: {peak:.2f} MiB, {files / MIB:.2f} MiB of file pages", flush=True)
    return float(peak)


def _files_of(command: list[str], bench: Workbench) -> set[str]:
    """Files that it maps while it runs."""
    quiet = subprocess.DEVNULL
    found: set[str] = set()
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, cwd=bench.folder) as process:
        while process.poll() is None:
            found |= _mapped_by(process.pid)
            time.sleep(0.005)
    return found


def _mapped_by(pid: int) -> set[str]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return {line[line.index("/") :] for line in lines if "/" in line}


def _drop(files: set[str]) -> None:
    """Drops files from the page cache; pages that a running program maps stay."""
    for path in files:
        try:
            with open(path, "rb") as file:
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError:
            continue
