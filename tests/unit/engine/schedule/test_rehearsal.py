"""What a dry run says about a run."""

from joblens.engine.schedule.capacity import Choices, RunCapacity
from joblens.engine.schedule.dry_run import rehearse
from joblens.engine.schedule.schedule import Schedule
from joblens.model.runs.plan import Plan
from tests.unit.engine.plans import job, plan_of

TWO_CPUS = RunCapacity(cpus=2, memory_bytes=1 << 30)


def starts(plan: Plan, known_s: dict[int, float]) -> list[tuple[str, float]]:
    rehearsal = rehearse(Schedule(plan, TWO_CPUS, Choices(may_go_ahead=False, expected_s=known_s)), known_s)
    return [(plan.jobs[start.index].name, start.at_s) for start in rehearsal.starts]


def test_jobs_start_when_what_they_need_would_have_ended() -> None:
    plan = plan_of(job("a"), job("b", 0), job("c", 0), job("d", 1, 2))
    assert starts(plan, {0: 1.0, 1: 2.0, 2: 5.0, 3: 1.0}) == [("a", 0.0), ("c", 1.0), ("b", 1.0), ("d", 6.0)]


def test_jobs_wait_for_room() -> None:
    wide = {"cpus": 2.0}
    plan = plan_of(job("a", **wide), job("b", **wide))
    assert starts(plan, {0: 3.0, 1: 3.0}) == [("a", 0.0), ("b", 3.0)]


def test_how_long_it_takes_is_reported_only_where_every_job_is_known() -> None:
    plan = plan_of(job("a"), job("b", 0))
    schedule = Schedule(plan, TWO_CPUS, Choices(may_go_ahead=False))
    assert rehearse(schedule, {0: 1.0, 1: 2.5}).makespan_s == 3.5
    schedule = Schedule(plan, TWO_CPUS, Choices(may_go_ahead=False))
    assert rehearse(schedule, {0: 1.0}).makespan_s is None


def test_jobs_that_are_left_out_do_not_start() -> None:
    plan = plan_of(job("a"), job("b", 0))
    schedule = Schedule(plan, TWO_CPUS, Choices(enabled=[1], may_go_ahead=False))
    assert [start.index for start in rehearse(schedule, {}).starts] == [1]
