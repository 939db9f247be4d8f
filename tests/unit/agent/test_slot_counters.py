"""Counters of a slot's groups, on files that stand for the kernel's."""

import os
from pathlib import Path

import pytest

from joblens.agent.slot_counters import SlotCounters


@pytest.fixture
def group(tmp_path: Path) -> Path:
    for name, text in (("cgroup.procs", ""), ("memory.current", "5\n"), ("memory.peak", "900\n")):
        (tmp_path / name).write_text(text)
    return tmp_path


def counters_of(group: Path) -> SlotCounters:
    return SlotCounters({"unified": str(group)}, "cgroup-v2", None)


def test_the_owner_reads_the_peak_by_the_open_file_that_is_reset(group: Path) -> None:
    """cgroup v2 keeps a reset peak for each open file: by another one the jobs before would be read."""
    counters = counters_of(group)
    assert counters.peak >= 0
    os.unlink(group / "memory.peak")
    (group / "memory.peak").write_text("900\n")  # as any other open file has it
    os.pwrite(counters.peak, b"7\n\n\n", 0)
    assert counters.read()["memory_kernel_peak_bytes"] == 7
    counters.reset_peak()
    assert os.pread(counters.peak, 1, 0) == b"0"
    counters.close()
    counters.close()


def test_a_peak_that_cannot_be_reset_is_read_like_any_other_file(
    group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "pwrite", refuse)
    counters = counters_of(group)
    assert counters.peak == -1
    assert counters.read()["memory_kernel_peak_bytes"] == 900
    counters.reset_peak()
    counters.close()
