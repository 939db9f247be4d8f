"""What every store must do about workflows and runs; a store behind its journal too."""

import random
from collections.abc import Callable

import msgspec
import pytest

from joblens.model.errors import AmbiguousRun, UnknownRun, UnknownWorkflow
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Owner, RunLink, Status
from joblens.model.runs.run import (
    JobsReset,
    JobsSpawned,
    RaisedRequest,
    RequirementsRaised,
    Run,
    RunEvent,
    RunFact,
    RunOptions,
    RunStatus,
    StopAskedFor,
    UserDataSet,
)
from joblens.model.runs.workflow_spec import JobSpec
from joblens.model.writes import RunCreated, Write
from joblens.ports.store import Store
from tests.builders.runs import OWNER, attempt, begun, noted, over, run, workflow
from tests.builders.writes import NOON_US, SECOND, ended, queued, started, whole_job

A, B = "aaaa1111-0000-4000-8000-000000000000", "bbbb2222-0000-4000-8000-000000000000"
R1, R2 = "cccc3333-0000-4000-8000-000000000000", "dddd4444-0000-4000-8000-000000000000"


# -- workflows


def test_workflows_are_numbered_from_one_and_listed_newest_first(store: Store) -> None:
    store.apply([workflow(A, "first")])
    store.apply([workflow(B, "second")])
    assert [(each.number, each.name) for each in store.workflows()] == [(2, "second"), (1, "first")]


def test_every_field_of_a_workflow_comes_back(store: Store) -> None:
    created = workflow(A, "ü", user="ann", description="d", source="/x/flow.kdl", format="kdl")
    store.apply([workflow(B), created])
    assert store.find_workflow(A) == msgspec.structs.replace(created.workflow, number=2)


def test_a_workflow_is_found_by_number_uuid_prefix_and_name(store: Store) -> None:
    store.apply([workflow(A, "first"), workflow(B, "second")])
    for ident in ("2", B, B.upper(), "bbbb", "second", " second ", "workflow:2", "workflow:second"):
        assert store.find_workflow(ident).uuid == B


def test_of_several_workflows_with_one_name_the_newest_is_found(store: Store) -> None:
    store.apply([workflow(A, "same"), workflow(B, "same")])
    assert store.find_workflow("same").uuid == B


@pytest.mark.parametrize("ident", ["", " ", "3", "nothing", "9" * 40, "ffff", "1.1"])
def test_an_unknown_workflow_is_said_to_be_unknown(store: Store, ident: str) -> None:
    store.apply([workflow(A)])
    with pytest.raises(UnknownWorkflow) as caught:
        store.find_workflow(ident)
    assert "joblens workflows" in caught.value.hint


def test_a_name_that_is_nearly_right_is_proposed(store: Store) -> None:
    store.apply([workflow(A, "training")])
    with pytest.raises(UnknownWorkflow) as of_workflow:
        store.find_workflow("trainig")
    with pytest.raises(UnknownRun) as of_run:
        store.find_run("trainig")
    assert "did you mean 'training'?" in of_workflow.value.hint
    assert "did you mean 'training'?" in of_run.value.hint


def test_a_name_that_is_another_workflows_number_is_ambiguous(store: Store) -> None:
    store.apply([workflow(A, "x"), workflow(B, "1")])
    with pytest.raises(AmbiguousRun) as caught:
        store.find_workflow("1")
    assert A in str(caught.value)
    assert B in str(caught.value)


def test_a_prefix_of_several_workflows_is_ambiguous(store: Store) -> None:
    store.apply([workflow("abcd1"), workflow("abcd2")])
    with pytest.raises(AmbiguousRun, match="abcd2"):
        store.find_workflow("abcd")


def test_the_workflow_of_a_file_is_known_by_file_name_and_user(store: Store) -> None:
    store.apply(
        [
            workflow("w1", "n", source="/f.yaml", user="ann"),
            workflow("w2", "n", source="/f.yaml", user="ann"),
            workflow("w3", "other", source="/f.yaml", user="ann"),
            workflow("w4", "n", source="/f.yaml", user="bob"),
            workflow("w5", "n", source="/g.yaml", user="ann"),
        ]
    )
    found = store.workflow_of_source("/f.yaml", "n", "ann")
    assert found is not None
    assert found.uuid == "w1"
    assert store.workflow_of_source("/h.yaml", "n", "ann") is None


