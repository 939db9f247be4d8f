import itertools

from joblens.analysis.charts.gantt import Cause, Gantt, PlotJob, gantt_of
from joblens.model.jobs.job import Owner, Status
from joblens.model.runs.run import JobResult, JobState, OutputsMissing, RunEvent, RunFact, RunStarted

SECOND = 1_000_000
T0 = 1_760_524_200 * SECOND
OWNER = Owner("host", 1, 2, "boot")


def result(
    index: int, begin_s: float, seconds: float | None, status: Status = Status.SUCCESS, attempt: int = 1
) -> JobResult:
    return JobResult(
        index=index,
        attempt=attempt,
        number=10 * index + attempt,
        job_uuid=f"{index}-{attempt}",
        status=status,
        began_at_us=T0 + round(begin_s * SECOND),
        duration_s=seconds,
    )


def event(at_s: float, fact: RunFact) -> RunEvent:
    return RunEvent(f"{at_s}", "run", T0 + round(at_s * SECOND), fact)


def chart(
    jobs: list[PlotJob], results: list[JobResult], events: list[RunEvent] | None = None, now_s: float = 100
) -> Gantt:
    started = [event(0, RunStarted(OWNER, 4.0, 0))]
    gantt = gantt_of(jobs, results, started if events is None else events, T0 + round(now_s * SECOND))
    assert gantt is not None
    return gantt


def path(gantt: Gantt) -> list[tuple[str, Cause]]:
    return [(gantt.bars[link.later].name, link.cause) for link in gantt.critical]


def test_a_run_in_which_nothing_has_begun_has_no_chart() -> None:
    assert gantt_of([PlotJob("a")], [], [], T0) is None


def test_the_critical_path_follows_the_dependency_that_ended_last() -> None:
    jobs = [PlotJob("a"), PlotJob("b"), PlotJob("c", (0, 1))]
    gantt = chart(jobs, [result(0, 0.01, 5), result(1, 0.01, 9), result(2, 9.02, 3)])
    assert path(gantt) == [("c", Cause.DEPENDENCY), ("b", Cause.RUN)]


def test_a_job_that_was_kept_waiting_began_when_another_made_room() -> None:
    jobs = [PlotJob("a"), PlotJob("big"), PlotJob("c", (0,))]
    gantt = chart(jobs, [result(0, 0, 1), result(1, 0, 8), result(2, 8.01, 2)])
    assert path(gantt) == [("c", Cause.RESOURCES), ("big", Cause.RUN)]
    assert gantt.bars[2].waited_us == 7.01 * SECOND


def test_a_second_attempt_began_because_of_the_first() -> None:
    results = [result(0, 0, 4, Status.FAILED), result(0, 14, 4, attempt=2)]
    gantt = chart([PlotJob("a"), PlotJob("b")], [*results, result(1, 0, 10)])
    assert path(gantt) == [("a", Cause.RETRY), ("a", Cause.RUN)]
    assert [bar.state for bar in gantt.bars if bar.name == "a"] == [JobState.FAILED, JobState.COMPLETED]
    assert [bar.row for bar in gantt.bars if bar.name == "a"] == [0, 0]


def test_attempts_that_took_no_time_lead_nowhere_for_ever() -> None:
    jobs = [PlotJob("a", (1,)), PlotJob("b", (0,))]
    assert len(chart(jobs, [result(0, 5, 0), result(1, 5, 0)]).critical) == 2


def test_a_job_whose_outputs_are_missing_has_failed() -> None:
    events = [event(0, RunStarted(OWNER)), event(5, OutputsMissing(0, 1, ("x",)))]
    assert chart([PlotJob("a")], [result(0, 0, 4)], events).bars[0].state is JobState.FAILED


def test_the_bar_of_a_running_job_ends_now() -> None:
    gantt = chart([PlotJob("a")], [result(0, 1, None, Status.RUNNING)], now_s=6)
    assert gantt.bars[0].ended_us == T0 + 6 * SECOND
    assert gantt.bars[0].state is JobState.RUNNING


def test_a_deleted_job_whose_times_are_gone_has_no_bar() -> None:
    gantt = chart([PlotJob("a"), PlotJob("b")], [result(0, 1, 5), result(1, 2000, None)], now_s=9000)
    assert [bar.name for bar in gantt.bars] == ["a"]
    assert gantt.end_us == T0 + 6 * SECOND


def test_after_a_resume_a_job_waits_from_then_on() -> None:
    events = [event(0, RunStarted(OWNER)), event(50, RunStarted(OWNER))]
    gantt = chart([PlotJob("a"), PlotJob("b", (0,))], [result(0, 0, 5), result(1, 51, 5)], events)
    assert gantt.bars[1].ready_us == T0 + 50 * SECOND


def test_thousands_of_jobs_share_as_many_rows_as_ran_at_once() -> None:
    jobs = [PlotJob(f"job{place}") for place in range(3000)]
    results = [result(place, place // 4, 1.0) for place in range(3000)]
    gantt = chart(jobs, results)
    assert (gantt.rows, gantt.row_names) == (4, ())
    taken = sorted((bar.row, bar.began_us, bar.ended_us) for bar in gantt.bars)
    for earlier, later in itertools.pairwise(taken):
        assert earlier[0] != later[0] or earlier[2] <= later[1]
