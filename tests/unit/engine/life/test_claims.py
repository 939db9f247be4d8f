"""What becomes of a claim, event by event."""

from msgspec.structs import replace

from joblens.engine.life import claim_events as on
from joblens.engine.life.held_claim import Phase
from joblens.engine.life.worker_capacity import Demand
from joblens.model.delivery import Renewal
from joblens.model.jobs.job import Requirements, RetryLost
from tests.unit.engine.life.claim_builders import LEASE_S, PLAIN, Worker, claim_of, nothing, record_of

A = on.Message("a", nothing)
B = on.Message("b", nothing)


def phase(worker: Worker, uuid: str = "a") -> Phase | None:
    held = worker.claims.get(uuid)
    return None if held is None else held.phase


def running(worker: Worker, uuid: str = "a", fence: int = 1) -> Worker:
    started = worker.waiting(uuid, fence)
    assert [one.uuid for one in started if isinstance(one, on.Start)] == [uuid]
    return worker


def recorded(worker: Worker, uuid: str = "a") -> Worker:
    running(worker, uuid)
    worker.do(on.Ended(uuid, 1.0))
    worker.do(on.Recorded(record_of(uuid)))
    return worker


# ---- announcements and requests --------------------------------------------------------------------------


def test_an_announced_job_is_asked_for_and_its_message_acknowledged_with_the_answer() -> None:
    worker = Worker()
    assert worker.do(on.Announced(A)) == []
    assert worker.asked is not None
    assert worker.asked.uuids == ("a",)
    assert worker.grant(claim_of("a")) == [on.Ack(A), on.Prepare(claim_of("a"))]


def test_a_job_that_another_worker_has_is_let_go() -> None:
    worker = Worker()
    worker.do(on.Announced(A))
    assert worker.grant() == [on.LetGo(("a",)), on.Ack(A)]


def test_a_job_without_capacity_is_asked_for_again_when_another_has_ended() -> None:
    worker = running(Worker(), "b")
    worker.do(on.Announced(A))
    assert worker.grant() == [on.Ack(A)]
    worker.do(on.Ended("b", 1.0))
    assert worker.asked is not None
    assert worker.asked.uuids == ("a",)


def test_a_message_whose_request_failed_is_asked_for_again_and_not_acknowledged() -> None:
    worker = Worker()
    worker.do(on.Announced(A))
    assert worker.asked is not None
    assert worker.do(on.ClaimFailed(worker.asked)) == []
    assert worker.asked.uuids == ("a",)
    assert worker.grant(claim_of("a"))[0] == on.Ack(A)


def test_announcements_and_polls_take_turns() -> None:
    worker = Worker(concurrency=1)
    worker.do(on.Announced(A), on.Announced(B), on.PollAsked())
    assert worker.asked is not None
    assert worker.asked.uuids == ("a",)
    worker.grant()
    assert worker.asked.messages == ()
    worker.grant()
    assert worker.asked.uuids == ("b",)


def test_no_more_is_asked_for_than_there_is_capacity() -> None:
    worker = Worker(concurrency=2)
    worker.do(on.PollAsked())
    assert worker.asked is not None
    assert worker.asked.limit == 2
    worker.grant(claim_of("a"), claim_of("b"))
    worker.pass_s(2000.0)
    assert not worker.has_asked


# ---- from grant to start ---------------------------------------------------------------------------------


def test_a_claim_starts_when_it_is_prepared_and_fits() -> None:
    worker = Worker()
    assert worker.grant(claim_of("a")) == [on.Prepare(claim_of("a"))]
    (start,) = worker.do(on.Prepared("a", PLAIN))
    assert isinstance(start, on.Start)
    assert phase(worker) is Phase.RUNNING


def test_leftovers_of_an_earlier_attempt_are_cleaned_up_first() -> None:
    worker = Worker()
    assert worker.grant(claim_of("a"), needs_cleanup=True) == [on.CleanUp(claim_of("a"))]
    assert worker.do(on.CleanedUp("a", 7)) == []  # of another claim
    assert worker.do(on.CleanedUp("a", 1)) == [on.Prepare(claim_of("a"))]


def test_claims_start_in_their_order_a_large_one_is_not_overtaken() -> None:
    worker = running(Worker(concurrency=2), "a")
    large = Demand(Requirements(), weight=2, is_plain=False)
    assert worker.waiting("b", demand=large) == []
    assert worker.waiting("c") == []
    started = worker.do(on.Ended("a", 1.0))
    assert [one.uuid for one in started if isinstance(one, on.Start)] == ["b"]


