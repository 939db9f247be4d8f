"""What of a machine may be used."""

from pathlib import Path

import pytest

from joblens.app.wiring.machine import less_reserve, parse_gpus
from joblens.model.errors import InputError
from joblens.probes.cgroup.layout import CgroupLayout, Hierarchy
from joblens.probes.host.machine_load import usable_cpus, usable_gpus, usable_memory_bytes

GIB = 1 << 30


def layout(mount: Path, group: Path) -> CgroupLayout:
    unified = Hierarchy(
        version=2,
        controllers=(),
        mount_point=str(mount),
        own_path="/",
        directory=str(group),
        is_writable=True,
    )
    return CgroupLayout(kind="cgroup-v2", hierarchies={"unified": unified})


def test_the_lowest_limit_above_counts(tmp_path: Path) -> None:
    group = tmp_path / "outer" / "inner"
    group.mkdir(parents=True)
    (tmp_path / "outer" / "memory.max").write_text("300000000\n")
    (group / "memory.max").write_text("max\n")
    (tmp_path / "outer" / "cpu.max").write_text("50000 100000\n")
    assert usable_memory_bytes(layout(tmp_path, group)) == 300_000_000
    assert usable_cpus(layout(tmp_path, group)) == 0.5


def test_gpus_are_those_that_are_there_and_visible(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "null"):
        (tmp_path / name).touch()
    assert usable_gpus({}, str(tmp_path)) == ("0", "1", "10")
    assert usable_gpus({"CUDA_VISIBLE_DEVICES": "1, GPU-ab"}, str(tmp_path)) == ("1", "GPU-ab")
    assert usable_gpus({"CUDA_VISIBLE_DEVICES": ""}, str(tmp_path)) == ()
    assert usable_gpus({"CUDA_VISIBLE_DEVICES": "0"}, str(tmp_path / "none")) == ()


def test_a_part_of_the_memory_is_kept_back() -> None:
    assert less_reserve(1000 * GIB) == 996 * GIB
    assert less_reserve(20 * GIB) == 19 * GIB
    assert less_reserve(400 << 20) == 300 << 20


def test_gpus_to_offer_are_counted_or_named() -> None:
    assert parse_gpus("0,2") == ("0", "2")
    assert len(parse_gpus("3")) == 3
    assert parse_gpus("0") == ()
    for bad in ("0,,1", "1,1", ""):
        with pytest.raises(InputError):
            parse_gpus(bad)
