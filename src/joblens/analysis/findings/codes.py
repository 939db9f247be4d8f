"""Finding codes: every kind of finding (docs/findings.md has a section for each), and the finding about
redelivery.
"""

import enum

from joblens.model.delivery import FormerWorker
from joblens.model.jobs.job import Finding, Severity


class Code(enum.StrEnum):
    # why it ended
    EXIT_CODE = "exit-code"
    SIGNAL = "signal"
    TIMED_OUT = "timed-out"
    OUT_OF_MEMORY = "out-of-memory"
    PIDS_LIMIT = "pids-limit"
    CANCELLED = "cancelled"
    STOPPED_BY_SYSTEMD = "stopped-by-systemd"
    LOST = "lost"
    NOT_STARTED = "not-started"
    # what happened on the way
    CHILD_OUT_OF_MEMORY = "child-out-of-memory"
    LEFTOVERS = "leftovers"
    LEAK_SUSPECTED = "leak-suspected"
    TAKEN_UP_AGAIN = "taken-up-again"
    # what it had to wait for
    CPU_THROTTLED = "cpu-throttled"
    CPU_PRESSURE = "cpu-pressure"
    IO_PRESSURE = "io-pressure"
    MEMORY_PRESSURE = "memory-pressure"
    SWAPPED = "swapped"
    MAJOR_FAULTS = "major-faults"
    GPU_THROTTLED = "gpu-throttled"
    # time that went into starting
    SLOW_START = "slow-start"
    MANY_PROCESSES = "many-processes"
    SHORT_JOBS = "short-jobs"
    # what it asked for and what it used
    MEMORY_NEAR_LIMIT = "memory-near-limit"
    MEMORY_UNUSED = "memory-unused"
    CPUS_UNUSED = "cpus-unused"
    ONE_CORE_ONLY = "one-core-only"
    MOSTLY_WAITING = "mostly-waiting"
    GPU_UNUSED = "gpu-unused"
    GPU_IDLE = "gpu-idle"
    MORE_THAN_THERE_IS = "more-than-there-is"
    LIMIT_NOT_ENFORCED = "limit-not-enforced"
    # how far the numbers can be trusted
    LOWER_BOUNDS = "lower-bounds"
    SHARED = "shared-measurement"


def taken_up_again(fence: int, former: FormerWorker | None) -> tuple[Finding, ...]:
    """`fence`: 1 for the first worker that took it."""
    if former is None:
        return ()  # it has not run before
    what = "stopped before the job ended" if former.gave_back else "was lost while running the job"
    text = f"worker {former.name} {what}; this is attempt {fence}"
    advice = "if a second run does harm, submit it with --retry-lost never"
    return (Finding(Code.TAKEN_UP_AGAIN, Severity.WARNING, text, advice),)
