"""Every view of a record says which attempt it is, of its run and under another worker, beyond the first."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Record, RunLink, Status
from joblens.views.jobs.history import render_history
from joblens.views.jobs.labels import attempt_of, name_with_attempt
from joblens.views.jobs.running import render_running
from joblens.views.jobs.show import render_show
from joblens.views.text.style import PLAIN

NOW_US = 2_000_000


def _record(*, run_attempt: int = 1, number: int = 1) -> Record:
    link = RunLink(run_uuid="r", index=0, attempt=run_attempt)
    job = Job(uuid="0a" * 16, argv=("true",), created_at_us=1, name="train", run=link)
    attempt = Attempt(number=number, started_at_us=1, owner=Owner("host", 1, 1, "boot"))
    return Record(job=job, attempt=attempt, status=Status.RUNNING, number=7)


def _ended(record: Record) -> Record:
    outcome = Outcome(status=Status.SUCCESS, ended_at_us=NOW_US, duration_s=1.0, exit_code=0)
    return replace(record, status=Status.SUCCESS, outcome=outcome)


def test_attempts_of_the_run_and_lost_workers_add_up() -> None:
    assert attempt_of(_record()) == 1
    assert attempt_of(_record(run_attempt=2)) == 2
    assert attempt_of(_record(number=2)) == 2
    assert attempt_of(_record(run_attempt=2, number=3)) == 4
    assert name_with_attempt(_record()) == "train"


VIEWS: dict[str, Callable[[Record], list[str]]] = {
    "list": lambda one: render_running([one], now_us=NOW_US, width=200, paint=PLAIN),
    "history": lambda one: render_history([_ended(one)], now_us=NOW_US, width=200, paint=PLAIN),
    "show": lambda one: render_show(_ended(one), [], now_us=NOW_US, width=100, paint=PLAIN),
}


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_a_view_says_so(view: str) -> None:
    for again in (_record(run_attempt=2), _record(number=2)):
        assert "train (attempt 2)" in "\n".join(VIEWS[view](again))
    assert "attempt" not in "\n".join(VIEWS[view](_record()))
