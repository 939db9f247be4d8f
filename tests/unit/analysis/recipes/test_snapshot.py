"""Where a recipe's job stands, folded from its events."""

from itertools import count
from typing import Any

import msgspec
import pytest

from joblens.analysis.recipes.columns import SeenEvent
from joblens.analysis.recipes.progress import (
    PlannedOperator,
    PlannedWork,
    planned_by_names,
    planned_by_nodes,
)
from joblens.analysis.recipes.snapshot import JobFacts, SnapshotFold
from joblens.model.recipes.snapshot import JobSnapshot, ProcessingStatus

NAMES = ("clean_links_mapper", "text_length_filter", "words_num_filter")
NOW = 1_000.0


class Log:
    """A job's events, a second apart."""

    def __init__(self, planned: PlannedWork | None = None) -> None:
        self.fold = SnapshotFold(planned)
        self._times = count(1)

    def tell(self, event_type: str, **fields: Any) -> None:
        written = {"event_type": event_type, "timestamp": float(next(self._times)), **fields}
        self.fold.add(msgspec.convert(written, SeenEvent))

    def op(self, event_type: str, partition: int | None, index: int, **fields: Any) -> None:
        self.tell(
            event_type, partition_id=partition, operation_idx=index, operation_name=NAMES[index], **fields
        )

    def run_op(self, partition: int, index: int, *, is_saved: bool = False, **fields: Any) -> None:
        self.op("op_start", partition, index)
        self.op("op_complete", partition, index, **fields)
        if is_saved:
            self.op("checkpoint_save", partition, index)

    def snapshot(self, *, is_alive: bool | None = True, **facts: Any) -> JobSnapshot:
        return self.fold.snapshot(JobFacts(job_id="job", is_alive=is_alive, **facts), NOW)


@pytest.fixture
def planned() -> PlannedWork:
    operators = tuple(PlannedOperator(index, name) for index, name in enumerate(NAMES))
    return PlannedWork(operators=operators, partition_ids=(0, 1))


@pytest.fixture
def log(planned: PlannedWork) -> Log:
    log = Log(planned)
    log.tell("job_start", process_id=7)
    return log


def test_a_job_without_events_has_not_started(planned: PlannedWork) -> None:
    snapshot = Log(planned).snapshot(is_alive=None)
    assert snapshot.overall_status is ProcessingStatus.NOT_STARTED
    assert (snapshot.completed_operations, snapshot.total_operations) == (0, 6)


def test_a_process_that_is_gone_before_its_first_word_was_killed(planned: PlannedWork) -> None:
    assert Log(planned).snapshot(is_alive=False).overall_status is ProcessingStatus.KILLED


def test_progress_is_against_what_is_planned_not_against_what_was_seen(log: Log) -> None:
    log.tell("partition_start", partition_id=0)
    log.run_op(0, 0)
    snapshot = log.snapshot()
    assert snapshot.overall_status is ProcessingStatus.IN_PROGRESS
    assert (snapshot.completed_operations, snapshot.total_operations) == (1, 6)
    assert snapshot.overall_fraction == pytest.approx(1 / 6)


def test_an_operation_with_a_checkpoint_counts_as_done(log: Log) -> None:
    log.run_op(0, 0, is_saved=True)
    snapshot = log.snapshot()
    assert snapshot.completed_operations == snapshot.checkpointed_operations == 1
    assert snapshot.resumable
    assert snapshot.operation_statuses["p0_op0_clean_links_mapper"].status is ProcessingStatus.CHECKPOINTED


def test_checkpoints_that_are_not_on_disk_any_more_make_no_job_resumable(log: Log) -> None:
    log.run_op(0, 0, is_saved=True)
    assert not log.snapshot(has_checkpoints=False).resumable


def test_a_job_whose_process_is_gone_without_a_word_was_killed(log: Log) -> None:
    log.tell("partition_start", partition_id=0)
    log.op("op_start", 0, 0)
    snapshot = log.snapshot(is_alive=False)
    assert snapshot.overall_status is ProcessingStatus.KILLED
    assert snapshot.in_progress_partitions == 0
    assert snapshot.partition_statuses[0].status is ProcessingStatus.INTERRUPTED
    assert snapshot.operation_statuses["p0_op0_clean_links_mapper"].status is ProcessingStatus.INTERRUPTED
    assert snapshot.job_end_time is None
    assert snapshot.total_duration == 2.0  # up to its last word


def test_a_summary_tells_how_a_job_ended_that_never_said_it(log: Log) -> None:
    assert log.snapshot(is_alive=False, summary={"status": "failed"}).overall_status == "failed"
    assert log.snapshot(is_alive=False, summary={"status": "running"}).overall_status == "killed"


