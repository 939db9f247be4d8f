"""How a job inside a Python program ended: told by its tracker, by an exception, and in the log."""

import logging
import sys
from typing import Any

from joblens.model.errors import InputError
from joblens.model.jobs.job import Outcome, Status

STATUSES = (Status.SUCCESS, Status.FAILED, Status.TIMEOUT, Status.ERROR)
REASONS = {
    Status.SUCCESS: "exited",
    Status.FAILED: "exited",
    Status.TIMEOUT: "timeout",
    Status.ERROR: "exception",
}
CODES = {Status.SUCCESS: 0, Status.FAILED: 1, Status.TIMEOUT: 124, Status.ERROR: 1}

logger = logging.getLogger("joblens.monitor")


class JobTracker:
    """What `track_job` hands out: says how the job ended when that is not plain success."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self.status = Status.SUCCESS
        self.returncode: int | None = None
        self.error: str | None = None
        self.result: Any = None
        self.record: dict[str, Any] = {}  # filled when the block is left

    def set_status(self, status: str, returncode: int | None = None, error: str | None = None) -> None:
        self.status, self.returncode, self.error = parse_status(status), returncode, error

    def set_result(self, result: Any) -> None:
        self.result = result


def parse_status(text: str) -> Status:
    try:
        status = Status(text)
    except ValueError:
        status = Status.LOST
    if status not in STATUSES:
        known = ", ".join(STATUSES)
        raise InputError(f"'{text}' is not a status a job can end with", hint=f"use one of {known}")
    return status


def verdict_on(error: BaseException) -> tuple[Status, int]:
    expired = getattr(sys.modules.get("subprocess"), "TimeoutExpired", TimeoutError)
    if isinstance(error, (TimeoutError, expired)):
        return Status.TIMEOUT, CODES[Status.TIMEOUT]
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        return (Status.FAILED if code else Status.SUCCESS), code
    return Status.ERROR, CODES[Status.ERROR]


def log_end(task_id: str, outcome: Outcome) -> None:
    detail = f" - Error: {outcome.error}" if outcome.error else ""
    if outcome.status is Status.SUCCESS:
        cpu_s = (outcome.usage.cpu_total_usec or 0) / 1e6
        logger.info(
            "Job %s completed successfully - Duration: %.2fs, CPU: %.2fs", task_id, outcome.duration_s, cpu_s
        )
    elif outcome.status is Status.TIMEOUT:
        logger.warning("Job %s timed out%s", task_id, detail)
    elif outcome.status is Status.FAILED:
        logger.error(
            "Job %s failed with return code %s - Duration: %.2fs%s",
            task_id,
            outcome.exit_code,
            outcome.duration_s,
            detail,
        )
    else:
        logger.error("Job %s encountered an error - Duration: %.2fs%s", task_id, outcome.duration_s, detail)
