"""How a job on a queue is told: words of task queues, results, estimates, and figures of many together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from joblens.app.queue.task_results import (
    Expected,
    expected_of,
    most_at_once,
    parallel_form,
    progress_of,
    result_form,
    state_of,
    status_form,
    workflow_form,
)
from joblens.model.jobs.job import Artifact, Attempt, Job, Outcome, Owner, Record, Status, Usage

START_US = 1_763_208_000_000_000
SECOND = 1_000_000


def record(
    status: Status,
    *,
    duration_s: float = 2.0,
    started_s: float = 0.0,
    has_started: bool = True,
    outcome: dict[str, Any] | None = None,
    **job: Any,
) -> Record:
    start_us = START_US + round(started_s * SECOND)
    attempt = Attempt(started_at_us=start_us, owner=Owner("node1", 7, 8, "boot")) if has_started else None
    fields = {"tool": "fenicsx", "script": "poisson.py", "queue": "default", **job}
    usual = {
        "usage": Usage(cpu_total_usec=1_500_000, memory_peak_bytes=3 << 20),
        "exit_code": 0 if status is Status.SUCCESS else 1,
    }
    ended = Outcome(
        status=status,
        ended_at_us=start_us + round(duration_s * SECOND),
        duration_s=duration_s,
        **{**usual, **(outcome or {})},
    )
    return Record(
        status=status,
        number=5,
        job=Job(uuid="u" * 8, argv=("true",), created_at_us=START_US, **fields),
        attempt=attempt,
        outcome=ended if status.is_final else None,
    )


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (Status.RUNNING, "STARTED"),
        (Status.SUCCESS, "SUCCESS"),
        (Status.FAILED, "FAILURE"),
        (Status.TIMEOUT, "FAILURE"),
        (Status.ERROR, "FAILURE"),
        (Status.LOST, "FAILURE"),
        (Status.CANCELLED, "REVOKED"),
    ],
)
def test_states_have_the_words_of_task_queues(status: Status, state: str) -> None:
    assert state_of(record(status)) == state


def test_a_job_that_waits_is_pending_and_one_whose_worker_was_lost_is_to_be_retried() -> None:
    waiting = record(Status.QUEUED, has_started=False)
    assert state_of(waiting) == "PENDING"
    assert state_of(waiting, "node1-7") == "RETRY"


def test_a_failed_simulation_is_ready_and_failed_and_not_successful() -> None:
    status = status_form(record(Status.FAILED), now_us=START_US)
    assert (status["ready"], status["failed"], status["successful"]) == (True, True, False)


def test_a_cancelled_task_has_neither_failed_nor_succeeded() -> None:
    status = status_form(record(Status.CANCELLED), now_us=START_US)
    assert (status["ready"], status["failed"], status["successful"]) == (True, False, False)


def test_a_result_has_what_people_read_from_it() -> None:
    artifacts = (Artifact("out.h5", 12, "ab"), Artifact("big.bin", 1 << 40))
    outcome = {"stdout_tail": "x" * 3000 + "end", "artifacts": artifacts, "worker": "w1", "work_dir": "/w"}
    result = result_form(record(Status.SUCCESS, params={"mesh_size": 64}, outcome=outcome))
    assert result is not None
    assert result["status"] == "success"
    assert result["returncode"] == 0
    assert result["duration_seconds"] == 2.0
    assert result["resource_usage"]["cpu_total_seconds"] == 1.5
    assert result["resource_usage"]["memory_peak_mb"] == 3.0
    assert result["params"] == {"mesh_size": 64}
    assert len(result["stdout"]) == 1000
    assert result["stdout"].endswith("end")
    assert result["artifacts"] == [
        {"path": "out.h5", "bytes": 12, "sha256": "ab"},
        {"path": "big.bin", "bytes": 1 << 40, "sha256": None},
    ]
    assert (result["worker"], result["host"], result["work_dir"]) == ("w1", "node1", "/w")
    assert result["validation"] is None


def test_a_job_that_was_over_before_its_first_sample_has_a_profile_of_totals() -> None:
    result = result_form(record(Status.SUCCESS))
    assert result is not None
    assert result["detailed_profile"]["duration_seconds"] == 2.0
    assert result["detailed_profile"]["process_cpu"]["mean_percent"] == 75.0


def test_a_job_that_never_started_has_an_empty_profile() -> None:
    result = result_form(record(Status.CANCELLED, has_started=False))
    assert result is not None
    assert result["detailed_profile"] == {}


def test_there_is_no_result_before_the_end() -> None:
    assert result_form(record(Status.RUNNING)) is None


# ---- progress


@pytest.mark.parametrize(
    ("after_s", "percent"), [(0.0, 0.0), (3.0, 30.0), (9.99, 99.0), (10.0, None), (500.0, None)]
)
def test_progress_is_the_share_of_the_expected_time_and_unknown_beyond_it(
    after_s: float, percent: float | None
) -> None:
    now_us = START_US + round(after_s * SECOND)
    assert progress_of(record(Status.RUNNING), now_us, Expected(10.0, 3)) == percent


def test_progress_is_unknown_where_nothing_alike_has_run() -> None:
    assert progress_of(record(Status.RUNNING), START_US + SECOND, None) is None


def test_progress_is_zero_before_the_start_and_whole_at_the_end() -> None:
    assert progress_of(record(Status.QUEUED, has_started=False), START_US, None) == 0.0
    assert progress_of(record(Status.FAILED), START_US, None) == 100.0


def test_the_expected_time_comes_from_the_same_parameters_only() -> None:
    fine = {"mesh_size": 256}
    earlier = [
        record(Status.SUCCESS, duration_s=1.0, params={"mesh_size": 8}),
        record(Status.SUCCESS, duration_s=30.0, params=fine),
        record(Status.SUCCESS, duration_s=50.0, params=fine),
        record(Status.FAILED, duration_s=0.1, params=fine),
        record(Status.SUCCESS, duration_s=900.0, params=fine, script="heat.py"),
    ]
    assert expected_of(record(Status.RUNNING, params=fine), earlier) == Expected(40.0, 2)
    assert expected_of(record(Status.RUNNING, params={"mesh_size": 1}), earlier) is None
    assert expected_of(record(Status.RUNNING, tool="lammps"), earlier) is None


def test_the_expected_time_of_a_plain_command_comes_from_the_same_words() -> None:
    def plain(status: Status, *argv: str) -> Record:
        made = record(status, tool="sh", script="", params={}, duration_s=4.0)
        return replace(made, job=replace(made.job, argv=argv))

    earlier = [plain(Status.SUCCESS, "sh", "a.sh")]
    assert expected_of(plain(Status.RUNNING, "sh", "a.sh"), earlier) == Expected(4.0, 1)
    assert expected_of(plain(Status.RUNNING, "sh", "b.sh"), earlier) is None


# ---- many together


def test_a_workflow_counts_what_failed_as_failed_and_not_as_completed() -> None:
    records = [
        record(Status.SUCCESS),
        record(Status.FAILED),
        record(Status.CANCELLED),
        record(Status.RUNNING),
        record(Status.QUEUED),
        record(Status.QUEUED, has_started=False),
    ]
    form = workflow_form([status_form(each, now_us=START_US) for each in records])
    counts = {
        name: form[name] for name in ("total", "completed", "failed", "cancelled", "running", "pending")
    }
    assert counts == {"total": 6, "completed": 1, "failed": 1, "cancelled": 1, "running": 1, "pending": 2}
    assert not form["all_complete"]


def test_a_workflow_is_complete_when_all_tasks_are_over_and_successful_only_without_failures() -> None:
    form = workflow_form([status_form(record(s), now_us=START_US) for s in (Status.SUCCESS, Status.FAILED)])
    assert form["all_complete"]
    assert not form["all_successful"]


def test_efficiency_compares_with_what_really_ran_at_once() -> None:
    """Four tasks of 2 s, two at a time, the second pair a second late: 8 s of work in 5 s."""
    starts = (0.0, 0.0, 3.0, 3.0)
    form = parallel_form([record(Status.SUCCESS, started_s=start) for start in starts])
    assert form["max_concurrency"] == 2
    assert form["wall_time"] == pytest.approx(5.0)
    assert form["speedup"] == pytest.approx(1.6)
    assert form["efficiency"] == pytest.approx(0.8)
    assert form["speedup_limit"] == pytest.approx(4.0)
    assert form["average_cpus_busy"] == pytest.approx(1.2)


def test_figures_of_tasks_that_have_not_run_are_unknown_and_not_zero() -> None:
    form = parallel_form([record(Status.QUEUED, has_started=False)])
    assert (form["total_tasks"], form["pending"]) == (1, 1)
    for name in ("avg_duration", "max_duration", "wall_time", "speedup", "efficiency"):
        assert form[name] is None


def test_cpu_that_is_not_known_of_one_is_not_known_of_all() -> None:
    known, unknown = record(Status.SUCCESS), record(Status.SUCCESS, outcome={"usage": Usage()})
    assert parallel_form([known])["cpu_seconds"] == 1.5
    assert parallel_form([known, unknown])["cpu_seconds"] is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=30))
def test_the_most_at_once_is_the_most_at_any_start(spans: list[tuple[int, int]]) -> None:
    whole = [(float(start), float(start + length)) for start, length in spans]
    at_starts = [sum(a <= start < b for a, b in whole) for start, _ in whole]
    assert most_at_once(whole) == max(at_starts, default=0)


def test_a_task_that_never_began_took_no_time_and_made_no_progress() -> None:
    status = status_form(record(Status.CANCELLED, has_started=False, duration_s=0.0), now_us=START_US)
    assert status["ready"]
    assert (status["progress"], status["elapsed_seconds"]) == (None, None)
    assert status["result"]["duration_seconds"] is None
