"""Reasons why jobs wait, in words."""

from typing import Any

from msgspec.structs import replace

from joblens.app.server.queue import reason_of
from joblens.model.delivery import TicketStanding, WorkerInfo
from tests.builders.tickets import worker


def ticket(**fields: Any) -> TicketStanding:
    usual: dict[str, Any] = {
        "number": 7,
        "uuid": "u",
        "name": "train",
        "user": "me",
        "queue": "q",
        "waiting_since_us": 1,
        "is_ready": True,
        "position": 1,
    }
    return TicketStanding(**{**usual, **fields})


def busy(running: int, **fields: Any) -> WorkerInfo:
    return replace(worker(**fields), running=running)


def test_a_queue_without_a_worker_names_the_command_that_starts_one() -> None:
    assert reason_of(ticket(), []) == "no worker serves the queue q: start one with joblens worker --queues q"
    assert "--label gpu" in reason_of(ticket(queue="q:gpu"), [busy(0)])


def test_full_workers_are_counted() -> None:
    words = reason_of(ticket(position=3), [busy(2), busy(2, name="w2")])
    assert words == "2 before it; all 4 slots of 2 workers are taken"


def test_free_slots_go_to_jobs_before_it_first() -> None:
    assert reason_of(ticket(position=2), [busy(1)]) == "1 before it; 1 of 2 slots free"
    assert reason_of(ticket(), [busy(1)]).startswith("a worker takes it next")


def test_workers_of_other_users_do_not_count() -> None:
    assert "start one as me" in reason_of(ticket(), [busy(0, user="ana")])
    assert reason_of(ticket(), [busy(0, user="ana", any_user=True)]).startswith("a worker takes it next")


def test_a_job_after_another_says_so() -> None:
    assert "the job before it" in reason_of(ticket(is_ready=False, position=None), [busy(0)])


def test_a_lost_worker_is_named() -> None:
    words = reason_of(ticket(lost_worker="w9"), [busy(2)])
    assert words.startswith("requeued: worker w9 stopped")
