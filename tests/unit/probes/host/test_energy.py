"""No machine at hand has RAPL counters: the trees are made up after what the kernel's documentation and
listings of real machines show (two packages with memory, one listed again through MMIO, a psys zone)."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from joblens.probes.host.energy import DRAM_FIELD, PACKAGE_FIELD, EnergyCounters, EnergyProbe, find_zones

RANGE_UJ = 262_143_328_850


def _zone(root: Path, name: str, title: str, uj: int, range_uj: int = RANGE_UJ) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{title}\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    (folder / "energy_uj").write_text(f"{uj}\n")
    return folder


def _server(root: Path) -> Path:
    (root / "intel-rapl").mkdir(parents=True)
    (root / "intel-rapl" / "enabled").write_text("1\n")
    _zone(root, "intel-rapl:0", "package-0", 1_000_000)
    _zone(root, "intel-rapl:0:0", "dram", 50_000, 65_712_999_613)
    _zone(root, "intel-rapl:1", "package-1", 2_000_000)
    _zone(root, "intel-rapl:1:0", "dram", 70_000, 65_712_999_613)
    return root


def _set(root: Path, name: str, uj: int) -> None:
    with (root / name / "energy_uj").open("r+") as file:
        file.truncate(0)
        file.write(f"{uj}\n")


def ticking() -> Callable[[], int]:
    """A clock that is a second later whenever it is asked."""
    return itertools.count(10**12, 10**9).__next__


def test_packages_and_their_memory_are_added_up(tmp_path: Path) -> None:
    counters = EnergyCounters(str(_server(tmp_path)), ticking())
    assert counters.read() == {PACKAGE_FIELD: 3_000_000, DRAM_FIELD: 120_000}
    _set(tmp_path, "intel-rapl:1", 2_500_000)
    _set(tmp_path, "intel-rapl:0:0", 51_000)
    assert counters.read() == {PACKAGE_FIELD: 3_500_000, DRAM_FIELD: 121_000}
    assert counters.unknown == {}
    assert EnergyProbe(counters).sources == {
        "energy": "powercap (package-0, package-1, dram of package-0, dram of package-1), "
        "by its share of the CPU time"
    }
    counters.close()


def test_a_counter_that_comes_round_goes_on_growing(tmp_path: Path) -> None:
    root = _server(tmp_path)
    _set(root, "intel-rapl:0", RANGE_UJ - 300)
    counters = EnergyCounters(str(root), ticking())
    before = counters.read()[PACKAGE_FIELD]
    _set(root, "intel-rapl:0", 700)
    assert counters.read()[PACKAGE_FIELD] - before == 1000
    _set(root, "intel-rapl:0", 900)
    assert counters.read()[PACKAGE_FIELD] - before == 1200
    counters.close()


def test_no_package_is_counted_twice_and_none_of_its_parts_beside_it(tmp_path: Path) -> None:
    _zone(tmp_path, "intel-rapl-mmio:0", "package-0", 999)
    _zone(tmp_path, "intel-rapl:0", "package-0", 1000)
    _zone(tmp_path, "intel-rapl:0:0", "core", 600)
    _zone(tmp_path, "intel-rapl:0:1", "uncore", 100)
    _zone(tmp_path, "intel-rapl:1", "psys", 5000)
    _zone(tmp_path, "dtpm:0", "soc", 1)
    assert [zone.directory for zone in find_zones(str(tmp_path))] == [f"{tmp_path}/intel-rapl:0"]


def test_a_processor_without_memory_counter_says_so_for_the_memory_alone(tmp_path: Path) -> None:
    _zone(tmp_path, "intel-rapl:0", "package-0", 1000)
    counters = EnergyCounters(str(tmp_path), ticking())
    assert counters.read() == {PACKAGE_FIELD: 1000}
    assert counters.unknown == {DRAM_FIELD: "this processor has no energy counter for its memory"}
    counters.close()


def test_a_machine_without_counters_says_so(tmp_path: Path) -> None:
    probe = EnergyProbe(EnergyCounters(str(tmp_path / "nothing"), ticking()))
    assert probe.read() == {}
    assert set(probe.unknown) == {PACKAGE_FIELD, DRAM_FIELD}
    assert "no RAPL" in probe.unknown[PACKAGE_FIELD]
    assert probe.sources == {}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody who may not")
def test_who_may_not_read_a_counter_learns_what_to_do_and_gets_no_part_of_the_sum(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and "pytest" in str(folder):
            folder.chmod(0o755)
    root = _server(tmp_path)
    (root / "intel-rapl:1" / "energy_uj").chmod(0o400)
    os.seteuid(65534)
    try:
        counters = EnergyCounters(str(root), ticking())
    finally:
        os.seteuid(0)
    assert counters.read() == {DRAM_FIELD: 120_000}
    assert "intel-rapl:1/energy_uj may be read by root only" in counters.unknown[PACKAGE_FIELD]
    counters.close()


def test_counters_left_alone_for_longer_than_a_round_takes_are_not_believed(tmp_path: Path) -> None:
    now_ns = 10**12
    root = _server(tmp_path)
    counters = EnergyCounters(str(root), lambda: now_ns)
    running = EnergyProbe(counters)
    assert running.read()
    now_ns += 60 * 10**9  # the smallest counter, of 65713 J, needs 65.7 s at 1000 W
    assert running.read()
    now_ns += 70 * 10**9
    assert running.read() == {}
    assert "too seldom" in running.unknown[PACKAGE_FIELD]
    assert EnergyProbe(counters).read(), "a job that begins now is not concerned"
    counters.close()


def test_a_counter_that_does_not_say_how_far_it_goes_counts_until_it_begins_again(tmp_path: Path) -> None:
    zone = _zone(tmp_path, "intel-rapl:0", "package-0", 1000)
    (zone / "max_energy_range_uj").unlink()
    counters = EnergyCounters(str(tmp_path), ticking())
    running = EnergyProbe(counters)
    assert running.read() == {PACKAGE_FIELD: 1000}
    _set(tmp_path, "intel-rapl:0", 1500)
    assert running.read() == {PACKAGE_FIELD: 1500}
    _set(tmp_path, "intel-rapl:0", 20)
    assert running.read() == {}
    assert "its range is unknown" in running.unknown[PACKAGE_FIELD]
    assert EnergyProbe(counters).read() == {PACKAGE_FIELD: 1500}, "a job that begins now is not concerned"
    counters.close()