# -- runs


def test_runs_are_numbered_within_their_workflow(store: Store) -> None:
    store.apply([workflow(A), workflow(B), run("r1", A), run("r2", B), run("r3", A)])
    store.apply([run("r4", A)])
    assert [(each.uuid, each.number) for each in store.runs(A)] == [("r1", 1), ("r3", 2), ("r4", 3)]
    assert [(each.number, each.workflow_number) for each in store.runs(B)] == [(1, 2)]
    assert store.runs("nothing") == []


def test_every_field_of_a_run_comes_back(store: Store) -> None:
    options = RunOptions(output_dir="o", cpus=2.5, gpus=("0", "1"), only=("a*",), parameters={"k": [1, None]})
    text = "name: ü\n" + "# a long file\n" * 1000
    created = run(
        R1,
        A,
        spec_text=text,
        spec_format="toml",
        tables={"t.csv": [{"a": 1}]},
        jobs=7,
        options=options,
        base_run_uuid=R2,
        again=(1, 5),
        user="ann",
        host="h",
    )
    store.apply([workflow(A), created])
    found = store.find_run(R1)
    assert (found.spec_text, found.spec_format, found.tables) == (text, "toml", {"t.csv": [{"a": 1}]})
    assert (found.jobs, found.options, found.base_run_uuid, found.again) == (7, options, R2, (1, 5))
    assert (found.user, found.host, found.number, found.workflow_number) == ("ann", "h", 1, 1)
    assert found.status is RunStatus.CREATED
    (listed,) = store.runs(A)
    assert (listed.spec_text, listed.tables, listed.options) == ("", {}, options)


def test_a_run_is_found_by_every_way_to_say_it(store: Store) -> None:
    store.apply([workflow(A, "my.flow"), run(R1, A), run(R2, A)])
    for ident in (R1, R1.upper(), "cccc", "1.1", "my.flow.1", "workflow:1.1"):
        assert store.find_run(ident).uuid == R1
    for ident in (R2, "dddd", "1.2", "my.flow.2", "my.flow", "1", "workflow:1", A, "aaaa"):
        assert store.find_run(ident).uuid == R2


@pytest.mark.parametrize(
    ("ident", "message"),
    [
        ("2", "has not been run yet"),
        ("1.7", "workflow 1 ('flow') has no run 7"),
        ("flow.7", "has no run 7"),
        ("9.1", "no run or workflow has the ID or name '9.1'"),
        ("nothing", "'nothing'"),
        ("", "''"),
        ("1.", "'1.'"),
        (".1", "'.1'"),
    ],
)
def test_an_unknown_run_is_said_to_be_unknown(store: Store, ident: str, message: str) -> None:
    store.apply([workflow(A), workflow(B, "fresh"), run(R1, A)])
    with pytest.raises(UnknownRun) as caught:
        store.find_run(ident)
    assert message in str(caught.value)
    assert "joblens " in caught.value.hint


def test_what_could_be_a_workflow_or_a_run_of_another_is_ambiguous(store: Store) -> None:
    store.apply([workflow(A, "v1"), workflow(B, "v1.2"), run("a1", A), run("a2", A), run("b1", B)])
    with pytest.raises(AmbiguousRun) as caught:
        store.find_run("v1.2")
    for part in ("1.2  a2", "2.1  b1"):
        assert part in str(caught.value)


def test_a_prefix_of_several_runs_is_ambiguous(store: Store) -> None:
    store.apply([workflow(A), run("ef0001", A), run("ef0002", A)])
    with pytest.raises(AmbiguousRun, match="ef0002"):
        store.find_run("ef00")


def test_digits_are_a_number_and_never_the_beginning_of_an_id(store: Store) -> None:
    store.apply([workflow("24d6aaaa"), run("31c7bbbb", "24d6aaaa")])
    for digits in ("2", "24", "3", "31"):
        with pytest.raises(UnknownWorkflow):
            store.find_workflow(digits)
        with pytest.raises(UnknownRun):
            store.find_run(digits)
    assert store.find_run("31c7").uuid == "31c7bbbb"
    assert store.find_workflow("24d6").uuid == "24d6aaaa"


