"""The ledger of slot jobs, as the owner writes it and the next joblens reads it."""

import marshal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from joblens.agent.launcher.launcher import NOTE_BYTES
from joblens.agent.launcher.slot_ledger import SentJob, SlotLedger
from joblens.agent.runtime.ownership import this_process
from joblens.agent.slots import after_kill as left_slots
from joblens.agent.slots.after_kill import kill_unrecorded, read_abandoned
from joblens.agent.slots.marks import SlotMark, write_mark
from joblens.files.processes import process_start_ticks
from joblens.model.jobs.job import Attempt, Job, Record, Status
from joblens.model.values.ids import new_uuid
from joblens.probes.host.machine_load import read_host
from tests.unit.agent.fake_clock import FakeClock

HOST = read_host()
GONE = structs.replace(this_process(HOST), start_ticks=1)  # another process had that number
DONE: tuple[Any, ...] = ("done", 0, (1, 2, *(0,) * 13), 5, 1_000, 3_000, 0, 0, "", False, [])


def sent(uuid: str = "", queue: str = "", words: int = 1) -> SentJob:
    argv = ("no-such", *("x" * 100,) * words)
    return SentJob(Job(uuid=uuid or new_uuid(), argv=argv, created_at_us=1, queue=queue))


def note(path: str, place: int, uuid: str, facts: tuple[Any, ...]) -> None:
    """As a launcher does."""
    data = marshal.dumps(facts)
    head = uuid.encode() + (7_000_000).to_bytes(8, "little") + len(data).to_bytes(4, "little")
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(head + data)


def begin(ledger: SlotLedger, job: SentJob, answer: tuple[Any, ...] | None = None) -> None:
    place = ledger.add(job)
    note(ledger.path, place, job.job.uuid, (1_000, "slot-x", False, (0.0, 0.0), []))
    if answer is not None:
        note(ledger.path, place + NOTE_BYTES, job.job.uuid, answer)


@pytest.fixture
def ledger(tmp_path: Path) -> SlotLedger:
    return SlotLedger(str(tmp_path), GONE, FakeClock())


class Launcher:
    """A process in place of a slot's launcher, whose owner is gone."""

    def __init__(self, spool: Path) -> None:
        self.process = subprocess.Popen(["sleep", "60"])
        self.ticks = process_start_ticks(self.process.pid)
        files = str(spool / "logs" / ".slot-x")
        write_mark(str(spool), "slot-x", SlotMark(GONE, files, "", {}, self.process.pid, self.ticks))

    def record(self, job: Job) -> Record:
        attempt = Attempt(
            started_at_us=1, owner=GONE, launcher_pid=self.process.pid, launcher_start_ticks=self.ticks
        )
        return Record(status=Status.RUNNING, job=job, attempt=attempt)


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    monkeypatch.setattr(left_slots, "_TIMEOUT_S", 0.0)
    one = Launcher(tmp_path)
    yield one
    one.process.kill()
    one.process.wait()


def ended_soon(launcher: Launcher) -> bool:
    try:
        launcher.process.wait(0.5)
    except subprocess.TimeoutExpired:
        return False
    return True


@pytest.mark.parametrize("has_ledger", [True, False])
@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_launcher_is_ended_only_when_no_record_has_its_job(
    ledger: SlotLedger, tmp_path: Path, launcher: Launcher, *, is_recorded: bool, has_ledger: bool
) -> None:
    """A full disk: the job runs and is recorded, and no cell has it."""
    records = [launcher.record(sent().job)] if is_recorded else []
    if has_ledger:
        assert read_abandoned(ledger.path, GONE, records) == []
    else:
        ledger.close()
        kill_unrecorded(str(tmp_path), str(tmp_path / "logs"), HOST, records)
    assert ended_soon(launcher) == (not is_recorded)


@pytest.mark.parametrize("answer", [None, DONE])
def test_a_launcher_whose_recorded_job_has_ended_is_ended_when_it_runs_another_one_that_nobody_knows(
    ledger: SlotLedger, launcher: Launcher, answer: tuple[Any, ...] | None
) -> None:
    job = sent()
    begin(ledger, job, answer)
    read_abandoned(ledger.path, GONE, [launcher.record(job.job)])
    assert ended_soon(launcher) == (answer is not None)
