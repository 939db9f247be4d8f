"""The cgroup probe on what real kernels said about a job whose usage is known (fixtures/kernel)."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from joblens.model.errors import ProbeError
from joblens.model.jobs.sample import Sample
from joblens.probes.cgroup.counters import GROUPS_OF_CGROUPS
from joblens.probes.cgroup.layout import read_layout
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.proc.processes import FIELD_GROUPS

KERNELS = Path(__file__).resolve().parents[3] / "fixtures" / "kernel"
RECORDINGS = sorted(path.parent for path in KERNELS.glob("*/truth.json"))
MIB = 1 << 20


@pytest.fixture(params=RECORDINGS, ids=lambda path: path.name)
def recording(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def truth_of(recording: Path) -> Any:
    return json.loads((recording / "truth.json").read_text())


def probe_of(directory: Path, kind: str) -> CgroupProbe:
    return CgroupProbe({path.name: str(path) for path in directory.iterdir()}, kind, sysfs="/nowhere")


def read_at(recording: Path, instant: str) -> dict[str, Any]:
    probe = probe_of(recording / instant, truth_of(recording)["kind"])
    try:
        return probe.read()
    finally:
        probe.close()


def test_noted_contents_tell_the_same_as_the_groups(recording: Path) -> None:
    standing = probe_of(recording / "end", truth_of(recording)["kind"])
    paths = {path.name: str(path) for path in (recording / "end").iterdir()}
    contents = {path: Path(path).read_bytes() for path in standing.noted_files()}
    # The groups themselves are out of reach.
    elsewhere = {path.replace(str(recording), "/gone"): text for path, text in contents.items()}
    gone = {key: path.replace(str(recording), "/gone") for key, path in paths.items()}
    noted = CgroupProbe(gone, truth_of(recording)["kind"], sysfs="/nowhere", contents=elsewhere)
    assert noted.read() == {**standing.read(), "processes": 0}
    assert noted.sources == standing.sources
    assert noted.unknown == standing.unknown
    assert "memory_limit_bytes" in noted.read()
    standing.close()
    noted.close()


def copy_of(recording: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recording / "2", tmp_path / "group"))


def test_the_layout_is_recognised(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    for name in ("cgroup", "mountinfo"):
        shutil.copy(recording / f"self_{name}", tmp_path / "self" / name)
    layout = read_layout(str(tmp_path))
    assert layout.kind == truth_of(recording)["kind"]
    assert all(hierarchy.directory for hierarchy in layout.hierarchies.values())


def test_cpu_time_is_what_the_job_and_wait4_said(recording: Path) -> None:
    truth = truth_of(recording)
    for instant, result in zip(("1", "2"), truth["instants"], strict=True):
        # The job asked the clock in ticks of 10 ms, four of them.
        assert read_at(recording, instant)["cpu_total_usec"] == pytest.approx(result["cpu_usec"], abs=60_000)
    end = read_at(recording, "end")
    assert end["cpu_total_usec"] == pytest.approx(truth["end"]["cpu_usec"], rel=0.01, abs=15_000)
    assert end["cpu_user_usec"] + end["cpu_system_usec"] == pytest.approx(end["cpu_total_usec"], abs=10)


def test_counters_never_go_back(recording: Path) -> None:
    first, second, end = (read_at(recording, instant) for instant in ("1", "2", "end"))
    for name in (
        "cpu_total_usec",
        "faults_minor",
        "cpu_some_usec",
        "memory_kernel_peak_bytes",
        "cpu_periods",
    ):
        assert first[name] <= second[name] <= end[name], name


def test_memory_is_what_the_job_held(recording: Path) -> None:
    for instant, result in zip(("1", "2"), truth_of(recording)["instants"], strict=True):
        reading = read_at(recording, instant)
        assert reading["memory_anon_bytes"] == pytest.approx(result["anon_bytes"], rel=0.1)
        assert reading["memory_current_bytes"] >= reading["memory_anon_bytes"]
    second = read_at(recording, "2")
    assert 96 * MIB < second["memory_kernel_peak_bytes"] < second["memory_limit_bytes"] == 512 * MIB
    assert second["memory_kernel_bytes"] > 0


def test_processes_threads_and_limits(recording: Path) -> None:
    reading = read_at(recording, "1")
    assert reading["processes"] == reading["threads"] == 1
    assert reading["pids_limit"] == 50
    assert reading["pids_limit_events"] == reading["oom_kills"] == 0
    assert read_at(recording, "end")["processes"] == 0


def test_direct_writes_are_in_the_device_counters_where_the_kernel_has_them(recording: Path) -> None:
    first, second = read_at(recording, "1"), read_at(recording, "2")
    if truth_of(recording)["kind"] != "cgroup-v2":
        assert "io_write_bytes" not in first
        return
    assert second["io_write_bytes"] - first["io_write_bytes"] >= 4 * MIB
    assert second["io_write_bytes"] == sum(device.write_bytes for device in second["devices"].values())


def test_every_number_is_a_sample_field_and_every_gap_is_explained(recording: Path) -> None:
    probe = probe_of(recording / "2", truth_of(recording)["kind"])
    reading = probe.read()
    assert set(reading) <= set(Sample.__struct_fields__)
    for group in GROUPS_OF_CGROUPS:
        for field in FIELD_GROUPS[group]:
            assert (field in reading) != (field in probe.unknown), field
    probe.close()


def test_a_kernel_without_pressure_says_why_there_is_none(recording: Path, tmp_path: Path) -> None:
    group = copy_of(recording, tmp_path)
    for path in group.glob("*/*.pressure"):
        path.unlink()
    probe = probe_of(group, truth_of(recording)["kind"])
    assert "cpu_some_usec" not in probe.read()
    assert "CONFIG_PSI" in probe.unknown["cpu_some_usec"]
    assert "cpu_pressure" not in probe.sources
    probe.close()


def test_a_kernel_without_memory_peak_says_why_there_is_none(recording: Path, tmp_path: Path) -> None:
    group = copy_of(recording, tmp_path)
    for name in ("memory.peak", "memory.max_usage_in_bytes"):
        for path in group.glob(f"*/{name}"):
            path.unlink()
    probe = probe_of(group, truth_of(recording)["kind"])
    assert "memory_kernel_peak_bytes" not in probe.read()
    assert probe.unknown["memory_kernel_peak_bytes"]
    probe.close()


def test_without_the_memory_controller_cpu_time_is_still_there(recording: Path, tmp_path: Path) -> None:
    group = copy_of(recording, tmp_path)
    shutil.rmtree(group / "memory", ignore_errors=True)
    for path in group.glob("unified/memory.[!p]*"):
        path.unlink()
    probe = probe_of(group, truth_of(recording)["kind"])
    reading = probe.read()
    assert reading["cpu_total_usec"] > 0
    assert "memory_current_bytes" not in reading
    assert "memory controller" in probe.unknown["memory_current_bytes"]
    probe.close()


def test_totals_leave_out_volumes_that_stand_on_other_devices(tmp_path: Path) -> None:
    group, sysfs = tmp_path / "unified", tmp_path / "sys"
    group.mkdir()
    (sysfs / "dev/block/253:0/slaves/sda").mkdir(parents=True)
    (sysfs / "dev/block/8:0/slaves").mkdir(parents=True)
    (group / "cgroup.procs").write_text("")
    (group / "io.stat").write_text(
        "8:0 rbytes=10 wbytes=100 rios=1 wios=2 dbytes=0 dios=0\n"
        "253:0 rbytes=10 wbytes=100 rios=1 wios=2 dbytes=0 dios=0\n"
    )
    probe = CgroupProbe({"unified": str(group)}, "cgroup-v2", sysfs=str(sysfs))
    reading = probe.read()
    assert (reading["io_read_bytes"], reading["io_write_bytes"]) == (10, 100)
    assert set(reading["devices"]) == {"8:0", "253:0"}
    probe.close()


def test_a_group_without_the_memory_controller_is_not_said_to_be_of_an_old_kernel(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("")
    (tmp_path / "cpu.stat").write_text("usage_usec 5\nuser_usec 3\nsystem_usec 2\n")
    probe = CgroupProbe({"unified": str(tmp_path)}, "cgroup-v2")
    for field in ("memory_kernel_peak_bytes", "memory_swap_bytes", "memory_current_bytes"):
        assert "controller is not handed down" in probe.unknown[field]
    probe.close()
    (tmp_path / "memory.current").write_text("1\n")
    probe = CgroupProbe({"unified": str(tmp_path)}, "cgroup-v2")
    assert "Linux 5.19" in probe.unknown["memory_kernel_peak_bytes"]
    probe.close()


def test_a_group_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="is not there"):
        CgroupProbe({"unified": str(tmp_path / "none")}, "cgroup-v2")
