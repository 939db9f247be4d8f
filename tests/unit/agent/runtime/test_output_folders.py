"""Folders that several stores may share: each has one owner, which a mark in it names."""

import threading
from pathlib import Path

import pytest

from joblens.agent.runtime.output_folders import MARK, claim_folder, claim_for_run, owner_suffix


def claim(path: Path, owner: str, *, is_known: bool = False) -> str:
    return Path(claim_folder(str(path), owner, is_known=is_known)).name


def test_the_first_owner_has_the_folder_and_others_one_with_a_suffix(tmp_path: Path) -> None:
    assert claim(tmp_path / "out" / "1_1", "a") == "1_1"
    assert claim(tmp_path / "out" / "1_1", "b") == f"1_1-{owner_suffix('b')}"
    assert claim(tmp_path / "out" / "1_1", "a") == "1_1"
    assert claim(tmp_path / "out" / "1_1", "b") == f"1_1-{owner_suffix('b')}"


def test_the_mark_is_private(tmp_path: Path) -> None:
    claim(tmp_path / "1_1", "a")
    assert (tmp_path / "1_1" / MARK).stat().st_mode & 0o777 == 0o600


def test_output_without_a_mark_is_left_alone_unless_it_is_known(tmp_path: Path) -> None:
    (tmp_path / "1_1" / "job").mkdir(parents=True)
    assert claim(tmp_path / "1_1", "a") == f"1_1-{owner_suffix('a')}"
    assert claim(tmp_path / "1_1", "b", is_known=True) == "1_1"
    assert claim(tmp_path / "1_1", "c", is_known=True) == f"1_1-{owner_suffix('c')}"


def test_an_empty_folder_belongs_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "1_1").mkdir()
    assert claim(tmp_path / "1_1", "a") == "1_1"


def test_a_mark_that_cannot_be_read_is_taken_for_that_of_another(tmp_path: Path) -> None:
    (tmp_path / "1_1").mkdir()
    (tmp_path / "1_1" / MARK).mkdir()
    assert claim(tmp_path / "1_1", "a") == f"1_1-{owner_suffix('a')}"


@pytest.mark.parametrize("turn", range(5))
def test_of_many_at_once_each_gets_its_own(tmp_path: Path, turn: int) -> None:
    got: list[str] = []
    start = threading.Barrier(8)

    def run(owner: str) -> None:
        start.wait()
        got.append(claim(tmp_path / "1_1", owner))

    threads = [threading.Thread(target=run, args=(f"owner {number} {turn}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(got)) == 8
    assert "1_1" in got


def test_a_worker_uses_the_folder_of_its_run_and_no_other(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    claim(shared, "run-1 /store.db")
    assert claim_for_run(str(shared), "run-1") == str(shared)
    assert claim_for_run(str(shared), "run-2") == f"{shared}-{owner_suffix('run-2')}"
    own = str(tmp_path / "not-shared")
    assert [claim_for_run(own, run) for run in ("run-1", "run-2", "run-1")] == [
        own,
        f"{own}-{owner_suffix('run-2')}",
        own,
    ]