def test_what_ran_when_a_partition_failed_is_what_failed(log: Log) -> None:
    log.tell("partition_start", partition_id=0)
    log.run_op(0, 0)
    log.op("op_start", 0, 1)
    log.tell("partition_failed", partition_id=0, error_message="no memory")
    snapshot = log.snapshot(is_alive=False)
    assert snapshot.overall_status is ProcessingStatus.FAILED
    assert snapshot.error_message == "no memory"
    assert snapshot.partition_statuses[0].failed_operations == ("text_length_filter",)
    assert snapshot.failed_operations == 1


def test_a_partition_that_is_tried_again_is_not_failed_any_more(log: Log) -> None:
    log.tell("partition_start", partition_id=0)
    log.run_op(0, 0, is_saved=True)
    log.run_op(0, 1)
    log.op("op_failed", 0, 2, error_message="bad luck")
    log.tell("partition_retry", partition_id=0, retry_count=1)
    snapshot = log.snapshot()
    assert (snapshot.failed_operations, snapshot.failed_partitions, snapshot.retries) == (0, 0, 1)
    assert snapshot.completed_operations == 1  # the one that is kept; the other is made again
    assert snapshot.partition_statuses[0].retry_count == 1


def test_rows_rejected_by_an_attempt_that_failed_are_not_counted_twice(log: Log) -> None:
    for _ in range(2):
        log.tell("partition_start", partition_id=0)
        log.op("op_start", 0, 0)
        log.op("rows_rejected", 0, 0, metadata={"rejected_rows": 3})
        log.tell("partition_retry", partition_id=0)
    log.tell("partition_start", partition_id=0)
    log.op("op_start", 0, 0)
    log.op("rows_rejected", 0, 0, metadata={"rejected_rows": 3})
    log.op("op_complete", 0, 0, metadata={"rejected_rows": 3})
    snapshot = log.snapshot()
    assert snapshot.rejected_rows == 3
    assert snapshot.operators[0].rejected_rows == 3


def test_a_job_that_ended_without_some_partitions_is_partial(log: Log) -> None:
    log.tell("partition_complete", partition_id=0)
    log.tell("partition_failed", partition_id=1, error_message="no")
    log.tell("job_complete")
    snapshot = log.snapshot(is_alive=False)
    assert snapshot.overall_status is ProcessingStatus.PARTIAL
    assert snapshot.overall_fraction < 1
    assert snapshot.error_message == "no"


def test_a_failed_end_may_say_that_it_is_partial(log: Log) -> None:
    log.tell("job_failed", status="partial", error_message="1 of 2 partitions failed")
    assert log.snapshot().overall_status is ProcessingStatus.PARTIAL


def test_a_stopped_job_is_stopped(log: Log) -> None:
    log.tell("job_stopped", status="stopped")
    assert log.snapshot(is_alive=False).overall_status is ProcessingStatus.STOPPED


def test_a_complete_job_has_done_all_that_was_planned(log: Log) -> None:
    log.tell("job_complete", status="completed", output_path="out.jsonl")
    snapshot = log.snapshot(is_alive=False)
    assert snapshot.overall_status is ProcessingStatus.COMPLETED
    assert snapshot.completed_operations == snapshot.total_operations == 6
    assert snapshot.completed_partitions == 2
    assert snapshot.export_path == "out.jsonl"


def test_a_job_that_is_gone_on_with_has_lost_what_was_not_kept(log: Log) -> None:
    log.tell("partition_start", partition_id=0)
    log.run_op(0, 0, is_saved=True)
    log.run_op(0, 1)
    log.op("op_start", 0, 2)
    log.tell("job_restart", process_id=8)
    snapshot = log.snapshot()
    assert snapshot.runs == 2
    assert snapshot.completed_operations == 1
    assert snapshot.partition_statuses[0].status is ProcessingStatus.NOT_STARTED


def test_the_time_between_two_runs_is_not_counted(log: Log) -> None:
    log.tell("partition_start", partition_id=0)  # at 2
    log.fold.add(SeenEvent("job_restart", 500.0, process_id=8))
    log.fold.add(SeenEvent("job_complete", 510.0))
    snapshot = log.snapshot(is_alive=False)
    assert (snapshot.job_start_time, snapshot.job_end_time, snapshot.total_duration) == (1.0, 510.0, 11.0)


def test_a_start_that_is_reported_twice_by_the_same_process_is_one_run(log: Log) -> None:
    log.tell("job_start", process_id=7)
    assert log.snapshot().runs == 1


def test_a_checkpoint_that_is_loaded_tells_what_is_done(log: Log) -> None:
    log.tell("job_restart", process_id=8)
    log.tell("checkpoint_load", partition_id=1, operation_idx=1, operation_name="op_0001")
    snapshot = log.snapshot()
    assert snapshot.partition_statuses[1].completed_operations == NAMES[:2]
    assert snapshot.partition_statuses[1].checkpointed_operations == NAMES[1:2]
    assert snapshot.partition_statuses[0].checkpointed_operations == ()


