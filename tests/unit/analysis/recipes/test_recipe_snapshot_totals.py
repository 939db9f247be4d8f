"""Totals that are kept up to date event by event are those that counting anew would give."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from joblens.analysis.recipes.columns import SeenEvent
from joblens.analysis.recipes.progress import PlannedOperator, PlannedWork
from joblens.analysis.recipes.snapshot import JobFacts, SnapshotFold
from joblens.model.recipes.snapshot import JobSnapshot, ProcessingStatus

NAMES = ("a_mapper", "b_filter", "c_deduplicator", "d_filter")
PLANNED = PlannedWork(
    operators=tuple(PlannedOperator(index, name, index == 2) for index, name in enumerate(NAMES)),
    partition_ids=(0, 1, 2),
)
DONE = (ProcessingStatus.COMPLETED, ProcessingStatus.CHECKPOINTED)

_of_job = st.sampled_from(["job_start", "job_restart", "job_complete", "job_failed", "job_stopped"]).map(
    lambda kind: {"event_type": kind}
)
_of_partition = st.builds(
    lambda kind, partition: {"event_type": kind, "partition_id": partition},
    st.sampled_from(
        ["partition_start", "partition_complete", "partition_failed", "partition_retry", "partition_resume"]
    ),
    st.integers(0, 3),
)
_of_operator = st.builds(
    lambda kind, index, partition, rows: {
        "event_type": kind,
        "operation_idx": index,
        "operation_name": NAMES[index],
        "partition_id": None if index == 2 else partition,
        "input_rows": rows,
        "output_rows": rows // 2,
        "metadata": {"rejected_rows": 1},
    },
    st.sampled_from(
        ["op_start", "op_complete", "op_failed", "checkpoint_save", "checkpoint_load", "rows_rejected"]
    ),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 100),
)
_logs = st.lists(_of_operator | _of_operator | _of_partition | _of_job, max_size=60)


def fold(events: list[dict[str, Any]]) -> JobSnapshot:
    folded = SnapshotFold(PLANNED)
    for number, event in enumerate(events):
        folded.add(msgspec.convert({**event, "timestamp": float(number)}, SeenEvent))
    return folded.snapshot(JobFacts(job_id="job", is_alive=True), 1000.0)


@given(_logs)
def test_counts_of_operations_are_those_of_the_table(events: list[dict[str, Any]]) -> None:
    snapshot = fold(events)
    statuses = [one.status for one in dict(snapshot.operation_statuses).values()]
    assert snapshot.completed_operations == sum(status in DONE for status in statuses)
    assert snapshot.checkpointed_operations == statuses.count(ProcessingStatus.CHECKPOINTED)
    assert snapshot.failed_operations == statuses.count(ProcessingStatus.FAILED)
    assert len(snapshot.operation_statuses) == len(statuses)
    assert snapshot.completed_operations <= snapshot.total_operations


@given(_logs)
def test_counts_of_partitions_are_those_of_the_table(events: list[dict[str, Any]]) -> None:
    snapshot = fold(events)
    statuses = [one.status for one in dict(snapshot.partition_statuses).values()]
    assert snapshot.completed_partitions == statuses.count(ProcessingStatus.COMPLETED)
    assert snapshot.failed_partitions == statuses.count(ProcessingStatus.FAILED)
    assert snapshot.total_partitions == len(statuses)


@given(_logs)
def test_rows_of_operators_are_those_of_their_operations(events: list[dict[str, Any]]) -> None:
    snapshot = fold(events)
    operations = list(dict(snapshot.operation_statuses).values())
    for operator in snapshot.operators:
        mine = [one for one in operations if one.operation_idx == operator.operation_idx]
        rows = [one.input_rows for one in mine if one.status in DONE]
        known = [number for number in rows if number is not None]
        assert operator.input_rows == (sum(known) if rows and len(known) == len(rows) else None)
        assert operator.completed == sum(one.status in DONE for one in mine)
        assert operator.in_progress == sum(one.status is ProcessingStatus.IN_PROGRESS for one in mine)


@given(_logs, st.integers(0, 60))
def test_a_snapshot_in_between_changes_nothing(events: list[dict[str, Any]], at: int) -> None:
    folded = SnapshotFold(PLANNED)
    for number, event in enumerate(events):
        if number == at:
            folded.snapshot(JobFacts(job_id="job", is_alive=True), 500.0)
        folded.add(msgspec.convert({**event, "timestamp": float(number)}, SeenEvent))
    snapshot = folded.snapshot(JobFacts(job_id="job", is_alive=True), 1000.0)
    whole = fold(events)
    assert dict(snapshot.operation_statuses) == dict(whole.operation_statuses)
    assert dict(snapshot.partition_statuses) == dict(whole.partition_statuses)
    assert snapshot.operators == whole.operators
