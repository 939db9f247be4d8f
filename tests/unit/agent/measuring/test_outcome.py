import signal

import pytest
from msgspec.structs import replace

from joblens.agent.measuring.outcome import Ending, JobOutput, Origins, measured_outcome, verdict
from joblens.engine.life.job_life import EndCause
from joblens.model.jobs.job import NOTHING_REAPED, USAGE_NUMBERS, Attempt, Job, Owner, Record, Status, Usage
from joblens.model.jobs.sample import Sample


def ending(wait_status: int | None, cause: EndCause = EndCause.NONE) -> Ending:
    return Ending(
        wait_status=wait_status,
        cause=cause,
        duration_s=1.0,
        ended_at_us=1,
        leftovers=0,
        reaped=NOTHING_REAPED,
    )


def exited(code: int) -> int:
    return code << 8


KILLED = int(signal.SIGKILL)
JOB = Job(uuid="u", argv=("true",), created_at_us=0)


@pytest.mark.parametrize(
    ("wait_status", "cause", "oom_kills", "expected"),
    [
        (exited(0), EndCause.NONE, 0, (Status.SUCCESS, "exited", 0, None)),
        (exited(3), EndCause.NONE, 0, (Status.FAILED, "exited", 3, None)),
        (exited(0), EndCause.NONE, 2, (Status.SUCCESS, "exited", 0, None)),
        (KILLED, EndCause.NONE, 0, (Status.FAILED, "signal", 137, 9)),
        (KILLED, EndCause.NONE, None, (Status.FAILED, "signal", 137, 9)),
        (KILLED, EndCause.NONE, 1, (Status.FAILED, "out-of-memory", 137, 9)),
        (exited(1), EndCause.NONE, 1, (Status.FAILED, "out-of-memory", 1, None)),
        (KILLED, EndCause.MEMORY_LIMIT, None, (Status.FAILED, "out-of-memory", 137, 9)),
        (KILLED, EndCause.PIDS_LIMIT, None, (Status.FAILED, "limit", 137, 9)),
        (int(signal.SIGTERM), EndCause.TIMEOUT, 0, (Status.TIMEOUT, "timeout", 124, 15)),
        (exited(0), EndCause.TIMEOUT, 0, (Status.TIMEOUT, "timeout", 124, None)),
        (int(signal.SIGINT), EndCause.CANCELLED, 0, (Status.CANCELLED, "cancelled", 130, 2)),
        (exited(0), EndCause.CANCELLED, 0, (Status.CANCELLED, "cancelled", 0, None)),
        (None, EndCause.NONE, 0, (Status.LOST, "lost", None, None)),
        (KILLED | 0x80, EndCause.NONE, 0, (Status.FAILED, "signal", 137, 9)),  # left a core file
    ],
)
def test_how_a_job_ended(
    wait_status: int | None,
    cause: EndCause,
    oom_kills: int | None,
    expected: tuple[Status, str, int | None, int | None],
) -> None:
    outcome = verdict(ending(wait_status, cause), Usage(oom_kills=oom_kills), JOB)
    assert (outcome.status, outcome.reason, outcome.exit_code, outcome.signal) == expected
    assert (outcome.error is None) == (outcome.status is Status.SUCCESS)


def test_a_signal_without_a_name_has_its_number() -> None:
    assert "signal 50" in str(verdict(ending(50), Usage(), JOB).error)


def test_the_exit_code_of_a_time_out_is_the_jobs_own() -> None:
    job = Job(uuid="u", argv=("true",), created_at_us=0, timeout_exit_code=152)
    assert verdict(ending(15, EndCause.TIMEOUT), Usage(), job).exit_code == 152


def test_what_never_ran_has_used_nothing_that_anybody_knows() -> None:
    """Though its groups were there, and were read."""
    attempt = Attempt(
        started_at_us=1, owner=Owner(pid=1, start_ticks=1, boot_id="b", host="h"), accounting="cgroup-v2"
    )
    record = Record(status=Status.RUNNING, job=JOB, attempt=attempt)
    zeros = [Sample(at_us=at, elapsed_us=at, cpu_total_usec=0, io_write_bytes=0) for at in (1, 2)]
    refused = replace(ending(exited(125)), reaped=None, refusal="no such image")
    outcome = measured_outcome(record, refused, zeros, 2, Origins(), JobOutput())
    assert (outcome.status, outcome.reason) == (Status.ERROR, "not-started")
    assert [name for name in USAGE_NUMBERS if getattr(outcome.usage, name) is not None] == []
    assert outcome.usage.unknown["cpu_total_usec"] == "it was never started"


@pytest.mark.parametrize(
    ("wait_status", "cause", "tail", "error"),
    [
        (exited(3), EndCause.NONE, "step 1\nValueError: bad rate\n\n", "exit code 3: ValueError: bad rate"),
        (exited(3), EndCause.NONE, "\x1b[31mno room\x1b[0m\r\n", "exit code 3: no room"),
        (exited(3), EndCause.NONE, "login --password=hunter2hunter2\n", "exit code 3: login --password=***"),
        (exited(3), EndCause.NONE, " \n", "exit code 3"),
        (KILLED, EndCause.NONE, "working\n", "killed by signal 9 (SIGKILL): working"),
        (int(signal.SIGTERM), EndCause.TIMEOUT, "working\n", "timed out"),
        (exited(0), EndCause.NONE, "a warning\n", None),
    ],
)
def test_the_error_of_a_failure_has_the_last_line_it_wrote(
    wait_status: int, cause: EndCause, tail: str, error: str | None
) -> None:
    attempt = Attempt(started_at_us=1, owner=Owner(pid=1, start_ticks=1, boot_id="b", host="h"))
    record = Record(status=Status.RUNNING, job=JOB, attempt=attempt)
    printed = JobOutput(0, len(tail), lambda: tail)
    outcome = measured_outcome(record, ending(wait_status, cause), [], 0, Origins(), printed)
    assert outcome.error == error
