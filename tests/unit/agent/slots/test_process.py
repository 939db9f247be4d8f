"""The launcher of a slot as a process of its own, without control groups."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.agent.slots.groups import SlotOrder, SlotProcess
from joblens.model.errors import AccountingUnavailable, LaunchError
from tests.conftest import wait_until


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[SlotProcess]:
    process = SlotProcess(str(tmp_path / "logs" / ".slot"), "", str(tmp_path / "logs"), ())
    yield process
    process.close()


def give(launcher: SlotProcess, uuid: str, *argv: str, is_ahead: bool = False) -> None:
    launcher.send_jobs([order(uuid, *argv)], has_one=is_ahead)


def order(uuid: str, *argv: str) -> SlotOrder:
    return SlotOrder(uuid, [os.fsencode(word) for word in argv], {}, "/", "", "", -1)


def test_a_peak_that_the_kernel_lets_nobody_reset_is_read_all_the_same(launcher: SlotProcess) -> None:
    contents = launcher.open_counters(["/proc/version", "/proc/uptime"], 1)
    assert contents[0].startswith(b"Linux")
    assert float(contents[1].split()[0]) > 0
    give(launcher, "a", "true")
    assert launcher.receive()[:2] == ("done", 0)


def test_a_peak_is_reset_before_a_job_and_before_its_end_is_reported(tmp_path: Path) -> None:
    (tmp_path / "peak").write_text("5")
    shared = os.open(tmp_path / "peak", os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    process = SlotProcess(
        str(tmp_path / "logs" / ".slot"), str(tmp_path), str(tmp_path / "logs"), (), descriptors=(-1, shared)
    )
    os.unlink(tmp_path / "peak")  # only the descriptor that both have leads to it
    try:
        (tmp_path / "peak").write_text("another open file's")
        assert process.open_counters([str(tmp_path / "peak")], 0) == [b"5"]
        give(process, "a", "sh", "-c", f"test ! -e /proc/self/fd/{shared}")
        assert process.receive()[-1] == [b"50"]
        assert os.pread(shared, 9, 0) == b"500"
    finally:
        process.close()
        os.close(shared)


def test_groups_and_descriptors_can_come_after_the_start(tmp_path: Path) -> None:
    """A file stands in for cgroup.procs: the launcher joins before it says that it is up."""
    (tmp_path / "peak").write_text("5")
    (tmp_path / "procs").touch()
    peak = os.open(tmp_path / "peak", os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    packets = os.memfd_create("packets")
    os.write(packets, b"7" * 128)
    process = SlotProcess(str(tmp_path / "logs" / ".slot"), "", str(tmp_path / "logs"), None)
    try:
        assert not process.has_answered()
        process.enter([str(tmp_path / "procs")], (packets, peak))
        assert (tmp_path / "procs").read_text() == "0"
        assert process.open_counters([str(tmp_path / "peak")], 0) == [b"5", b"7" * 128]
        give(
            process, "a", "sh", "-c", "for fd in /proc/self/fd/*; do readlink $fd; done | grep -e peak -e mem"
        )
        assert process.receive()[:2] == ("done", 1 << 8)  # grep finds neither
        assert os.pread(peak, 9, 0) == b"500"
    finally:
        process.close()
        os.close(peak)
        os.close(packets)


@pytest.mark.parametrize("descriptors", [(-1, -1), (-1, 0), (0, -1)])
def test_a_launcher_takes_what_descriptors_there_are(tmp_path: Path, descriptors: tuple[int, int]) -> None:
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.write(file, b"1" * 128)
    packets, peak = (file if one == 0 else -1 for one in descriptors)
    process = SlotProcess(str(tmp_path / "logs" / ".slot"), "", str(tmp_path / "logs"), None)
    process.enter([], (packets, peak))
    contents = process.open_counters(["/proc/version"], -1)
    assert len(contents) == (2 if packets >= 0 else 1)
    process.close()
    os.close(file)


def test_a_launcher_that_never_gets_groups_ends_with_its_owner(tmp_path: Path) -> None:
    process = SlotProcess(str(tmp_path / "logs" / ".slot"), "", str(tmp_path / "logs"), None)
    process.close()  # waits for its end
    assert not os.path.exists(f"/proc/{process.pid}")


def test_a_launcher_that_cannot_join_its_groups_is_an_error(tmp_path: Path) -> None:
    process = SlotProcess(str(tmp_path / "logs" / ".slot"), "", str(tmp_path / "logs"), None)
    with pytest.raises(AccountingUnavailable, match="cannot join its control group: No such file"):
        process.enter([str(tmp_path / "none" / "cgroup.procs")], (-1, -1))
    process.close()  # as its owner does once more


def test_jobs_sent_ahead_run_in_their_order(launcher: SlotProcess, tmp_path: Path) -> None:
    give(launcher, "a", "sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; exit 1")
    give(launcher, "b", "sh", "-c", "exit 2", is_ahead=True)
    give(launcher, "c", "sh", "-c", "exit 3", is_ahead=True)
    (tmp_path / "go").touch()
    assert [launcher.receive()[1] >> 8 for _ in range(3)] == [1, 2, 3]


def test_the_job_that_is_taken_back_is_the_last_one_sent(launcher: SlotProcess, tmp_path: Path) -> None:
    give(launcher, "a", "sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done")
    give(launcher, "b", "sh", "-c", "exit 2", is_ahead=True)
    give(launcher, "c", "touch", str(tmp_path / "c"), is_ahead=True)
    assert launcher.revoke_permit()
    (tmp_path / "go").touch()
    assert [launcher.receive()[:2] for _ in range(3)] == [("done", 0), ("done", 2 << 8), ("skipped", "c")]
    assert not (tmp_path / "c").exists()
    assert not launcher.revoke_permit()


def test_nothing_follows_a_job_that_was_killed(launcher: SlotProcess) -> None:
    give(launcher, "a", "sh", "-c", "sleep 0.2; kill -9 $$")
    give(launcher, "b", "true", is_ahead=True)
    give(launcher, "c", "true", is_ahead=True)
    assert [launcher.receive()[:2] for _ in range(3)] == [("done", 9), ("skipped", "b"), ("skipped", "c")]
    give(launcher, "d", "true")
    assert launcher.receive()[:2] == ("done", 0)


def test_an_answer_that_waits_to_be_read_is_noticed(launcher: SlotProcess) -> None:
    assert not launcher.has_answered()
    give(launcher, "a", "true")
    wait_until(launcher.has_answered, what="the answer")
    launcher.receive()
    assert not launcher.has_answered()


def test_a_null_character_in_a_command_costs_only_that_job(launcher: SlotProcess) -> None:
    give(launcher, "a", "true", "a\0b")
    assert launcher.receive()[:3] == ("failed", 22, "execute")
    give(launcher, "b", "true")
    assert launcher.receive()[:2] == ("done", 0)


def test_jobs_that_were_sent_together_can_be_taken_back_but_the_first(
    launcher: SlotProcess, tmp_path: Path
) -> None:
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"
    launcher.send_jobs([order(uuid, "sh", "-c", wait) for uuid in "abc"], has_one=False)
    assert [launcher.revoke_permit() for _ in range(3)] == [True, True, False]
    (tmp_path / "go").touch()
    assert [launcher.receive()[:2] for _ in range(3)] == [("done", 0), ("skipped", "b"), ("skipped", "c")]


def test_a_launcher_that_cannot_join_its_groups_says_so(tmp_path: Path) -> None:
    path = str(tmp_path / "gone" / "cgroup.procs")
    with pytest.raises(AccountingUnavailable, match="cannot join its control group: No such file") as refused:
        SlotProcess(str(tmp_path / "logs" / ".slot"), "", str(tmp_path / "logs"), [path])
    assert path in str(refused.value)


def test_a_launcher_that_cannot_write_its_files_says_so(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="for the output of jobs: No such file") as refused:
        SlotProcess(str(tmp_path / "gone" / ".slot"), "", str(tmp_path / "logs"), ())
    assert str(tmp_path / "gone") in str(refused.value)
