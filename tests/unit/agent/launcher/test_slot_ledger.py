"""The ledger of slot jobs, as the owner writes it and the next joblens reads it."""

import errno
import marshal
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from joblens.agent.launcher import slot_ledger
from joblens.agent.launcher.launcher import NOTE_BYTES
from joblens.agent.launcher.slot_ledger import (
    LedgerJob,
    SentJob,
    SlotLedger,
    ledgers,
    reload_job,
    started_jobs,
)
from joblens.agent.measuring.accounting import Accountant
from joblens.agent.recovery.orphans import Recovery
from joblens.agent.runtime.ownership import this_process
from joblens.agent.slots.after_kill import abandoned_ledgers, remove_finished_ledgers, unrecorded
from joblens.app.wiring.drivers import SystemClock
from joblens.model.errors import UnknownJob
from joblens.model.jobs.job import Job, Record, Status
from joblens.model.values.ids import new_uuid
from joblens.model.writes import JobEnded, JobQueued, JobStarted
from joblens.probes.host.machine_load import read_host
from tests.unit.agent.fake_clock import FakeClock

HOST = read_host()
GONE = structs.replace(this_process(HOST), start_ticks=1)  # another process had that number
DONE: tuple[Any, ...] = ("done", 0, (1, 2, *(0,) * 13), 5, 1_000, 3_000, 0, 0, "", False, [])
PWRITE = os.pwrite
FAILED: tuple[Any, ...] = ("failed", 2, "execute", "no-such")


def sent(uuid: str = "", queue: str = "", words: int = 1) -> SentJob:
    argv = ("no-such", *("x" * 100,) * words)
    return SentJob(Job(uuid=uuid or new_uuid(), argv=argv, created_at_us=1, queue=queue))


def note(path: str, offset: int, uuid: str, facts: tuple[Any, ...]) -> None:
    """As a launcher does."""
    data = marshal.dumps(facts)
    head = uuid.encode() + (7_000_000).to_bytes(8, "little") + len(data).to_bytes(4, "little")
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(head + data)


def begin(ledger: SlotLedger, job: SentJob, answer: tuple[Any, ...] | None = None) -> None:
    offset = ledger.add(job)
    note(ledger.path, offset, job.job.uuid, (1_000, "slot-x", False, (0.0, 0.0), []))
    if answer is not None:
        note(ledger.path, offset + NOTE_BYTES, job.job.uuid, answer)


@pytest.fixture
def ledger(tmp_path: Path) -> SlotLedger:
    return SlotLedger(str(tmp_path), GONE, FakeClock())


def no_record(uuid: str) -> Record | None:
    return None


def begun(ledger: SlotLedger) -> dict[str, LedgerJob]:
    return {job.uuid: job for job in started_jobs(ledger.path)}


def test_jobs_that_were_begun_are_found_with_their_ends(ledger: SlotLedger) -> None:
    waiting, running, ended = sent(), sent(), sent(words=200)
    ledger.add(waiting)
    begin(ledger, running)
    begin(ledger, ended, DONE)
    found = begun(ledger)
    assert found.keys() == {running.job.uuid, ended.job.uuid}
    assert found[running.job.uuid].end is None
    end = found[ended.job.uuid].end
    assert end is not None
    assert end.report == DONE
    assert found[ended.job.uuid].sent == ended


def test_a_cell_is_used_again_when_the_store_has_the_end_and_old_notes_do_not_count(
    ledger: SlotLedger,
) -> None:
    first, second = sent(), sent()
    begin(ledger, first, DONE)
    offset = ledger.add(first)
    ledger.remove([first.job.uuid, "unknown"])
    assert begun(ledger) == {}
    assert ledger.add(second) == offset
    assert begun(ledger) == {}
    size = os.path.getsize(ledger.path)
    for _ in range(50):
        ledger.remove([second.job.uuid])
        second = sent()
        ledger.add(second)
    assert os.path.getsize(ledger.path) == size


def test_a_job_that_comes_again_keeps_its_place(ledger: SlotLedger) -> None:
    job = sent()
    assert ledger.add(job) == ledger.add(job)


def test_jobs_run_without_a_ledger_where_no_file_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ledger = SlotLedger(str(tmp_path / "file" / "below"), GONE, FakeClock())
    assert (ledger.path, ledger.add(sent())) == ("", -1)
    ledger.remove(["any"])
    ledger.close()


