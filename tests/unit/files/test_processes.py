import os
from pathlib import Path

import pytest

from joblens.files.processes import is_running, process_start_ticks

STAT = "9 (a ) b) {} 1 9 9 0 -1 0 0 0 0 0 4 5 0 0 20 0 1 0 77 1000"


@pytest.mark.parametrize(("state", "ticks"), [("R", 77), ("S", 77), ("Z", None), ("X", None)])
def test_the_start_time_is_known_while_the_process_runs(
    tmp_path: Path, state: str, ticks: int | None
) -> None:
    (tmp_path / "9").mkdir()
    (tmp_path / "9" / "stat").write_text(STAT.format(state))
    assert process_start_ticks(9, str(tmp_path)) == ticks


def test_a_missing_or_unreadable_process_has_no_start_time(tmp_path: Path) -> None:
    (tmp_path / "9" / "stat").mkdir(parents=True)
    assert process_start_ticks(9, str(tmp_path)) is None
    assert process_start_ticks(10, str(tmp_path)) is None


def test_a_process_is_identified_by_pid_and_start_time() -> None:
    ticks = process_start_ticks(os.getpid())
    assert ticks is not None
    assert is_running(os.getpid(), ticks)
    assert not is_running(os.getpid(), ticks + 1)
    assert not is_running(os.getpid(), None)
