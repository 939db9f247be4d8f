"""How many rows a recipe's job had, also when it was gone on with, and what is kept of it."""

from typing import Any

import msgspec
import pytest

from joblens.analysis.recipes.columns import SeenEvent
from joblens.analysis.recipes.progress import PlannedOperator, PlannedWork
from joblens.analysis.recipes.snapshot import JobFacts, SnapshotFold
from joblens.model.recipes.snapshot import JobSnapshot

NAMES = ("clean_links_mapper", "document_deduplicator", "text_length_filter")
PARTITIONS = (0, 1)


class Job:
    """Two partitions of ten rows; links, deduplication, length. A second goes by with each event."""

    def __init__(self) -> None:
        operators = tuple(PlannedOperator(index, name, index == 1) for index, name in enumerate(NAMES))
        self.fold = SnapshotFold(PlannedWork(operators=operators, partition_ids=PARTITIONS))
        self.now = 0.0

    def tell(self, kind: str, partition: int | None = None, index: int | None = None, **fields: Any) -> None:
        self.now += 1.0
        name = None if index is None else NAMES[index]
        event = {"event_type": kind, "partition_id": partition, "operation_idx": index, **fields}
        written = {**event, "operation_name": name, "timestamp": self.now}
        self.fold.add(msgspec.convert(written, SeenEvent))

    def operate(self, partition: int | None, index: int, came: int, left: int) -> None:
        self.tell("op_start", partition, index)
        self.tell("op_complete", partition, index, input_rows=came, output_rows=left, duration=1.0)

    def decide(self, came: int, left: int) -> None:
        self.operate(None, 1, came, left)
        self.tell("checkpoint_save", None, 1, checkpoint_path="/job/partitions/masks_001.bin")
        self.tell("repartition_complete", None, 1)

    def load(self, partition: int, index: int, rows: int, path: str) -> None:
        self.tell("checkpoint_load", partition, index, checkpoint_path=path, metadata={"rows": rows})
        self.tell("partition_resume", partition, index)

    def finish(self, partition: int, left: int) -> None:
        self.tell("partition_complete", partition, input_rows=10, output_rows=left)

    def end(self, kind: str, status: str, came: int, left: int | None) -> None:
        counts = {"rows_in": came, "rows_out": left, "rejected_rows": 0}
        self.tell(kind, status=status, output_rows=left, metadata=counts)

    def look(self, *, is_alive: bool | None = False, **facts: Any) -> JobSnapshot:
        return self.fold.snapshot(JobFacts(job_id="job", is_alive=is_alive, **facts), self.now)


@pytest.fixture
def partial() -> Job:
    """The second partition failed."""
    job = Job()
    job.tell("job_start", process_id=7)
    job.tell("partition_start", 0)
    job.operate(0, 0, 10, 10)
    job.tell("partition_start", 1)
    job.tell("op_start", 1, 0)
    job.tell("partition_failed", 1, error_message="no memory")
    job.decide(10, 9)
    job.operate(0, 2, 9, 8)
    job.finish(0, 8)
    job.end("job_failed", "partial", 10, 8)
    return job


def gone_on_with(job: Job) -> Job:
    """The first partition's results are all there still; nobody knows before each of them is looked at."""
    job.tell("job_restart", process_id=8)
    job.load(0, 0, 10, "/job/checkpoints/partition_000000/stage_000.arrow")
    job.tell("partition_start", 1)
    job.operate(1, 0, 10, 10)
    job.decide(20, 17)
    job.load(0, 2, 8, "/job/partitions/partition_000000.jsonl")
    job.finish(0, 8)
    job.operate(1, 2, 8, 7)
    job.finish(1, 7)
    job.end("job_complete", "completed", 20, 15)
    return job


def test_a_partial_job_has_the_rows_of_the_partitions_that_came_to_its_end(partial: Job) -> None:
    snapshot = partial.look()
    assert snapshot.overall_status.value == "partial"
    assert (snapshot.rows_in, snapshot.rows_out) == (10, 8)