def full_disk(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def half_written(file: int, data: bytes, offset: int) -> int:
    return PWRITE(file, data[: len(data) // 2], offset)


@pytest.mark.parametrize("write", [full_disk, lambda _file, data: len(data) // 2])
def test_a_full_disk_leaves_no_ledger_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., int]
) -> None:
    files = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "write", write)
    ledger = SlotLedger(str(tmp_path), GONE, FakeClock())
    assert (ledger.path, ledger.add(sent())) == ("", -1)
    assert (ledgers(str(tmp_path)), os.listdir("/proc/self/fd")) == ([], files)


@pytest.mark.parametrize("pwrite", [full_disk, half_written])
@pytest.mark.parametrize("is_used_again", [True, False])
def test_a_cell_that_could_not_be_written_is_used_by_the_next_job(
    ledger: SlotLedger,
    monkeypatch: pytest.MonkeyPatch,
    pwrite: Callable[..., int],
    *,
    is_used_again: bool,
) -> None:
    first, second, third = sent(), sent(), sent()
    if is_used_again:
        ledger.add(first)
        ledger.remove([first.job.uuid])
    with monkeypatch.context() as patch:
        patch.setattr(slot_ledger, "_REFILL_S", -1.0)  # a few seconds later
        patch.setattr(os, "pwrite", pwrite)
        assert ledger.add(second) == -1
    begin(ledger, third, DONE)
    assert begun(ledger).keys() == {third.job.uuid}
    assert os.path.getsize(ledger.path) == 4 * NOTE_BYTES  # the head and one cell, over its whole length


@pytest.mark.parametrize(("age_s", "left"), [(0, 1), (2 * 86_400, 0)])
def test_a_ledger_whose_owner_was_killed_before_it_wrote_its_name_goes_when_it_is_old(
    tmp_path: Path, age_s: int, left: int
) -> None:
    path = tmp_path / "slots-x.ledger"
    path.touch()
    then_s = FakeClock().wall_us / 1e6 - age_s
    os.utime(path, (then_s, then_s))
    remove_finished_ledgers(str(tmp_path), HOST, lambda _: False, FakeClock().wall_us)
    assert len(ledgers(str(tmp_path))) == left


def test_a_half_written_ledger_tells_what_it_has(ledger: SlotLedger) -> None:
    job = sent()
    begin(ledger, job, DONE)
    ledger.add(sent())
    os.truncate(ledger.path, os.path.getsize(ledger.path) - 2 * NOTE_BYTES - 8)
    assert begun(ledger).keys() == {job.job.uuid}


def test_a_half_written_note_says_nothing_and_the_one_before_it_stays(ledger: SlotLedger) -> None:
    job = sent()
    begin(ledger, job, DONE)
    with open(ledger.path, "r+b") as file:
        file.truncate(ledger.add(job) + NOTE_BYTES + 60)
    found = begun(ledger)
    assert found[job.job.uuid].end is None


def test_a_job_that_no_store_knows_is_recorded_as_its_launcher_began_it(
    ledger: SlotLedger, tmp_path: Path
) -> None:
    running, unstarted, queued = sent(), sent(), sent(queue="q")
    begin(ledger, running, DONE)
    begin(ledger, unstarted, FAILED)
    begin(ledger, queued, DONE)
    writes = unrecorded(started_jobs(ledger.path), GONE, HOST, no_record)
    first, started, second, ended = writes
    assert (first, second) == (JobQueued(running.job), JobQueued(unstarted.job))
    assert isinstance(started, JobStarted)
    assert (started.attempt.started_at_us, started.attempt.started_mono_ns) == (7_000_000, 1_000)
    assert started.attempt.owner == GONE
    assert isinstance(ended, JobEnded)
    assert (ended.outcome.status, ended.outcome.exit_code) == (Status.ERROR, 127)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_ledger_of_another_user_is_ignored(ledger: SlotLedger, tmp_path: Path) -> None:
    begin(ledger, sent(), DONE)
    os.chown(ledger.path, 65534, 65534)
    assert abandoned_ledgers(str(tmp_path), HOST) == {}
    assert begun(ledger) == {}


def test_a_ledger_of_a_living_owner_is_not_touched(tmp_path: Path) -> None:
    ledger = SlotLedger(str(tmp_path), this_process(HOST), FakeClock())
    begin(ledger, sent(), DONE)
    assert abandoned_ledgers(str(tmp_path), HOST) == {}
    remove_finished_ledgers(str(tmp_path), HOST, lambda _: True, 0)
    assert ledgers(str(tmp_path)) == [ledger.path]


@pytest.mark.parametrize(("is_over", "left"), [(lambda _: True, 0), (lambda _: False, 1)])
def test_a_ledger_goes_when_all_its_jobs_are_over(
    ledger: SlotLedger, tmp_path: Path, is_over: Callable[[str], bool], left: int
) -> None:
    job = sent()
    begin(ledger, job, DONE)
    remove_finished_ledgers(str(tmp_path), HOST, is_over, 0)
    assert len(ledgers(str(tmp_path))) == left
    assert len(begun(ledger)) == left


class NoRecords:
    """In offset of a store."""

    def running(self) -> list[Record]:
        return []

    def find(self, uuid: str) -> Record:
        raise UnknownJob(uuid)


def test_recovery_reads_each_ledger_once_and_sees_ends_that_come_later(
    ledger: SlotLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, running = [sent() for _ in range(20)], sent()
    for job in ended:
        begin(ledger, job, DONE)
    begin(ledger, running)
    clock = SystemClock()
    recovery = Recovery(str(tmp_path), Accountant(clock), clock, HOST, user="", output_max_bytes=0)
    assert recovery.slot_job(running.job.uuid) is not None
    writes = recovery.unrecorded(lambda question: question(NoRecords()))  # type: ignore[arg-type]
    assert len(writes) == 2 * 21
    monkeypatch.setattr("joblens.agent.recovery.orphans.started_jobs", pytest.fail)
    monkeypatch.setattr("joblens.agent.slots.after_kill.started_jobs", pytest.fail)
    assert all(recovery.slot_job(job.job.uuid) for job in ended)
    assert recovery.slot_job(new_uuid()) is None
    found = recovery.slot_job(running.job.uuid)
    assert found is not None
    assert found.end is None
    begin(ledger, running, DONE)
    found = recovery.slot_job(running.job.uuid)
    assert found is not None
    assert found.end is not None
    ledger.remove([running.job.uuid])
    assert reload_job(found) == found  # its cell has another job by now


def test_a_report_of_another_version_is_left_alone(ledger: SlotLedger) -> None:
    """Its own version settles it: this one does not guess what its fields mean."""
    begin(ledger, sent(), (*DONE, "a field of the next version"))
    assert begun(ledger) == {}
