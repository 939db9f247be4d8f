"""Of what a batch says about a job, only what was written under the highest fence is left."""

from joblens.model.jobs.details import Details, ThreadTable
from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Status
from joblens.model.jobs.sample import Sample
from joblens.model.writes import DetailsTaken, JobEnded, JobQueued, JobStarted, SamplesTaken, Write
from joblens.stores.sql.batch import gather

JOB = Job(uuid="a", argv=("true",), created_at_us=1)
SAMPLES = (Sample(at_us=1, elapsed_us=1),)


def _started(fence: int) -> JobStarted:
    return JobStarted("a", Attempt(number=fence, started_at_us=fence, owner=Owner("h", 1, 2, "b")), fence)


def _ended(status: Status, fence: int) -> JobEnded:
    return JobEnded("a", Outcome(status=status, ended_at_us=5, duration_s=1.0), fence)


def test_a_later_claim_makes_all_that_an_earlier_one_wrote_void() -> None:
    table = Details(threads=ThreadTable(at_us=1, threads=(), seen=0, cpu_usec=0))
    writes: list[Write] = [
        JobQueued(JOB),
        _started(1),
        SamplesTaken("a", 0, SAMPLES, 1),
        DetailsTaken("a", table, 1),
        _ended(Status.FAILED, 1),
        _started(2),
    ]
    change = gather(writes)["a"]
    assert change.job == JOB
    assert (change.fence, change.outcome, change.samples, change.details) == (2, None, {}, None)
    assert change.attempt is not None
    assert change.attempt.number == 2


def test_what_an_earlier_claim_wrote_late_is_ignored() -> None:
    writes: list[Write] = [_started(2), _ended(Status.SUCCESS, 2), _started(1), _ended(Status.FAILED, 1)]
    change = gather([*writes, SamplesTaken("a", 3, SAMPLES, 1)])["a"]
    assert change.outcome is not None
    assert (change.outcome.status, change.fence, change.samples) == (Status.SUCCESS, 2, {})
