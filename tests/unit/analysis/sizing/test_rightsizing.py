"""What to ask for, from everything that was seen."""

from typing import Any

import pytest
from msgspec import structs

from joblens.analysis.sizing.observations import Observation, Strategy, observation_of
from joblens.analysis.sizing.rightsizing import Advice, Group, GroupAdvice, advise
from joblens.model.jobs.job import Placement, Requirements, RunLink, Status, Usage
from joblens.model.values.units import GIB, MIB
from tests.builders.records import a_record


def seen(**changes: Any) -> Observation:
    usual: dict[str, Any] = {
        "job": "train",
        "run": 1,
        "attempt": 1,
        "status": Status.SUCCESS,
        "duration_s": 9900.0,
        "memory_bytes": int(10.5 * GIB),
        "peak_cores": 7.2,
    }
    return Observation(**{**usual, **changes})


def asked(
    cpus: float | None = None, memory: int | None = None, runtime_s: float | None = None
) -> Requirements:
    return Requirements(cpus=cpus, memory_bytes=memory, timeout_s=runtime_s)


NOTHING = Requirements()


def advice_for(*observations: Observation, current: Requirements = NOTHING, **more: Any) -> GroupAdvice:
    [found] = advise([Group(name="large", current=current, observations=observations)], **more)
    return found


def part(found: GroupAdvice, resource: str) -> Advice:
    [advice] = [advice for advice in found.advice if advice.resource == resource]
    return advice


def test_a_group_that_used_more_than_it_asked_for_is_given_more() -> None:
    found = advice_for(seen(), current=asked(8, 8 * GIB, 7200))
    assert [(item.resource, item.current_text, item.recommended_text) for item in found.advice] == [
        ("memory", "8g", "12g"),
        ("cpus", "8", "8"),
        ("runtime", "PT2H", "PT3H30M"),
    ]


def test_a_group_that_used_less_is_given_less() -> None:
    small = seen(memory_bytes=2150 * MIB, peak_cores=1.9, duration_s=450.0)
    found = advice_for(small, current=asked(4, 4 * GIB, 3600))
    assert [item.recommended_text for item in found.advice] == ["2560m", "2", "PT9M"]


def test_a_killed_job_gets_half_as_much_again() -> None:
    killed = seen(
        status=Status.FAILED, is_out_of_memory=True, memory_bytes=2 * GIB, limits=asked(memory=2 * GIB)
    )
    assert part(advice_for(killed, current=asked(memory=2 * GIB)), "memory").recommended == 3 * GIB


def test_a_killed_job_that_came_through_with_more_is_no_riddle_any_more() -> None:
    killed = seen(
        status=Status.FAILED, is_out_of_memory=True, memory_bytes=2 * GIB, limits=asked(memory=2 * GIB)
    )
    through = seen(attempt=2, memory_bytes=int(2.2 * GIB), limits=asked(memory=8 * GIB))
    found = part(advice_for(killed, through, current=asked(memory=2 * GIB)), "memory")
    assert found.recommended_text == "2560m"


def test_what_someone_gave_a_killed_job_since_is_not_taken_away() -> None:
    killed = seen(
        status=Status.FAILED, is_out_of_memory=True, memory_bytes=2 * GIB, limits=asked(memory=2 * GIB)
    )
    found = part(advice_for(killed, current=asked(memory=8 * GIB)), "memory")
    assert (found.recommended, found.is_change) == (8 * GIB, False)


def test_a_job_that_timed_out_gets_forty_percent_more() -> None:
    late = seen(status=Status.TIMEOUT, duration_s=3600.5, limits=asked(runtime_s=3600))
    found = part(advice_for(late, current=asked(runtime_s=3600)), "runtime")
    assert found.recommended_text == "PT1H30M"
    assert "timed out" in found.reason


def test_nothing_is_taken_from_jobs_that_never_came_to_their_end() -> None:
    failed = seen(status=Status.FAILED, memory_bytes=10 * MIB, peak_cores=0.1, duration_s=1.0)
    found = advice_for(failed, current=asked(4, 4 * GIB, 3600))
    assert not any(item.is_change for item in found.advice)