def test_a_job_that_cannot_be_prepared_ends_without_a_start() -> None:
    worker = Worker()
    worker.grant(claim_of("a"))
    assert worker.do(on.NotPrepared("a")) == []
    assert worker.do(on.Recorded(record_of("a"))) == [on.Confirm({"a": 1})]


def test_a_lease_that_may_have_expired_is_renewed_before_the_job_starts() -> None:
    worker = Worker()
    worker.grant(claim_of("a"))
    worker.now_s += LEASE_S  # the machine slept
    assert worker.do(on.Prepared("a", PLAIN)) == []
    still_held = on.Renewed({"a": 1}, Renewal(frozenset(), frozenset()), worker.now_s)
    started = worker.do(still_held)
    assert [one.uuid for one in started if isinstance(one, on.Start)] == ["a"]


def test_the_first_job_of_a_run_waits_for_the_start_actions_of_the_worker() -> None:
    worker = Worker()
    (serve,) = worker.waiting("a", run="r")
    assert isinstance(serve, on.Serve)
    assert worker.pass_s(1.0) == []
    assert isinstance(worker.do(on.ServiceChanged("r", is_ready=True))[0], on.Start)
    worker.do(on.ServiceChanged("r", is_ready=False))
    assert worker.waiting("b", run="r") == []
    assert isinstance(worker.do(on.ServiceChanged("r", is_ready=None))[0], on.Serve)


# ---- to the end ------------------------------------------------------------------------------------------


def test_a_job_is_released_when_its_outcome_is_in_the_store() -> None:
    worker = running(Worker())
    assert worker.do(on.Ended("a", 1.0)) == []
    assert worker.do(on.Recorded(record_of("a"))) == [on.Confirm({"a": 1})]
    answer = on.Confirmed({"a": 1}, ended=frozenset("a"), lost=frozenset())
    assert worker.do(answer) == [on.Release("a", claim_of("a"), record_of("a"))]
    assert not worker.claims


def test_an_outcome_that_is_not_in_the_store_yet_is_looked_for_again() -> None:
    worker = recorded(Worker())
    assert worker.do(on.Confirmed({"a": 1}, frozenset(), frozenset())) == []
    assert worker.pass_s(0.4) == []
    assert worker.pass_s(0.2) == [on.Confirm({"a": 1})]
    worker.do(on.ConfirmFailed({"a": 1}))
    assert worker.pass_s(0.6) == [on.Confirm({"a": 1})]


def test_an_outcome_that_came_too_late_is_not_reported() -> None:
    worker = recorded(Worker())
    assert worker.do(on.Confirmed({"a": 1}, frozenset(), frozenset("a"))) == [on.Release("a")]


def test_a_held_back_outcome_is_looked_for_after_the_delay() -> None:
    worker = running(Worker(delay_s=0.25))
    worker.do(on.Ended("a", 1.0))
    assert worker.do(on.Recorded(record_of("a"))) == []
    assert worker.claims.next_wake_s() == worker.now_s + 0.25
    assert worker.pass_s(0.25) == [on.Confirm({"a": 1})]


# ---- leases ----------------------------------------------------------------------------------------------


def test_a_lost_lease_kills_the_job_and_nothing_more_is_written() -> None:
    worker = running(Worker())
    assert worker.renewed(fenced=["a"]) == []  # it may just have ended
    assert worker.renewed(fenced=["a"]) == [
        on.ReportLost("a"),
        on.Suppress("a"),
        on.Kill("a", at_once=True),
    ]
    worker.do(on.Ended("a", 1.0))
    assert worker.do(on.Recorded(record_of("a"))) == [on.Return("a", 1)]
    assert worker.do(on.Returned({"a": 1}, is_done=True)) == [on.Release("a")]


def test_a_claim_that_is_found_again_is_suspected_no_longer() -> None:
    worker = running(Worker())
    for fenced in (["a"], [], ["a"]):
        assert worker.renewed(fenced=fenced) == []


def test_a_renewal_of_an_older_claim_says_nothing_about_a_newer_one() -> None:
    worker = running(Worker(), fence=3)
    for _ in range(3):
        assert worker.renewed(fenced=["a"], asked={"a": 2}) == []