def test_less_than_four_characters_are_never_the_beginning_of_an_id(store: Store) -> None:
    store.apply([workflow("abcdaaaa"), run("bcdebbbb", "abcdaaaa")])
    for few in ("a", "b", "abc", "bcd"):
        with pytest.raises(UnknownWorkflow):
            store.find_workflow(few)
        with pytest.raises(UnknownRun):
            store.find_run(few)


def test_the_eight_characters_that_lists_show_of_an_id_may_all_be_digits(store: Store) -> None:
    uuid = "12345678-0000-4000-8000-000000000000"
    store.apply([workflow(A), run(uuid, A)])
    assert store.find_run("12345678").uuid == uuid


# -- what happened to a run


def test_events_come_back_in_the_order_they_came_and_once(store: Store) -> None:
    facts: list[RunFact] = [UserDataSet("n", {"k": [1, "ü", None]}, "job"), StopAskedFor("drain", "ann")]
    writes: list[Write] = [begun(R1), *(noted(R1, fact) for fact in facts), over(R1)]
    store.apply([workflow(A), run(R1, A), noted(R2, facts[0])])
    for write in writes:
        store.apply([write])
    store.apply(writes)
    events = store.run_events(R1)
    assert [event for _, event in events] == [write.event for write in writes]  # type: ignore[union-attr]
    assert all(isinstance(event, RunEvent) for _, event in events)
    cpus = [place for place, _ in events]
    assert cpus == sorted(set(cpus))
    assert store.run_events(R1, cpus[1]) == events[2:]
    assert store.run_events("nothing") == []


def batch(first: int, *names: str, token: str = "") -> JobsSpawned:
    jobs = tuple(JobSpec(name=name, command="true", env={"k": "ü"}, priority=2) for name in names)
    return JobsSpawned(
        orchestrator=0,
        attempt=1,
        lineage="loop",
        iteration=1,
        first=first,
        jobs=jobs,
        state={"at": [1, None]},
        token=token,
    )


def test_jobs_that_were_added_to_a_run_come_back_with_it_and_are_counted(store: Store) -> None:
    store.apply([workflow(A), run(R1, A, jobs=2), run(R2, A, jobs=2)])
    batches = [batch(2, "a", "b"), batch(4, "c"), batch(5)]
    for one in batches:
        store.apply([noted(R1, one)])
    found = store.find_run(R1)
    assert found.spawned == tuple(batches)
    assert (found.jobs, found.declared_jobs) == (5, 2)
    assert [(one.jobs, one.spawned) for one in store.runs(A)] == [(5, ()), (2, ())]
    assert (store.find_run(R2).jobs, store.find_run(R2).declared_jobs) == (2, 2)


def test_of_two_batches_under_one_uuid_the_first_stays(store: Store) -> None:
    store.apply([workflow(A), run(R1, A, jobs=2)])
    uuid = "eeee5555-0000-4000-8000-000000000000"
    for token in ("first", "second"):
        store.apply([noted(R1, batch(2, token, token=token), uuid=uuid)])
    assert [one.token for one in store.find_run(R1).spawned] == ["first"]


def test_a_run_read_and_written_again_keeps_how_many_jobs_its_file_has(store: Store) -> None:
    store.apply([workflow(A), run(R1, A, jobs=2), noted(R1, batch(2, "a"))])
    found = store.find_run(R1)
    store.apply([RunCreated(msgspec.structs.replace(found, uuid=R2))])  # as a copy of a store does
    assert store.find_run(R2).jobs == 2