def test_nothing_is_asked_for_in_the_name_of_jobs_that_only_failed() -> None:
    assert advice_for(seen(status=Status.FAILED, duration_s=0.01)).advice == ()


def test_a_peak_that_may_have_been_higher_takes_nothing_away() -> None:
    vague = seen(memory_bytes=100 * MIB, memory_is_least=True)
    assert not part(advice_for(vague, current=asked(memory=4 * GIB)), "memory").is_change


@pytest.mark.parametrize("gigabytes", [11.6, 12, 12.5])
def test_an_amount_within_the_buffer_is_left_alone(gigabytes: float) -> None:
    found = part(advice_for(seen(), current=asked(memory=int(gigabytes * GIB))), "memory")
    assert not found.is_change


def test_a_job_held_back_by_its_cpus_gets_one_more() -> None:
    held = seen(peak_cores=2.0, is_throttled=True, limits=asked(cpus=2))
    assert part(advice_for(held, current=asked(cpus=2)), "cpus").recommended == 3


@pytest.mark.parametrize(
    ("peak_cores", "cpus", "why"),
    [(0.97, 1, "97% CPU, up to the next core"), (1.06, 1, "106% CPU, hardly more than 1 core")],
)
def test_cores_are_reported_as_they_were_counted(peak_cores: float, cpus: int, why: str) -> None:
    advice = part(advice_for(seen(peak_cores=peak_cores)), "cpus")
    assert (advice.recommended, advice.reason) == (cpus, f"peak {why}")


def test_all_runs_count_not_only_the_last() -> None:
    runs = [seen(run=run, memory_bytes=size * GIB) for run, size in ((1, 2), (2, 6), (3, 1))]
    found = advice_for(*runs, current=asked(memory=2 * GIB))
    assert part(found, "memory").recommended_text == "7g"
    assert (found.jobs, found.runs, found.confidence) == (3, 3, "high")
    assert part(found, "memory").quantiles == {
        "p50": 2 * GIB, "p90": 6 * GIB, "p95": 6 * GIB, "max": 6 * GIB
    }  # fmt: skip


def test_another_strategy_asks_for_less_at_first() -> None:
    jobs = [seen(job=f"j{place}", memory_bytes=GIB, duration_s=100) for place in range(99)]
    found = advice_for(*jobs, seen(memory_bytes=64 * GIB, duration_s=100), strategy=Strategy.MIN_WASTE)
    assert part(found, "memory").recommended_text == "1152m"
    assert "1% need a retry with 72g" in part(found, "memory").reason


def test_a_group_nobody_saw_is_left_out() -> None:
    assert advise([Group(name="unused", current=asked(1), observations=())]) == []


def test_a_record_becomes_an_observation() -> None:
    record = a_record(
        job={"run": RunLink("r", 0, 2), "requirements": asked(cpus=2)},
        duration_s=100.0,
        profile={"process_cpu": {"max_percent": 180.0}},
        usage=Usage(cpu_total_usec=90_000_000, memory_peak_bytes=5 * MIB, cpu_throttled_usec=6_000_000),
    )
    found = observation_of(record, 7)
    assert found is not None
    assert (found.job, found.run, found.attempt) == ("poisson", 7, 2)
    assert (found.peak_cores, found.is_throttled) == (1.8, True)


def test_a_job_that_was_not_held_to_its_limits_had_none() -> None:
    record = a_record(job={"enforce": False, "requirements": asked(memory=GIB)})
    found = observation_of(record, 1)
    assert found is not None
    assert found.limits == asked()


@pytest.mark.parametrize("status", [Status.ERROR, Status.LOST])
def test_a_job_that_never_ran_or_was_lost_tells_nothing(status: Status) -> None:
    assert observation_of(a_record(status=status), 1) is None


def out_of_memory(limit: int, **changes: Any) -> Observation:
    return seen(
        **{
            "status": Status.FAILED,
            "is_out_of_memory": True,
            "memory_bytes": limit,
            "limits": asked(memory=limit),
            **changes,
        }
    )


def test_a_small_success_before_does_not_explain_a_lack_of_memory_now() -> None:
    before = seen(run=1, memory_bytes=107 * MIB, limits=asked(memory=600 * MIB))
    found = part(
        advice_for(before, out_of_memory(200 * MIB, run=2), current=asked(memory=200 * MIB)), "memory"
    )
    assert found.recommended >= 300 * MIB
    assert "out of memory" in found.reason


