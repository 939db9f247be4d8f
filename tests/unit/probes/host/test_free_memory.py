"""Memory that can still be had."""

from pathlib import Path

import pytest

from joblens.probes.cgroup.layout import CgroupLayout, Hierarchy
from joblens.probes.host.machine_load import free_memory_bytes

MEMINFO = "MemTotal: 8000 kB\nMemFree: 100 kB\nMemAvailable: 5000 kB\n"


def proc(tmp_path: Path, meminfo: str = MEMINFO) -> str:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text(meminfo)
    return str(tmp_path / "proc")


def layout(key: str, mount: Path, group: Path) -> CgroupLayout:
    hierarchy = Hierarchy(
        version=2 if key == "unified" else 1,
        controllers=(),
        mount_point=str(mount),
        own_path="/",
        directory=str(group),
        is_writable=True,
    )
    return CgroupLayout(kind="cgroup-v2", hierarchies={key: hierarchy})


def write_group(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


def test_without_limits_it_is_what_the_machine_can_give(tmp_path: Path) -> None:
    assert free_memory_bytes(CgroupLayout(kind="none"), proc(tmp_path)) == 5000 * 1024


def test_the_fullest_group_above_counts_and_page_cache_gives_way(tmp_path: Path) -> None:
    mount, group = tmp_path / "v2", tmp_path / "v2" / "outer" / "inner"
    write_group(group, {"memory.max": "max", "memory.current": "2000000"})
    outer = {
        "memory.max": "3000000",
        "memory.current": "2500000",
        "memory.stat": "anon 1\nactive_file 1000000\ninactive_file 500000",
    }
    write_group(group.parent, outer)
    assert free_memory_bytes(layout("unified", mount, group), proc(tmp_path)) == 2_000_000


def test_groups_of_version_1_count_as_well(tmp_path: Path) -> None:
    group = tmp_path / "v1" / "job"
    files = {
        "memory.limit_in_bytes": "1000000",
        "memory.usage_in_bytes": "900000",
        "memory.stat": "active_file 1\ntotal_inactive_file 300000",
    }
    write_group(group, files)
    assert free_memory_bytes(layout("memory", tmp_path / "v1", group), proc(tmp_path)) == 400_000


@pytest.mark.parametrize("usage", ["1200000", "1000000"])
def test_a_full_group_has_nothing_left(tmp_path: Path, usage: str) -> None:
    group = tmp_path / "v2" / "job"
    write_group(group, {"memory.max": "1000000", "memory.current": usage})
    assert free_memory_bytes(layout("unified", tmp_path / "v2", group), proc(tmp_path)) == 0


def test_a_machine_that_does_not_tell_is_not_guessed_at(tmp_path: Path) -> None:
    assert free_memory_bytes(CgroupLayout(kind="none"), str(tmp_path)) is None