def test_the_status_of_a_run_is_what_its_events_tell(store: Store) -> None:
    later = Owner("other", 1, 2, "boot")
    store.apply([workflow(A), run(R1, A)])
    steps = [
        (begun(R1, at_us=NOON_US), (RunStatus.RUNNING, NOON_US, None, OWNER)),
        (over(R1, RunStatus.STOPPED, at_us=NOON_US + 5), (RunStatus.STOPPED, NOON_US, NOON_US + 5, OWNER)),
        (begun(R1, at_us=NOON_US + 9, owner=later), (RunStatus.RUNNING, NOON_US, None, later)),
        (over(R1, at_us=NOON_US + 12), (RunStatus.COMPLETED, NOON_US, NOON_US + 12, later)),
    ]
    for write, expected in steps:
        store.apply([write])
        found = store.find_run(R1)
        assert (found.status, found.started_at_us, found.ended_at_us, found.owner) == expected
        (listed,) = store.runs(A)
        assert (listed.status, listed.started_at_us, listed.ended_at_us, listed.owner) == expected


def test_an_end_that_was_written_late_does_not_end_the_next_try(store: Store) -> None:
    store.apply([workflow(A), run(R1, A), begun(R1, at_us=NOON_US), begun(R1, at_us=NOON_US + 9)])
    store.apply([over(R1, RunStatus.FAILED, at_us=NOON_US + 5)])
    assert store.find_run(R1).status is RunStatus.RUNNING


def test_requests_that_were_raised_come_with_the_whole_run(store: Store) -> None:
    first, second = RaisedRequest(0, 1, memory_bytes=7, why="killed"), RaisedRequest(2, 1, timeout_s=1.5)
    store.apply([workflow(A), run(R1, A), run(R2, A), begun(R1)])
    store.apply([noted(R1, RequirementsRaised((first,)), at_us=NOON_US + 1), noted(R1, JobsReset(((0, 1),)))])
    store.apply([noted(R1, RequirementsRaised((second,), by="ann"), at_us=NOON_US + 2)])
    assert store.find_run(R1).raised == (first, second)
    assert store.find_run(R2).raised == ()
    assert [one.raised for one in store.runs(A)] == [(), ()]
    store.apply([RunCreated(msgspec.structs.replace(store.find_run(R1), uuid="new", workflow_uuid=A))])
    assert store.find_run("new").raised == (), "they are facts of the run, not part of it"


# -- results


def test_results_are_every_attempt_by_place_and_attempt(store: Store) -> None:
    store.apply([workflow(A), run(R1, A), run(R2, A)])
    store.apply([*attempt(R1, 2), *attempt(R1, 0, 2), *attempt(R1, 0, 1, Status.FAILED), *attempt(R2, 0)])
    store.apply([queued("q1", run=RunLink(R1, 5)), queued("s1", run=RunLink(R1, 4)), started("s1")])
    found = [(each.index, each.attempt, each.status.value) for each in store.run_results(R1)]
    assert found == [
        (0, 1, "failed"),
        (0, 2, "success"),
        (2, 1, "success"),
        (4, 1, "running"),
        (5, 1, "queued"),
    ]
    assert store.run_results("nothing") == []


def test_what_is_unfinished_of_one_run_is_reported_without_the_rest(store: Store) -> None:
    store.apply([workflow(A), run(R1, A), run(R2, A), *attempt(R1, 0, uuid="over")])
    store.apply([queued("q1", run=RunLink(R1, 5)), queued("s1", run=RunLink(R1, 4)), started("s1")])
    store.apply([queued("q2", run=RunLink(R2, 0)), queued("alone")])
    assert sorted(one.job.uuid for one in store.running(run=R1)) == ["q1", "s1"]
    assert [one.job.uuid for one in store.running(run=R2)] == ["q2"]
    assert store.running(run="nothing") == []


def test_a_result_has_the_numbers_of_its_record(store: Store) -> None:
    link = RunLink(R1, 3, 2)
    end = ended(
        "j1", Status.FAILED, duration_s=2.5, cpu_s=1.25, memory_bytes=4096, exit_code=137, reason="signal"
    )
    store.apply([workflow(A), run(R1, A), queued("j1", run=link), started("j1", at_us=NOON_US + SECOND), end])
    (result,) = store.run_results(R1)
    assert (result.index, result.attempt, result.job_uuid) == (3, 2, "j1")
    assert result.number == store.find("j1").number
    assert (result.status, result.exit_code, result.reason) == (Status.FAILED, 137, "signal")
    assert (result.began_at_us, result.duration_s) == (NOON_US + SECOND, 2.5)
    assert (result.cpu_usec, result.memory_bytes) == (1_250_000, 4096)