def test_a_success_before_that_used_more_than_the_limit_tells_what_is_needed() -> None:
    before = seen(run=1, memory_bytes=250 * MIB, limits=asked(memory=600 * MIB))
    found = part(
        advice_for(before, out_of_memory(200 * MIB, run=2), current=asked(memory=200 * MIB)), "memory"
    )
    assert found.reason.startswith("peak 250.0 MiB")


def test_a_short_success_before_does_not_explain_a_time_out_now() -> None:
    before = seen(run=1, duration_s=100.0, limits=asked(runtime_s=1000))
    late = seen(run=2, status=Status.TIMEOUT, duration_s=400.0, limits=asked(runtime_s=400))
    found = part(advice_for(before, late, current=asked(runtime_s=400)), "runtime")
    assert found.recommended >= 1.4 * 400
    assert "timed out" in found.reason


def test_a_success_with_a_process_killed_inside_wanted_more() -> None:
    killed = a_record(
        job={"requirements": asked(memory=64 * MIB)},
        usage=Usage(memory_peak_bytes=64 * MIB, oom_kills=1),
    )
    observation = observation_of(killed, 1)
    assert observation is not None
    found = part(advice_for(observation, current=asked(memory=64 * MIB)), "memory")
    assert (found.recommended, found.reason) == (96 * MIB, "out of memory at 64.0 MiB: + 50%")


def test_how_use_was_spread_comes_from_jobs_that_completed() -> None:
    crashed = [seen(job=f"c{i}", status=Status.FAILED, duration_s=1.0, memory_bytes=MIB) for i in range(3)]
    found = advice_for(*crashed, seen(duration_s=500.0, memory_bytes=3 * GIB))
    assert part(found, "runtime").quantiles["p50"] == 500.0
    assert part(found, "memory").quantiles["p50"] == 3 * GIB
    assert part(found, "memory").at_least == ()


def test_a_job_killed_at_its_limit_counts_as_more_than_that() -> None:
    ended = [seen(job=f"j{i}", memory_bytes=GIB) for i in range(8)]
    killed = [out_of_memory(2 * GIB, job=f"k{i}") for i in range(2)]
    found = part(advice_for(*ended, *killed, current=asked(memory=2 * GIB)), "memory")
    assert found.quantiles == {"p50": GIB, "p90": 2 * GIB, "p95": 2 * GIB, "max": 2 * GIB}
    assert found.at_least == ("p90", "p95", "max")


def mixed(first_run: int = 1) -> list[Observation]:
    small = [seen(job=f"s{i}", memory_bytes=27 * MIB, run=first_run, duration_s=5.0) for i in range(9)]
    return [*small, seen(job="big", memory_bytes=257 * MIB, run=first_run, duration_s=5.0)]


def test_after_a_first_try_that_was_too_small_for_one_the_advice_is_the_same() -> None:
    again = [structs.replace(one, run=2) for one in mixed()[:9]]
    killed = out_of_memory(40 * MIB, job="big", run=2, duration_s=5.0)
    found = advice_for(*mixed(), *again, killed, current=asked(memory=40 * MIB), strategy=Strategy.MIN_WASTE)
    [least] = [one for one in found.strategies if one.strategy is Strategy.MIN_WASTE]
    assert least.retries == 0.1
    memory = part(found, "memory")
    assert (memory.recommended, memory.retry_at) == (40 * MIB, 288 * MIB)
    assert memory.reason == "min-waste: 10% need a retry with 288m"


def test_a_killed_job_that_never_came_through_is_tried_again_with_half_as_much_again() -> None:
    killed = out_of_memory(GIB, job="big", duration_s=5.0)
    found = advice_for(*mixed()[:9], killed, current=asked(memory=GIB), strategy=Strategy.MIN_WASTE)
    assert part(found, "memory").retry_at == 1536 * MIB


