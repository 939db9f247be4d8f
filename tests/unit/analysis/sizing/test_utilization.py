from typing import Any

import pytest
from msgspec.structs import replace

from joblens.analysis.numbers.rates import is_throttled, peak_cpu_percent
from joblens.analysis.runs.table import numbers_of
from joblens.analysis.sizing.observations import observation_of
from joblens.analysis.sizing.utilization import (
    LimitHit,
    Resource,
    Utilization,
    UtilizationReport,
    check_utilization,
    likely_causes,
    over_text,
    report_form,
    runtime_text,
    specified_text,
)
from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Record, Requirements, Status, Usage
from joblens.views.runs.rightsize import render_utilization

GB = 1024**3
NONE = Requirements()


def record(
    needs: Requirements,
    *,
    status: Status = Status.SUCCESS,
    duration_s: float = 100.0,
    profile: dict[str, Any] | None = None,
    number: int = 1,
    exit_code: int | None = 0,
    reason: str = "exited",
    **usage: Any,
) -> Record:
    outcome = Outcome(
        status=status,
        ended_at_us=1,
        duration_s=duration_s,
        usage=Usage(**usage),
        profile=profile,
        exit_code=exit_code,
        reason=reason,
    )
    job = Job(uuid=f"u{number}", argv=("x",), created_at_us=0, name="train_model", requirements=needs)
    return Record(number=number, status=status, job=job, outcome=outcome)


def check(*records: Record, **options: Any) -> UtilizationReport:
    return check_utilization(records, **options)


def test_memory_cpu_and_runtime_are_compared_with_what_was_written() -> None:
    report = check(
        record(
            Requirements(memory_bytes=8 * GB, cpus=8, timeout_s=7200),
            duration_s=9900,
            memory_peak_bytes=21 * GB // 2,
            cpu_total_usec=1,
            profile={"process_cpu": {"max_percent": 720.3}},
        )
    )
    result = [(item.resource, specified_text(item), over_text(item)) for item in report.violations]
    assert result == [(Resource.MEMORY, "8.00 GB", "+31.3%"), (Resource.RUNTIME, "2h 0m 0s", "+37.5%")]
    within = [(item.resource, specified_text(item), over_text(item)) for item in report.within]
    assert within == [(Resource.CPU, "800% (8 cores)", "-10.0%")]


@pytest.mark.parametrize(
    ("specified", "peak", "text"),
    [
        (8, 10.5, "+31.3%"),
        (7200, 9900, "+37.5%"),
        (800, 950.5, "+18.8%"),
        (800, 720.3, "-10.0%"),
        (4, 2.1, "-47.5%"),
        (400, 380.2, "-5.0%"),
        (600, 450, "-25.0%"),
        (100, 99.99, "+0.0%"),
    ],
)
def test_percentages_are_those_of_the_nearest_tenth(specified: float, peak: float, text: str) -> None:
    item = Utilization(record=record(NONE), resource=Resource.CPU, specified=specified, peak=peak)
    assert over_text(item) == text


def test_what_was_not_written_is_not_checked() -> None:
    report = check(record(Requirements(), memory_peak_bytes=GB, cpu_total_usec=10**9))
    assert (report.total_results, report.violations, report.within) == (1, (), ())


def test_what_is_not_known_is_not_checked() -> None:
    report = check(record(Requirements(memory_bytes=GB, cpus=1)))
    assert (report.violations, report.within) == ((), ())


@pytest.mark.parametrize(("min_over", "count"), [(1.0, 1), (2.0, 1), (2.1, 0), (0.0, 1)])
def test_what_is_over_by_less_than_the_threshold_is_left_out(min_over: float, count: int) -> None:
    over = record(Requirements(memory_bytes=100), memory_peak_bytes=102)
    assert len(check(over, min_over_percent=min_over).violations) == count


def test_exactly_as_much_as_was_asked_for_is_no_violation() -> None:
    exact = record(Requirements(memory_bytes=100), memory_peak_bytes=100)
    assert check(exact, min_over_percent=0.0).violations == ()


