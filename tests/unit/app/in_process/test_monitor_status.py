import logging
import subprocess

import pytest

from joblens.app.in_process.monitor import JobTracker, log_end, parse_status, verdict_on
from joblens.model.errors import InputError
from joblens.model.jobs.job import Outcome, Status, Usage


@pytest.mark.parametrize("text", ["success", "failed", "timeout", "error"])
def test_a_job_can_end_with_these(text: str) -> None:
    assert parse_status(text) == text


@pytest.mark.parametrize("text", ["", "ok", "SUCCESS", "running", "queued", "lost", "cancelled"])
def test_nothing_else_is_a_status_and_the_message_says_what_is(text: str) -> None:
    with pytest.raises(InputError, match="is not a status") as caught:
        parse_status(text)
    assert "success, failed, timeout, error" in caught.value.hint


def test_a_tracker_refuses_an_unknown_status_at_once() -> None:
    tracker = JobTracker("t")
    with pytest.raises(InputError):
        tracker.set_status("done")
    assert tracker.status is Status.SUCCESS


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ValueError("x"), (Status.ERROR, 1)),
        (KeyboardInterrupt(), (Status.ERROR, 1)),
        (TimeoutError("x"), (Status.TIMEOUT, 124)),
        (subprocess.TimeoutExpired("x", 1), (Status.TIMEOUT, 124)),
        (SystemExit(), (Status.SUCCESS, 0)),
        (SystemExit(3), (Status.FAILED, 3)),
        (SystemExit("message"), (Status.FAILED, 1)),
    ],
)
def test_an_exception_says_how_the_job_ended(error: BaseException, verdict: tuple[Status, int]) -> None:
    assert verdict_on(error) == verdict


def ended(status: Status, exit_code: int | None = 0, error: str | None = None) -> Outcome:
    return Outcome(
        status=status,
        ended_at_us=1,
        duration_s=330.123,
        exit_code=exit_code,
        error=error,
        usage=Usage(cpu_total_usec=297_790_000),
    )


@pytest.mark.parametrize(
    ("outcome", "level", "line"),
    [
        (ended(Status.SUCCESS), "INFO", "Job j completed successfully - Duration: 330.12s, CPU: 297.79s"),
        (ended(Status.FAILED, 1), "ERROR", "Job j failed with return code 1 - Duration: 330.12s"),
        (
            ended(Status.FAILED, 2, "no mesh"),
            "ERROR",
            "Job j failed with return code 2 - Duration: 330.12s - Error: no mesh",
        ),
        (ended(Status.TIMEOUT), "WARNING", "Job j timed out"),
        (
            ended(Status.ERROR, 1, "ValueError: x"),
            "ERROR",
            "Job j encountered an error - Duration: 330.12s - Error: ValueError: x",
        ),
    ],
)
def test_the_log_tells_how_it_ended(
    caplog: pytest.LogCaptureFixture, outcome: Outcome, level: str, line: str
) -> None:
    with caplog.at_level(logging.INFO, logger="joblens.monitor"):
        log_end("j", outcome)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [(level, line)]