def test_the_reason_for_a_short_time_tells_of_the_time_out_and_the_least_spare() -> None:
    late = seen(status=Status.TIMEOUT, duration_s=1.0, limits=asked(runtime_s=1))
    done = seen(job="other", duration_s=0.5)
    found = part(advice_for(late, done, current=asked(runtime_s=1)), "runtime")
    assert (found.recommended_text, found.reason) == ("PT20S", "timed out after 1.0s + 10 to 20s")


@pytest.mark.parametrize("limit", [40, 100, 128, 200, 333, 1000])
def test_the_table_of_strategies_names_the_same_size_as_the_advice(limit: int) -> None:
    killed = out_of_memory(limit * MIB, job="big", duration_s=5.0)
    found = advice_for(*mixed()[:9], killed, current=asked(memory=limit * MIB))
    assert found.strategies[0].first_bytes == part(found, "memory").recommended


def test_an_amount_that_is_kept_is_what_the_other_strategies_are_compared_with() -> None:
    found = advice_for(*mixed(), current=asked(memory=300 * MIB))
    assert part(found, "memory").recommended == 300 * MIB
    assert (found.strategies[0].first_bytes, found.strategies[0].throughput) == (300 * MIB, 1.0)


def test_a_peak_that_slurm_sampled_gets_more_on_top() -> None:
    measured = advice_for(seen(memory_bytes=10 * GIB), current=asked(8, 64 * GIB))
    sampled = advice_for(seen(memory_bytes=10 * GIB, is_sampled=True), current=asked(8, 64 * GIB))
    assert part(measured, "memory").recommended_text == "12g"
    assert 13 * GIB <= part(sampled, "memory").recommended <= 14.5 * GIB
    assert "Slurm's samples" in part(sampled, "memory").reason
    assert part(sampled, "cpus").reason.startswith("average 720% CPU")


def _imported(duration_s: float) -> Observation:
    usage = Usage(memory_peak_bytes=GIB, lower_bounds=("memory_peak_bytes",))
    record = a_record(attempt={"accounting": "sacct"}, usage=usage, duration_s=duration_s)
    found = observation_of(record, 1)
    assert found is not None
    return found


def test_only_jobs_that_slurm_looked_at_often_enough_are_a_reason_to_ask_for_less() -> None:
    short, long = _imported(20.0), _imported(600.0)
    assert part(advice_for(short, current=asked(1, 8 * GIB)), "memory").recommended == 8 * GIB
    assert part(advice_for(long, current=asked(1, 8 * GIB)), "memory").recommended < 2 * GIB


def test_cpus_of_a_job_of_several_nodes_are_those_of_one() -> None:
    record = a_record(
        job={"requirements": Requirements(cpus=8, nodes=2)},
        attempt={"placement": Placement(engine="slurm", job_id="7", nodes=("n1", "n2"))},
        usage=Usage(cpu_total_usec=120_000_000),
        duration_s=10.0,
    )
    found = observation_of(record, 1)
    assert found is not None
    assert found.peak_cores == 6.0


def test_a_peak_of_an_older_joblens_counts_only_where_a_job_has_no_other() -> None:
    older = seen(memory_bytes=20 * GIB, memory_has_files=True)
    other = seen(job="test", memory_bytes=12 * GIB, memory_has_files=True)
    newer = seen(run=2, memory_bytes=2 * GIB)
    assert part(advice_for(older, newer), "memory").quantiles["max"] == 2 * GIB
    memory = part(advice_for(older, newer, other), "memory")
    assert memory.quantiles["max"] == 12 * GIB
    assert memory.reason == "peak 12.0 GiB (older record, may include mapped files) + 10 to 20%"


@pytest.mark.parametrize(
    ("accounting", "basis", "has_files"),
    [
        ("cgroup-v2", "", True),
        ("process-tree", "", True),
        ("cgroup-v2", "unreclaimable", False),
        ("sacct", "", False),
        ("imported", "", False),
    ],
)
def test_the_record_tells_whether_mapped_files_may_be_in_a_peak(
    accounting: str, basis: str, has_files: bool
) -> None:
    record = a_record(usage=Usage(memory_peak_bytes=GIB, memory_peak_basis=basis))
    assert record.attempt is not None
    record = structs.replace(record, attempt=structs.replace(record.attempt, accounting=accounting))
    observation = observation_of(record, 1)
    assert observation is not None
    assert observation.memory_has_files is has_files