@pytest.mark.parametrize(
    ("failed", "resource", "hit"),
    [
        (
            record(
                Requirements(memory_bytes=GB),
                status=Status.FAILED,
                reason="out-of-memory",
                memory_peak_bytes=GB - 4096,
            ),
            Resource.MEMORY,
            LimitHit.OUT_OF_MEMORY,
        ),
        (
            record(Requirements(memory_bytes=GB), oom_kills=2, memory_peak_bytes=GB - 4096),
            Resource.MEMORY,
            LimitHit.OUT_OF_MEMORY,
        ),
        (
            record(Requirements(cpus=1), cpu_total_usec=99_000_000, cpu_throttled_usec=40_000_000),
            Resource.CPU,
            LimitHit.THROTTLED,
        ),
        (
            record(Requirements(timeout_s=100), status=Status.TIMEOUT, duration_s=99.9, exit_code=152),
            Resource.RUNTIME,
            LimitHit.TIMED_OUT,
        ),
    ],
)
def test_a_limit_that_was_hit_is_a_violation_though_the_number_is_below_it(
    failed: Record, resource: Resource, hit: LimitHit
) -> None:
    (item,) = check(failed).violations
    assert (item.resource, item.hit) == (resource, hit)
    assert item.over_percent is not None
    assert item.over_percent < 0


def test_being_held_back_for_a_moment_is_no_hit() -> None:
    needs = Requirements(cpus=1)
    short = record(needs, duration_s=2.0, cpu_total_usec=1_900_000, cpu_throttled_usec=400_000)
    rare = record(needs, duration_s=1000.0, cpu_total_usec=900_000_000, cpu_throttled_usec=5_000_000)
    for each in (short, rare):
        assert each.outcome is not None
        assert not is_throttled(each.outcome)


def test_failed_jobs_are_left_out_unless_asked_for() -> None:
    failed = record(
        Requirements(memory_bytes=100, timeout_s=1000),
        status=Status.FAILED,
        exit_code=1,
        memory_peak_bytes=200,
    )
    assert check(failed).violations == ()
    assert check(failed).within == ()
    asked = check(failed, include_failed=True)
    assert [item.resource for item in asked.violations] == [Resource.MEMORY]
    assert [item.resource for item in asked.within] == [Resource.RUNTIME]


def test_jobs_that_have_not_ended_are_no_results() -> None:
    job = Job(uuid="u", argv=("x",), created_at_us=0, requirements=Requirements(cpus=1))
    assert check(Record(number=1, status=Status.RUNNING, job=job)).total_results == 0


@pytest.mark.parametrize(
    ("needs", "facts", "expected"),
    [
        ({"memory_bytes": 100}, {"memory_peak_bytes": 101, "exit_code": 1}, (True, False)),
        ({"memory_bytes": 100}, {"memory_peak_bytes": 99, "exit_code": 1}, None),
        ({"timeout_s": 100}, {"duration_s": 79.0, "exit_code": 137}, (True, False)),
        ({"timeout_s": 100}, {"duration_s": 85.0, "exit_code": 137}, None),
        ({"timeout_s": 100}, {"duration_s": 91.0, "exit_code": 137}, (False, True)),
        ({"timeout_s": 100}, {"duration_s": 91.0, "exit_code": 1}, (False, True)),
        ({}, {"exit_code": 137}, (True, False)),
        ({}, {"exit_code": 152}, (False, True)),
        ({}, {"exit_code": 1}, None),
    ],
)
def test_other_failures_get_a_likely_cause(
    needs: dict[str, Any], facts: dict[str, Any], expected: tuple[bool, bool] | None
) -> None:
    failed = record(Requirements(**needs), status=Status.FAILED, **facts)
    assert failed.outcome is not None
    found = [(cause.likely_oom, cause.likely_timeout) for cause in likely_causes(failed, failed.outcome)]
    assert found == ([] if expected is None else [expected])


def test_exit_code_137_suggests_no_lack_where_memory_was_measured() -> None:
    killed = record(Requirements(), status=Status.FAILED, exit_code=137, oom_kills=0)
    assert killed.outcome is not None
    attempt = Attempt(started_at_us=1, owner=Owner("host", 1, 2, "boot"), accounting="cgroup-v2")
    assert len(list(likely_causes(killed, killed.outcome))) == 1
    assert list(likely_causes(replace(killed, attempt=attempt), killed.outcome)) == []


