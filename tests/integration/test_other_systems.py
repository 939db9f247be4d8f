"""macOS and Windows, as far as this machine can be made to look like them: psutil gives the numbers, and
nothing that only Linux has is imported or called."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psutil")


def on(system: str, folder: Path, *more: str) -> Any:
    program = Path(__file__).with_name("other_system.py")
    ended = subprocess.run(
        [sys.executable, program, system, folder, *more],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_the_profiler_works_on_another_system(system: str, tmp_path: Path) -> None:
    result = on(system, tmp_path)
    profile = result["profile"]
    used_s = profile["process_cpu"]["mean_percent"] * profile["duration_seconds"] / 100
    assert 0.5 <= used_s < 2.0  # 0.3 s of a child, 0.2 s of its own
    assert profile["process_memory"]["max_mb"] > 40
    assert profile["memory"]["max_used_mb"] > 1
    assert 0 <= profile["cpu"]["mean_percent"] <= 100
    assert profile["samples_collected"] > 3
    assert profile["gpu_stats"] == profile["container_stats"] == {}
    assert profile["energy"]["total_joules"] is None
    assert "psutil" in profile["unknown"]["energy_package_uj"]
    assert result["snapshot"]["duration_seconds"] <= profile["duration_seconds"]
    assert result["container"]["container_stats"] == {}
    assert result["container"]["unknown"]["container_stats"]


def test_a_mac_keeps_records_and_windows_says_that_it_cannot(tmp_path: Path) -> None:
    mac, windows = on("darwin", tmp_path / "mac"), on("win32", tmp_path / "windows")
    for result in (mac, windows):
        assert result["record"]["status"] == "success"
        assert result["record"]["resource_usage"]["cpu_total_seconds"] > 0
        assert result["record"]["accounting"]["sources"]["cpu"] == "psutil"
    assert (tmp_path / "mac" / "jobs_history.jsonl").exists()
    assert not (tmp_path / "windows" / "jobs_history.jsonl").exists()
    assert "works on Linux only" in windows["refusal"]


def test_without_psutil_time_is_still_known_and_the_rest_null(tmp_path: Path) -> None:
    profile = on("darwin", tmp_path, "--without-psutil")["profile"]
    assert profile["process_cpu"]["mean_percent"] > 0
    assert profile["memory"]["max_used_mb"] is None
    assert profile["process_memory"]["max_mb"] is None
    assert "not installed" in profile["unknown"]["memory_peak_bytes"]