def test_commands_of_actions_belong_to_the_run_and_are_no_results(store: Store) -> None:
    store.apply([workflow(A), run(R1, A), *attempt(R1, -1, uuid="action"), *attempt(R1, 0, uuid="job")])
    assert [each.job_uuid for each in store.run_results(R1)] == ["job"]
    found = store.records(HistoryQuery(run_uuid=R1))
    assert sorted(record.job.uuid for record in found) == ["action", "job"]


def test_history_and_statistics_can_be_of_one_run(store: Store) -> None:
    store.apply([workflow(A), run(R1, A), run(R2, A), *whole_job("loose")])
    store.apply([*attempt(R1, 0, uuid="one"), *attempt(R2, 0, uuid="two", status=Status.FAILED)])
    assert [record.job.uuid for record in store.records(HistoryQuery(run_uuid=R2))] == ["two"]
    assert store.statistics(HistoryQuery(run_uuid=R2)).overall.by_status == {"failed": 1}
    assert list(store.records(HistoryQuery(run_uuid="nothing"))) == []
    assert store.statistics(HistoryQuery(run_uuid="nothing")).overall.jobs == 0


# -- applying again, out of order, twice


def _a_whole_run() -> list[Write]:
    return [
        workflow(A),
        run(R1, A, spec_text="x"),
        begun(R1),
        *attempt(R1, 0, uuid="j0"),
        *attempt(R1, 1, uuid="j1", status=Status.FAILED),
        noted(R1, UserDataSet("n", 1)),
        over(R1, RunStatus.FAILED, at_us=NOON_US + 9),
    ]


def _everything(
    store: Store,
) -> tuple[Run, list[tuple[int, str, Status, float | None]], list[tuple[str, int]], list[str]]:
    found = store.find_run(R1)
    results = [(each.index, each.job_uuid, each.status, each.duration_s) for each in store.run_results(R1)]
    events = sorted((event.uuid, event.at_us) for _, event in store.run_events(R1))
    return found, results, events, [each.uuid for each in store.workflows()]


def test_applying_the_same_run_twice_changes_nothing(store: Store) -> None:
    writes = _a_whole_run()
    store.apply(writes)
    before = _everything(store), store.run_events(R1)
    store.apply(writes)
    for write in writes:
        store.apply([write])
    assert (_everything(store), store.run_events(R1)) == before
    check = store.check()
    assert (check.problems, check.workflows, check.runs) == ((), 1, 1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("at_once", [1, 4])
def test_writes_about_a_run_may_come_in_any_order(store: Store, seed: int, at_once: int) -> None:
    writes = _a_whole_run()
    random.Random(seed).shuffle(writes)
    for start in range(0, len(writes), at_once):
        store.apply(writes[start : start + at_once])
    found, results, events, workflows = _everything(store)
    assert (found.status, found.number, found.workflow_number, found.spec_text) == (
        RunStatus.FAILED,
        1,
        1,
        "x",
    )
    assert results == [(0, "j0", Status.SUCCESS, 1.0), (1, "j1", Status.FAILED, 1.0)]
    assert len(events) == 3
    assert workflows == [A]
    assert store.check().problems == ()


def test_a_run_that_is_only_known_cannot_be_found_and_is_reported_by_the_check(store: Store) -> None:
    store.apply(attempt(R1, 0))
    with pytest.raises(UnknownRun):
        store.find_run(R1)
    assert len(store.run_results(R1)) == 1
    assert "1 runs are named by jobs or events" in store.check().problems[0]


def test_what_one_wrote_another_reads(open_store: Callable[[], Store]) -> None:
    writer, reader = open_store(), open_store()
    writer.apply(_a_whole_run())
    assert reader.find_run("1.1").status is RunStatus.FAILED
    assert len(reader.run_results(R1)) == 2


def test_two_that_create_runs_at_once_get_different_numbers(open_store: Callable[[], Store]) -> None:
    one, other = open_store(), open_store()
    one.apply([workflow(A)])
    for place in range(5):
        one.apply([run(f"one{place}", A)])
        other.apply([run(f"other{place}", A)])
    assert [each.number for each in one.runs(A)] == list(range(1, 11))
