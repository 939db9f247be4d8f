"""What is swept away of slots whose owner is gone."""

import os
from pathlib import Path

from msgspec import structs

from joblens.agent.runtime.ownership import this_process
from joblens.agent.slots.marks import SlotMark, sweep_slots, write_mark
from joblens.model.jobs.job import Attempt, Job, Record, Status
from joblens.probes.host.machine_load import read_host

HOST = read_host()
GONE = structs.replace(this_process(HOST), start_ticks=1)  # another process had that number


def record_in(group: str) -> Record:
    attempt = Attempt(started_at_us=1, owner=GONE, groups={"unified": group})
    return Record(status=Status.RUNNING, job=Job(uuid="u", argv=("x",), created_at_us=1), attempt=attempt)


def marks(spool: Path) -> list[str]:
    return [name for name in os.listdir(spool) if name.endswith(".slot")]


def test_a_slot_of_a_job_that_nobody_has_brought_to_its_end_is_left_alone(tmp_path: Path) -> None:
    group = str(tmp_path / "group")
    write_mark(
        str(tmp_path), "slot-1", SlotMark(GONE, str(tmp_path / "files"), "cgroup-v2", {"unified": group})
    )
    sweep_slots(str(tmp_path), HOST, [record_in(group)])
    assert marks(tmp_path) == ["slot-1.slot"]


def test_other_slots_of_owners_that_are_gone_are_swept_away(tmp_path: Path) -> None:
    group = str(tmp_path / "group")
    write_mark(
        str(tmp_path), "slot-1", SlotMark(GONE, str(tmp_path / "files"), "cgroup-v2", {"unified": group})
    )
    sweep_slots(str(tmp_path), HOST, [record_in("another")])
    assert marks(tmp_path) == []