def test_a_worker_that_was_idle_renews_soon_after_a_claim() -> None:
    worker = Worker()
    worker.renewed()
    assert worker.claims.next_wake_s() is not None
    worker.grant(claim_of("a"))
    wake_s = worker.claims.next_wake_s()
    assert wake_s is not None
    assert wake_s <= worker.now_s + 1.0


def test_a_failed_renewal_is_repeated_at_once() -> None:
    worker = running(Worker())
    worker.renewed()
    worker.now_s += 5.0
    worker.claims.handle([], worker.now_s)
    assert on.Renew({"a": 1}) in worker.claims.handle([on.RenewFailed()], worker.now_s)


def test_cancelling_a_running_job_asks_it_to_end_once() -> None:
    worker = running(Worker())
    assert worker.renewed(cancelled=["a"]) == [on.Kill("a", at_once=False)]
    assert worker.renewed(cancelled=["a"]) == []
    worker.do(on.Ended("a", 1.0))
    assert on.Confirm({"a": 1}) in worker.do(on.Recorded(record_of("a")))


def test_a_job_that_is_cancelled_before_it_starts_is_recorded_as_cancelled() -> None:
    worker = running(Worker(concurrency=1), "b")
    worker.waiting("a")
    assert worker.renewed(cancelled=["a"]) == [on.RecordCancelled(claim_of("a"))]
    assert worker.do(on.Ended("b", 1.0)) == []  # it does not start
    assert on.Confirm({"a": 1}) in worker.do(on.Recorded(record_of("a")))


def test_a_job_that_was_stopped_before_its_host_began_it_is_recorded_as_cancelled() -> None:
    worker = running(Worker())
    assert worker.do(on.Withdrawn("a")) == [on.RecordCancelled(claim_of("a"))]
    assert worker.capacity.free == 2


# ---- the same job twice ----------------------------------------------------------------------------------


def test_a_second_grant_of_a_running_job_goes_back_when_the_first_is_gone() -> None:
    worker = running(Worker())
    assert worker.grant(claim_of("a", 2)) == [on.Suppress("a"), on.Kill("a", at_once=True)]
    assert worker.do(on.HoldingsRead({"a": 2})) == []
    assert worker.do(on.Withdrawn("a")) == [on.Return("a", 2), on.Return("a", 1)]
    assert worker.do(on.Returned({"a": 2}, is_done=True)) == []
    assert worker.do(on.Returned({"a": 1}, is_done=True)) == [on.Release("a")]


def test_a_new_grant_replaces_a_claim_whose_outcome_came_too_late() -> None:
    worker = recorded(Worker())
    assert worker.grant(claim_of("a", 2)) == [on.Prepare(claim_of("a", 2))]
    worker.do(on.Prepared("a", PLAIN))
    assert worker.do(on.Confirmed({"a": 1}, frozenset(), frozenset("a"))) == []
    assert phase(worker) is Phase.RUNNING


# ---- returns ---------------------------------------------------------------------------------------------


def test_a_claim_whose_answer_was_lost_is_returned_and_searched_for() -> None:
    worker = Worker()
    assert worker.do(on.HoldingsRead({"x": 4})) == [on.Return("x", 4), on.ReportStrays(1)]
    assert worker.do(on.HoldingsRead({"x": 4})) == []  # it is being returned
    assert worker.asked is None
    assert worker.do(on.Returned({"x": 4}, is_done=True)) == []
    assert worker.asked is not None


def test_a_return_that_the_store_missed_is_repeated_as_it_was() -> None:
    worker = running(Worker())
    worker.do(on.Drain())
    worker.do(on.Evict())
    worker.do(on.Ended("a", 1.0))
    assert worker.do(on.Recorded(record_of("a"), is_spent=True)) == [on.Return("a", 1, is_spent=True)]
    assert worker.do(on.Returned({"a": 1}, is_done=False)) == [on.Release("a")]
    assert worker.do(on.HoldingsRead({"a": 1}))[0] == on.Return("a", 1, is_spent=True)
    assert worker.do(on.Returned({"a": 1}, is_done=True)) == []


def test_known_claims_are_not_taken_for_strays() -> None:
    worker = running(Worker())
    assert worker.do(on.HoldingsRead({"a": 1})) == []


# ---- the worker ends -------------------------------------------------------------------------------------


