"""Runs commands and reports their cost."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from joblens.agent.cgroups.groups import GroupFactory
from joblens.model.errors import AccountingUnavailable

WORKLOADS = Path(__file__).parent / "workloads"
JOBLENS = [str(Path(sys.executable).with_name("joblens"))]


class Workbench:
    """A folder of its own for stores and truth files, and the environment that points joblens there."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.env = {
            **os.environ,
            "XDG_DATA_HOME": f"{folder}/data",
            "XDG_STATE_HOME": f"{folder}/state",
            "XDG_CONFIG_HOME": f"{folder}/config",
        }
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def truth(self, name: str = "truth") -> float:
        return float(Path(self.path(name)).read_text(encoding="ascii"))

    def workload(self, name: str, *arguments: object, truth: str = "truth") -> list[str]:
        return [sys.executable, str(WORKLOADS / f"{name}.py"), *map(str, arguments), self.path(truth)]

    def record(self, accounting: str, job: list[str], *options: str) -> dict[str, Any]:
        """Runs the job under joblens and returns its record."""
        report = self.path("report.json")
        command = [*JOBLENS, "run", "--accounting", accounting, "--report", report, *options, "--", *job]
        subprocess.run(command, env=self.env, check=True, stdout=subprocess.DEVNULL)
        record: dict[str, Any] = json.loads(Path(report).read_text(encoding="utf-8"))
        return record


def wall_s(command: list[str], env: dict[str, str] | None = None) -> float:
    start = time.perf_counter()
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def median_wall_s(command: list[str], env: dict[str, str], repeats: int) -> float:
    return median(wall_s(command, env) for _ in range(repeats))


def cpu_s(command: list[str], env: dict[str, str]) -> float:
    """CPU seconds of the command and everything below it, by a control group around them all."""
    try:
        groups = GroupFactory.detect().create(f"bench-{os.getpid()}")
    except AccountingUnavailable:
        return _cpu_by_wait(command, env)
    if groups.kind != "cgroup-hybrid":  # elsewhere a group around joblens would change how joblens measures
        groups.remove()
        return _cpu_by_wait(command, env)
    try:
        join = f'echo 0 > {groups.paths["unified"]}/cgroup.procs; exec "$@"'
        wrapped = ["/bin/sh", "-c", join, "sh", *command]
        subprocess.run(wrapped, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        text = Path(groups.paths["unified"], "cpu.stat").read_text(encoding="ascii")
        return int(text.split()[1]) / 1e6
    finally:
        groups.remove()


def _cpu_by_wait(command: list[str], env: dict[str, str]) -> float:
    null = os.open(os.devnull, os.O_RDWR)
    files = [(os.POSIX_SPAWN_DUP2, null, place) for place in (0, 1, 2)]
    pid = os.posix_spawnp(command[0], command, env, file_actions=files)
    _, _, usage = os.wait4(pid, 0)
    os.close(null)
    return usage.ru_utime + usage.ru_stime


def new_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="joblens-bench-")