def test_rows_and_resources_are_summed_over_partitions(log: Log) -> None:
    used = {"cpu_seconds": 1.5, "memory_peak_bytes": 100, "read_bytes": 10, "written_bytes": 20}
    log.run_op(0, 1, duration=2.0, input_rows=100, output_rows=80, metadata={"resources": used})
    log.run_op(1, 1, duration=2.0, input_rows=300, output_rows=220, metadata={"resources": used})
    operator = log.snapshot().operators[1]
    assert (operator.input_rows, operator.output_rows, operator.keep_rate) == (400, 300, 0.75)
    assert (operator.duration_seconds, operator.rows_per_second) == (4.0, 100.0)
    assert (operator.cpu_seconds, operator.memory_peak_bytes) == (3.0, 100)
    assert (operator.read_bytes, operator.written_bytes) == (20, 40)


def test_an_attempt_that_is_forgotten_has_used_what_it_used_but_made_no_rows(log: Log) -> None:
    log.run_op(0, 0, input_rows=100, output_rows=80, metadata={"resources": {"cpu_seconds": 2.0}})
    log.tell("partition_retry", partition_id=0)
    operator = log.snapshot().operators[0]
    assert (operator.input_rows, operator.cpu_seconds, operator.completed) == (None, 2.0, 0)


def test_time_left_is_worked_out_from_what_this_run_has_done(log: Log) -> None:
    log.run_op(0, 0)
    assert log.snapshot().eta_seconds == pytest.approx((NOW - 1.0) * 5)


def test_a_snapshot_does_not_change_when_the_job_goes_on(log: Log) -> None:
    log.run_op(0, 0)
    before = log.snapshot()
    log.run_op(0, 1)
    log.tell("partition_start", partition_id=9)
    assert list(before.operation_statuses) == ["p0_op0_clean_links_mapper"]
    assert 9 not in before.partition_statuses
    assert log.snapshot().completed_operations == 2


def test_a_global_operator_is_one_operation_and_finishes_what_was_before_it() -> None:
    operators = (
        PlannedOperator(0, NAMES[0]),
        PlannedOperator(1, NAMES[1], is_global=True),
        PlannedOperator(2, NAMES[2]),
    )
    log = Log(PlannedWork(operators=operators, partition_ids=(0, 1)))
    log.tell("job_start")
    log.op("op_start", None, 1)
    assert log.snapshot().total_operations == 5
    log.op("repartition_complete", None, 1, duration=1.0, input_rows=10, output_rows=9)
    snapshot = log.snapshot()
    assert snapshot.completed_operations == 3
    assert snapshot.operation_statuses["global_op1_text_length_filter"].output_rows == 9
    assert snapshot.operators[1].is_global


class TestIndexesWithinAGroup:
    """DataJuicer counts operators from the last checkpoint on: under every_op all of them have index 0."""

    def test_names_tell_which_operator_is_meant(self) -> None:
        log = Log(planned_by_names(NAMES))
        log.tell("job_start")
        for name in NAMES:
            log.tell("op_start", partition_id=0, operation_idx=0, operation_name=name)
            log.tell("op_complete", partition_id=0, operation_idx=0, operation_name=name)
        assert list(log.snapshot().operation_statuses) == [f"p0_op{n}_{name}" for n, name in enumerate(NAMES)]

    def test_an_operator_that_is_there_twice_is_taken_in_order(self) -> None:
        log = Log(planned_by_names(["a_mapper", "b_filter", "a_mapper"]))
        log.tell("job_start")
        for name in ("a_mapper", "b_filter", "a_mapper"):
            log.tell("op_start", partition_id=0, operation_idx=0, operation_name=name)
            log.tell("op_complete", partition_id=0, operation_idx=0, operation_name=name)
        statuses = log.snapshot().operation_statuses
        assert list(statuses) == ["p0_op0_a_mapper", "p0_op1_b_filter", "p0_op2_a_mapper"]

    def test_from_the_first_global_operator_on_there_is_one_partition(self) -> None:
        nodes = [f"op_00{n + 1}_{name}_partition_{p}" for p in (0, 1) for n, name in enumerate(NAMES)]
        planned = planned_by_nodes([*nodes, "sg_001_text_length_filter"])
        assert [operator.is_global for operator in planned.operators] == [False, True, True]
        assert planned.partition_ids == (0, 1)

    def test_global_operators_are_done_when_the_job_is_not_when_it_says_so(self) -> None:
        log = Log(
            planned_by_nodes(
                ["op_001_a_mapper_partition_0", "op_002_b_filter_partition_0", "sg_001_b_filter"]
            )
        )
        log.tell("job_start")
        log.tell("op_start", partition_id=0, operation_idx=0, operation_name="b_filter")
        log.tell("op_complete", partition_id=0, operation_idx=0, operation_name="b_filter")
        assert log.snapshot().operators[1].completed == 0
        log.tell("job_complete")
        assert log.snapshot().operators[1].completed == 1