def test_a_certain_cause_is_not_reported_as_a_likely_one() -> None:
    needs = Requirements(memory_bytes=100, timeout_s=100)
    killed = record(needs, status=Status.FAILED, reason="out-of-memory", exit_code=137)
    late = record(needs, status=Status.TIMEOUT, exit_code=152)
    assert check(killed, late).failures == ()


def test_the_peak_of_a_job_too_short_for_samples_is_its_exact_average() -> None:
    short = record(Requirements(), duration_s=2.0, cpu_total_usec=3_000_000)
    assert short.outcome is not None
    assert peak_cpu_percent(short.outcome) == 150.0


def test_a_peak_is_never_below_the_average_anyone_who_tells_it() -> None:
    """What a job does before its first and after its last sample is in no rate."""
    burst = record(
        Requirements(cpus=1),
        duration_s=1.0,
        cpu_total_usec=1_900_000,
        profile={"process_cpu": {"max_percent": 10.0}},
    )
    observation = observation_of(burst, 1)
    assert observation is not None
    [item] = check(burst).violations
    assert (item.peak, numbers_of(burst)["peak_cpu_percent"], observation.peak_cores) == (190.0, 190.0, 1.9)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(9900, "2h 45m 0s"), (450, "7m 30s"), (600, "10m 0s"), (45, "45s"), (2.54, "2.5s"), (59.99, "1m 0s")],
)
def test_runtimes_are_written_with_hours_minutes_and_seconds(seconds: float, text: str) -> None:
    assert runtime_text(seconds) == text


@pytest.mark.parametrize(
    ("needs", "text"),
    [
        (Requirements(cpus=1), "100% (1 core)"),
        (Requirements(cpus=1.5), "150% (1.5 cores)"),
        (Requirements(memory_bytes=1023 * 1024**2), "1023.0 MB"),
        (Requirements(memory_bytes=GB), "1.00 GB"),
    ],
)
def test_amounts_are_written_as_people_of_torc_know_them(needs: Requirements, text: str) -> None:
    item = check(record(needs, memory_peak_bytes=1, cpu_total_usec=1)).within[0]
    assert specified_text(item) == text


def test_the_json_form_begins_with_the_known_keys_in_their_order() -> None:
    over = record(Requirements(memory_bytes=8 * GB), memory_peak_bytes=21 * GB // 2, number=15)
    form = report_form(check(over), workflow_id=123, run_id=2, show_all=False)
    assert list(form)[:5] == [
        "workflow_id",
        "run_id",
        "total_results",
        "over_utilization_count",
        "violations",
    ]
    (violation,) = form["violations"]
    assert dict(list(violation.items())[:6]) == {
        "job_id": 15,
        "job_name": "train_model",
        "resource_type": "Memory",
        "specified": "8.00 GB",
        "peak_used": "10.50 GB",
        "over_utilization": "+31.3%",
    }
    assert form["gpu_memory"] is None
    assert "within_limits" not in form


def test_gpu_memory_is_reported_jobs_that_used_some_and_compared_with_nothing() -> None:
    report = check(
        record(NONE, number=1, gpu_memory_peak_bytes=10 * GB), record(NONE, number=2, gpu_memory_peak_bytes=0)
    )
    assert (report.violations, report.within) == ((), ())
    (result,) = report_form(report, workflow_id=1, run_id=1, show_all=False)["gpu_memory"]
    assert (result["job_id"], result["peak_used"], result["peak_value"]) == (1, "10.00 GB", 10 * GB)
    assert "  job 1 train_model: 10.00 GB" in render_utilization(report, show_all=True)


def test_where_no_gpu_was_looked_at_gpu_memory_is_unknown_and_not_empty() -> None:
    assert check(record(NONE)).gpu_memory is None
    assert check(record(NONE, gpu_memory_peak_bytes=0)).gpu_memory == ()
    assert "GPU" not in "".join(render_utilization(check(record(NONE)), show_all=True))