def test_a_partial_job_that_was_gone_on_with_has_all_rows(partial: Job) -> None:
    snapshot = gone_on_with(partial).look()
    assert (snapshot.rows_in, snapshot.rows_out) == (20, 15)
    assert [(one.input_rows, one.output_rows) for one in snapshot.operators] == [(20, 20), (20, 17), (17, 15)]
    assert snapshot.operation_statuses["p0_op2_text_length_filter"].duration == 1.0


def test_states_that_are_removed_at_the_end_are_not_kept(partial: Job) -> None:
    assert partial.look().checkpointed_operations == 1
    assert gone_on_with(partial).look().checkpointed_operations == 0


def test_rows_that_were_asked_to_a_process_that_died_are_known_from_their_neighbours() -> None:
    job = Job()
    job.tell("job_start", process_id=7)
    job.tell("partition_creation_complete", 0, metadata={"sample_count": 10})
    job.tell("job_restart", process_id=8)  # op_complete was lost; its result was not
    job.load(0, 0, 9, "/job/checkpoints/partition_000000/op_000_clean_links_mapper.arrow")
    snapshot = job.look(is_alive=True)
    assert (snapshot.operators[0].input_rows, snapshot.operators[0].output_rows) == (10, 9)
    assert snapshot.checkpointed_operations == 1


def test_what_was_reported_before_a_kill_holds_when_its_result_is_found() -> None:
    job = Job()
    job.tell("job_start", process_id=7)
    job.tell("partition_start", 0)
    job.operate(0, 0, 10, 9)  # nothing was kept, as far as anybody told
    job.tell("job_restart", process_id=8)
    assert job.look(is_alive=True).completed_operations == 0
    job.load(0, 0, 9, "/job/checkpoints/partition_000000/stage_000.arrow")
    snapshot = job.look(is_alive=True)
    assert snapshot.operation_statuses["p0_op0_clean_links_mapper"].input_rows == 10
    assert (snapshot.completed_operations, snapshot.checkpointed_operations) == (1, 0)


def test_a_sum_with_something_missing_is_none() -> None:
    job = Job()
    job.tell("job_start", process_id=7)
    job.operate(0, 0, 10, 10)
    job.finish(1, 10)  # nobody told how many rows came to its first operator
    assert job.look(is_alive=True).operators[0].input_rows is None


def test_nothing_has_left_a_job_that_failed(partial: Job) -> None:
    partial.tell("job_restart", process_id=8)
    partial.end("job_failed", "failed", 20, None)
    snapshot = partial.look(summary={"rows_out": None})
    assert (snapshot.overall_status.value, snapshot.rows_out) == ("failed", None)


def test_a_job_without_events_has_the_rows_of_its_summary() -> None:
    summary = {"status": "completed", "rows_in": 20, "rows_out": 15, "rejected_rows": 2}
    snapshot = Job().look(summary=summary)
    assert (snapshot.rows_in, snapshot.rows_out, snapshot.rejected_rows) == (20, 15, 2)


def test_a_global_operator_that_is_reported_again_took_the_time_it_took(partial: Job) -> None:
    partial.tell("job_restart", process_id=8)
    partial.tell("op_complete", None, 1, input_rows=10, output_rows=9)
    operator = partial.look(is_alive=True).operators[1]
    assert (operator.duration_seconds, operator.output_rows) == (1.0, 9)


def test_partitions_before_a_global_operator_wait() -> None:
    job = Job()
    job.tell("job_start", process_id=7)
    for partition in PARTITIONS:
        job.tell("partition_start", partition)
    job.operate(0, 0, 10, 10)
    snapshot = job.look(is_alive=True)
    assert (snapshot.in_progress_partitions, snapshot.waiting_partitions) == (2, 1)
    assert [one.is_waiting for one in snapshot.partition_statuses.values()] == [True, False]
    job.operate(1, 0, 10, 10)
    job.decide(20, 20)
    assert job.look(is_alive=True).waiting_partitions == 0


