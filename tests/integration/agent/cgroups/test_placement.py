"""Where groups can be made, on trees that look like the machines they stand for."""

import os
import subprocess
from pathlib import Path

import pytest

from joblens.agent.cgroups.placement import find_placement
from joblens.probes.cgroup.layout import CgroupLayout, parse_layout

FOUR = "cpu io memory pids"


def v2_machine(mount: Path, own: str, options: str = "rw") -> CgroupLayout:
    mountinfo = f"30 23 0:26 / {mount} {options} - cgroup2 cgroup2 rw\n"
    return parse_layout(f"0::{own}\n", mountinfo)


def make_v2_group(directory: Path, controllers: str, enabled: str = "") -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cgroup.controllers").write_text(controllers)
    (directory / "cgroup.subtree_control").write_text(enabled)
    (directory / "cgroup.procs").write_text("")


# ---- the own group holds processes, and nothing above it can be used --------------------------------------


def populated(directory: Path, pid: int | str, controllers: str = FOUR) -> None:
    make_v2_group(directory, controllers)
    (directory / "cgroup.type").write_text("domain\n")
    (directory / "cgroup.procs").write_text(f"{pid}\n")


def alone_in_a_unit(
    mount: Path, monkeypatch: pytest.MonkeyPatch, *, is_delegated: bool = True
) -> CgroupLayout:
    populated(mount / "work.service", os.getpid())
    monkeypatch.setattr("joblens.agent.cgroups.placement.is_delegated", lambda *_: is_delegated)
    return v2_machine(mount, "/work.service")


def test_processes_that_joblens_started_are_not_foreign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = alone_in_a_unit(tmp_path, monkeypatch)
    child = subprocess.Popen(["sleep", "60"])
    try:
        (tmp_path / "work.service" / "cgroup.procs").write_text(f"{os.getpid()}\n{child.pid}\n")
        assert find_placement(layout).is_borrowed
    finally:
        child.kill()
        child.wait()