def test_a_draining_worker_returns_unstarted_claims_and_finishes_the_others() -> None:
    worker = running(Worker(concurrency=1), "a")
    worker.waiting("b")
    worker.do(on.Announced(on.Message("c", nothing)))
    assert worker.do(on.Drain()) == [on.LetGo(("c",)), on.Return("b", 1)]
    assert worker.do(on.Announced(on.Message("d", nothing))) == [on.LetGo(("d",))]
    worker.do(on.Ended("a", 1.0))
    assert worker.do(on.Recorded(record_of("a"))) == [on.Confirm({"a": 1})]
    assert not worker.claims.is_active


def test_a_grant_that_comes_after_the_drain_is_returned() -> None:
    worker = Worker()
    worker.do(on.PollAsked())
    worker.do(on.Drain())
    worker.grant(claim_of("a"))
    assert worker.do(on.Prepared("a", PLAIN)) == [on.Return("a", 1)]


def test_evicting_kills_running_jobs_but_those_that_end_with_the_allocation() -> None:
    worker = running(running(Worker(delay_s=0.25), "a"), "b")
    assert worker.do(on.StopAsked(frozenset("a"))) == [on.Kill("a", at_once=False)]
    commands = worker.do(on.Evict(keep=frozenset("a"), with_ended=True))
    assert commands == [on.Suppress("b"), on.Kill("b", at_once=True)]


def test_discarded_outcomes_go_back() -> None:
    worker = recorded(Worker(delay_s=0.25))
    commands = worker.do(on.Evict(with_ended=True, discarded=frozenset("a")))
    assert commands == [on.Suppress("a"), on.Return("a", 1)]


def test_an_outcome_that_is_not_the_jobs_own_is_not_written_and_the_job_goes_back() -> None:
    worker = running(Worker())
    assert worker.do(on.OutcomeDiscarded("a")) == []
    worker.do(on.Ended("a", 1.0))
    assert worker.do(on.Recorded(record_of("a"))) == [on.Return("a", 1)]


def test_a_process_that_ends_abandons_what_runs_and_says_what_must_not_run_twice() -> None:
    worker = Worker()
    once = claim_of("b", retry=RetryLost.NEVER)
    worker.grant(claim_of("a"), once)
    worker.do(on.Prepared("a", PLAIN), on.Prepared("b", PLAIN))
    returns = [one for one in worker.do(on.Abandon()) if isinstance(one, on.Return)]
    assert returns == [on.Return("a", 1), on.Return("b", 1, is_spent=True)]


# ---- nodes -----------------------------------------------------------------------------------------------


def test_a_job_whose_sender_left_while_it_was_asked_for_goes_back() -> None:
    worker = Worker()
    worker.do(on.Announced(A))
    worker.do(on.SenderLeft("a"))
    assert worker.grant(claim_of("a")) == [on.Ack(A), on.Return("a", 1)]


def test_a_job_that_is_brought_again_is_wanted_again() -> None:
    worker = Worker()
    worker.do(on.Announced(A))
    worker.do(on.SenderLeft("a"), on.Announced(replace(A)))
    assert on.Prepare(claim_of("a")) in worker.grant(claim_of("a"))


def test_a_running_job_whose_sender_left_is_killed_and_returned() -> None:
    worker = running(Worker())
    assert worker.do(on.SenderLeft("a")) == [on.Suppress("a"), on.Kill("a", at_once=True)]
    worker.do(on.Ended("a", None))
    assert worker.do(on.Recorded(record_of("a"))) == [on.Return("a", 1)]


def test_assigned_devices_and_capacity_that_comes_later_are_used() -> None:
    worker = Worker(concurrency=0)
    worker.do(on.DevicesAssigned("a", ("GPU-7",)))
    worker.waiting("a")
    (start,) = worker.do(on.Resized(1))
    assert isinstance(start, on.Start)
    assert start.share.devices == ("GPU-7",)


# ---- idle ------------------------------------------------------------------------------------------------


def test_a_worker_is_idle_after_its_last_job_and_a_poll_without_jobs() -> None:
    worker = recorded(Worker())
    assert not worker.claims.is_idle(0.0, worker.now_s + 100)
    worker.do(on.Confirmed({"a": 1}, frozenset("a"), frozenset()), on.PollAsked())
    assert not worker.claims.is_idle(0.0, worker.now_s + 100)  # a poll is under way
    worker.grant()
    assert not worker.claims.is_idle(20.0, worker.now_s + 10)
    assert worker.claims.is_idle(20.0, worker.now_s + 21)