def test_a_job_whose_plan_is_there_can_be_gone_on_with_whatever_is_kept(partial: Job) -> None:
    assert not partial.look(has_checkpoints=False).resumable
    assert partial.look(has_checkpoints=False, is_resumable=True).resumable
    assert not gone_on_with(partial).look(is_resumable=True).resumable  # nothing is left to do


def test_a_job_that_died_on_a_full_disk_is_reported_as_such(partial: Job) -> None:
    partial.tell("job_restart", process_id=8)
    assert partial.look().error_message is None
    assert "no space left" in (partial.look(is_disk_full=True).error_message or "")


def test_nothing_runs_that_never_started_and_nothing_is_done_of_it() -> None:
    job = Job()
    for partition in PARTITIONS:
        job.operate(partition, 0, 10, 10)
        job.operate(partition, 2, 10, 10)
    job.operate(None, 1, 20, 20)
    snapshot = job.look(is_alive=None)
    assert (snapshot.overall_status.value, snapshot.overall_fraction) == ("not_started", 0.0)
    running = job.look(is_alive=True)
    assert running.operation_fraction == 1.0
    assert running.overall_fraction < 1.0  # its partitions are not written yet


def test_an_event_of_an_operator_without_a_name_makes_none() -> None:
    job = Job()
    for kind in ("op_start", "op_complete", "op_failed", "checkpoint_save", "repartition_complete"):
        job.tell(kind)
    assert len(job.look().operators) == len(NAMES)


STATE = "/job/checkpoints/partition_000000/stage_000.arrow"


def test_rejected_rows_of_a_job_that_was_stopped_are_those_that_its_partitions_reported() -> None:
    job = Job()
    job.tell("job_start", process_id=7)
    job.tell("partition_start", 0)
    job.tell("rows_rejected", 0, metadata={"rejected_rows": 2})
    job.operate(0, 0, 10, 10)
    job.tell("checkpoint_save", 0, 0, checkpoint_path=STATE)
    assert job.look().rejected_rows == 2  # killed
    job.end("job_stopped", "stopped", 0, None)
    assert job.look(summary={"status": "stopped", "rejected_rows": 0}).rejected_rows == 2
    job.tell("job_restart", process_id=8)
    job.tell("checkpoint_load", 0, 0, checkpoint_path=STATE, metadata={"rows": 10, "rejected_rows": 2})
    job.tell("partition_resume", 0, 0)
    assert job.look(is_alive=True).rejected_rows == 2


def test_the_state_of_a_partition_that_waits_is_kept_until_it_has_come_further() -> None:
    job = Job()
    job.tell("job_start", process_id=7)
    job.tell("partition_start", 0)
    job.operate(0, 0, 10, 10)
    job.tell("checkpoint_save", 0, 0, checkpoint_path=STATE)
    stopped = job.look()
    assert (stopped.checkpointed_operations, stopped.last_checkpoint_time) == (1, job.now)
    job.tell("job_restart", process_id=8)
    job.load(0, 0, 10, STATE)
    assert job.look(is_alive=True).checkpointed_operations == 1
    job.decide(10, 9)
    job.operate(0, 2, 9, 8)
    job.finish(0, 8)
    assert [each.checkpointed for each in job.look(is_alive=True).operators] == [0, 1, 0]


def test_a_partition_that_waits_has_done_its_share_of_what_is_planned() -> None:
    job = Job()
    job.tell("job_start", process_id=7)
    job.tell("partition_start", 0)
    job.operate(0, 0, 10, 10)
    assert job.look(is_alive=True).partition_statuses[0].fraction == pytest.approx(1 / 3)
    job.decide(10, 9)
    assert job.look(is_alive=True).partition_statuses[0].fraction == pytest.approx(2 / 3)
