"""joblens inside a job of joblens: the outer job counts and limits the inner one."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.cgroups.placement import LEAF
from joblens.model.values.ids import new_uuid
from joblens.probes.cgroup.layout import UNIFIED
from joblens.probes.proc.kernel_files import list_pids
from tests.conftest import Finished, completed_joblens, finished
from tests.integration.cgroup_jobs import factory_or_skip, start_in

MIB = 1 << 20
INNER = """
import os, subprocess, sys, time
from joblens.agent.cgroups.groups import GroupFactory
from joblens.model.values.ids import new_uuid
groups = GroupFactory.detect().create(new_uuid())
print(groups.paths["unified"], groups.set_limits(memory_bytes=64 << 20), flush=True)
burn = "import time\\nwhile time.process_time() < 0.3: pass"
join = f"echo 0 > {groups.paths['unified']}/cgroup.procs; exec {sys.executable} -c '{burn}'"
subprocess.run(["sh", "-c", join], check=True)
assert groups.remove() == []
"""
FORKING = "while :; do true & true; done"


@pytest.fixture
def outer() -> Iterator[JobGroups]:
    """A job's group on pure v2, empty."""
    factory = factory_or_skip()
    if factory.kind != "cgroup-v2":
        pytest.skip("needs pure cgroup v2")
    groups = factory.create(new_uuid())
    yield groups
    groups.kill()
    assert groups.remove() == []
    factory.close()


def cpu_s(groups: JobGroups) -> float:
    return int(Path(groups.paths[UNIFIED], "cpu.stat").read_text().split()[1]) / 1e6


def start_inner(outer: JobGroups) -> subprocess.Popen[bytes]:
    return start_in(outer, sys.executable, "-c", INNER, stdout=subprocess.PIPE)


def test_groups_of_an_inner_job_lie_inside_the_outer_one_and_have_its_controllers(outer: JobGroups) -> None:
    other = start_in(outer, "sleep", "60")
    inner = start_inner(outer)
    path, limited = inner.communicate()[0].decode().split(" ", 1)
    assert inner.returncode == 0
    group = outer.paths[UNIFIED]
    assert path.startswith(f"{group}/joblens-{os.geteuid()}/")
    assert "memory.max" in limited
    assert cpu_s(outer) > 0.3
    assert (Path(group) / "cgroup.type").read_text() == "domain\n"
    assert list_pids(f"{group}/{LEAF}") == [other.pid] == outer.pids()
    outer.kill()
    assert other.wait() == -9


def test_several_inner_joblens_divide_the_outer_job_at_once(outer: JobGroups) -> None:
    inner = [start_inner(outer) for _ in range(4)]
    paths = [process.communicate()[0].decode().split()[0] for process in inner]
    assert [process.returncode for process in inner] == [0] * 4
    assert len(set(paths)) == 4
    assert all(path.startswith(f"{outer.paths[UNIFIED]}/joblens-") for path in paths)


def test_an_outer_job_that_never_stops_forking_is_divided_all_the_same(outer: JobGroups) -> None:
    forking = start_in(outer, "sh", "-c", FORKING)
    inner = start_inner(outer)
    path = inner.communicate()[0].decode().split()[0]
    assert path.startswith(f"{outer.paths[UNIFIED]}/joblens-")
    outer.kill()
    assert forking.wait() == -9


def test_a_process_that_joins_a_divided_job_lands_in_its_leaf_and_may_be_joblens(outer: JobGroups) -> None:
    for _ in range(2):
        inner = start_inner(outer)
        path = inner.communicate()[0].decode().split()[0]
        assert inner.returncode == 0
        assert path.startswith(f"{outer.paths[UNIFIED]}/joblens-")
    assert outer.attach_files() == [f"{outer.paths[UNIFIED]}/{LEAF}/cgroup.procs"]


BURN = "b = bytearray(b'x') * (90 << 20)\nimport time\nwhile time.process_time() < 0.7: pass"


def job(store: Path, name: str) -> dict[str, object]:
    shown = joblens(store, "show", name, "--json")
    assert shown.code == 0, shown.stderr
    return json.loads(shown.stdout)  # type: ignore[no-any-return]


def joblens(store: Path, *argv: str) -> Finished:
    env = {**os.environ, "JOBLENS_STORE": str(store)}
    return finished(completed_joblens(*argv, env=env, cwd=Path.cwd(), timeout=120))


def numbers(record: dict[str, object]) -> tuple[float, float]:
    usage = record["resource_usage"]
    assert isinstance(usage, dict)
    return float(usage["cpu_total_seconds"]), float(usage["memory_peak_mb"])


def inner_command(*options: str) -> tuple[str, ...]:
    inner = (sys.executable, "-m", "joblens", "run", "-q", "--name", "inner", *options)
    return (*inner, "--", sys.executable, "-c", BURN)


def test_the_outer_job_has_the_cpu_time_and_memory_of_the_inner_one(tmp_path: Path) -> None:
    factory_or_skip()
    store = tmp_path / "s.db"
    done = joblens(store, "run", "-q", "--name", "outer", "--", *inner_command())
    assert done.code == 0, done.stderr
    outer, inner = numbers(job(store, "outer")), numbers(job(store, "inner"))
    assert inner[0] > 0.65
    assert inner[1] > 85
    assert outer[0] > inner[0]
    assert outer[1] > inner[1]


def test_the_limit_of_the_outer_job_holds_for_the_inner_one(tmp_path: Path) -> None:
    kind = factory_or_skip().kind
    store = tmp_path / "s.db"
    limit = ("--memory", "80m")
    done = joblens(store, "run", "-q", "--name", "outer", *limit, "--", *inner_command())
    assert done.code != 0
    outer, inner = job(store, "outer"), job(store, "inner")
    assert (outer["status"], inner["status"]) == ("failed", "failed")
    # cgroup v1 counts the kill for the group of the victim alone, and the limit for the outer one.
    assert kind != "cgroup-v2" or outer["reason"] == "out-of-memory"
    assert inner["reason"] == "out-of-memory"


def test_jobs_of_a_slot_may_run_joblens_one_after_another(tmp_path: Path) -> None:
    factory_or_skip()
    code = f"""
import sys
import joblens
inner = [sys.executable, "-m", "joblens", "run", "-q", "--", sys.executable, "-c", {BURN!r}]
plain = [sys.executable, "-c", {BURN!r}]
for result in joblens.map_commands([inner, plain, inner], jobs=1):
    print(result.ok, result.usage.cpu_total_usec / 1e6, result.usage.memory_peak_bytes / (1 << 20))
"""
    env = {**os.environ, "JOBLENS_STORE": str(tmp_path / "s.db")}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120, env=env
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["True"] * 3
    assert all(float(row[1]) > 0.65 for row in rows), rows
    assert all(float(row[2]) > 85 for row in rows), rows
