"""What every store must do when jobs are deleted."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joblens.model.access import AuditQuery
from joblens.model.errors import UnknownJob
from joblens.model.history import Annotation, HistoryQuery, Tombstone
from joblens.model.jobs.details import Provenance
from joblens.model.jobs.job import Finding, Severity, Status
from joblens.model.values.ids import new_uuid
from joblens.model.writes import CancelAsked, JobAnnotated, ProvenanceSeen
from joblens.ports.store import QueueStore
from tests.builders.runs import attempt, begun, run, workflow
from tests.builders.writes import NOON_US, ended, queued, samples, started, threads, whole_job

LATER = NOON_US + 99


def test_everything_about_a_deleted_job_goes(store: QueueStore) -> None:
    finding = Finding("slow-start", Severity.INFO, "text")
    store.apply([queued("a1", name="n", tags=("x",), external_id="own"), started("a1")])
    store.apply([samples("a1", 0, 50), threads("a1"), CancelAsked("a1", NOON_US, "ann")])
    store.apply([ended("a1", findings=(finding,))])
    store.apply([JobAnnotated(Annotation(uuid="n", job_uuid="a1", at_us=1, author="ann", text="t"))])
    number = store.number_of("a1")
    (gone,) = store.delete_jobs(["a1"], by="ann", at_us=LATER)
    assert gone == Tombstone(
        uuid="a1",
        number=number,
        external_id="own",
        name="n",
        user="",
        status=Status.SUCCESS,
        deleted_at_us=LATER,
        deleted_by="ann",
    )
    assert store.samples("a1") == []
    assert store.details("a1").threads is None
    assert store.annotations("a1") == []
    assert store.cancel_requests() == {}
    for query in (HistoryQuery(), HistoryQuery(tags=("x",)), HistoryQuery(findings=("slow-start",))):
        assert list(store.records(query)) == []
    assert store.tagged("x") == []
    assert store.check().ok


def test_a_deleted_job_is_reported_as_such(store: QueueStore) -> None:
    uuid = "a1b2c3d4-0000-4000-8000-000000000000"
    store.apply(whole_job(uuid, external_id="own"))
    number = store.number_of(uuid)
    store.delete_jobs([uuid], by="ann", at_us=LATER)
    for ident in (uuid, "own", str(number), uuid[:8], "a1b2"):
        with pytest.raises(UnknownJob, match=f"job {number} was deleted by ann at 2025-11-15T12:00:00 UTC"):
            store.find(ident)
    for ident in (uuid, "own", str(number)):
        assert [each.uuid for each in store.tombstones([ident])] == [uuid]
    with pytest.raises(UnknownJob, match="no job has the ID 'a1'"):
        store.find("a1")


def test_each_deletion_is_in_the_audit_log(store: QueueStore) -> None:
    store.apply([*whole_job("a1", name="one"), *whole_job("a2")])
    store.delete_jobs(["a1", "a2"], by="ann", at_us=LATER)
    entries = store.audit_entries(AuditQuery(action="job-delete"))
    assert [(each.subject, each.who, each.at_us) for each in entries] == [
        ("a2", "ann", LATER),
        ("a1", "ann", LATER),
    ]
    assert entries[1].details["name"] == "one"


def test_jobs_that_have_not_ended_and_unknown_ones_stay(store: QueueStore) -> None:
    store.apply([queued("a1"), queued("a2"), started("a2"), *whole_job("a3")])
    gone = store.delete_jobs(["a1", "a2", "a3", "nobody"], by="ann", at_us=LATER)
    assert [each.uuid for each in gone] == ["a3"]
    assert store.count(HistoryQuery()) == 2
    assert store.delete_jobs(["a3"], by="ann", at_us=LATER) == []


def test_the_number_of_a_deleted_job_is_not_given_out_again(store: QueueStore) -> None:
    store.apply(whole_job("a1"))
    number = store.number_of("a1")
    store.delete_jobs(["a1"], by="ann", at_us=LATER)
    store.apply(whole_job("a2"))
    assert store.number_of("a2") > number


def test_late_writes_about_a_deleted_job_are_ignored(store: QueueStore) -> None:
    store.apply(whole_job("a1", sample_count=3))
    store.delete_jobs(["a1"], by="ann", at_us=LATER)
    store.apply([*whole_job("a1", sample_count=3), threads("a1"), *whole_job("a2")])
    store.apply([samples("a1", 3, 2)])
    assert [each.job.uuid for each in store.records(HistoryQuery())] == ["a2"]
    assert store.samples("a1") == []
    assert store.check().ok


def test_an_environment_goes_with_the_last_job_that_ran_in_it(store: QueueStore) -> None:
    shared, own = Provenance(host="shared"), Provenance(host="own")
    store.apply([ProvenanceSeen("d1", shared), ProvenanceSeen("d2", own)])
    for uuid, digest in (("a1", "d1"), ("a2", "d1"), ("a3", "d2")):
        store.apply([queued(uuid), started(uuid, provenance=digest), ended(uuid)])
    store.delete_jobs(["a1", "a3"], by="ann", at_us=LATER)
    assert store.provenance("d1") == shared
    assert store.provenance("d2") is None
    store.delete_jobs(["a2"], by="ann", at_us=LATER)
    assert store.provenance("d1") is None


def test_a_success_that_was_deleted_is_still_a_result_of_its_run(store: QueueStore) -> None:
    store.apply([workflow("w1"), run("r1", "w1")])
    for index in range(3):
        store.apply(attempt("r1", index, uuid=f"a{index}"))
    store.delete_jobs(["a1"], by="ann", at_us=LATER)
    assert [(one.index, one.job_uuid, one.status) for one in store.run_results("r1")] == [
        (index, f"a{index}", Status.SUCCESS) for index in range(3)
    ]


def test_a_workflow_is_deleted_when_its_jobs_are(store: QueueStore) -> None:
    store.apply([workflow("w1"), run("r1", "w1"), begun("r1"), *attempt("r1", 0, uuid="a0")])
    assert not store.delete_workflow("w1")
    assert len(store.workflows()) == 1
    store.delete_jobs(["a0"], by="ann", at_us=LATER)
    assert store.delete_workflow("w1")
    assert store.workflows() == []
    assert store.run_results("r1") == []
    assert [each.uuid for each in store.tombstones(["a0"])] == ["a0"]
    assert store.check().ok


_JOBS = st.lists(
    st.tuples(
        st.sampled_from(("", "t1", "t2")),
        st.sampled_from((Status.SUCCESS, Status.FAILED, Status.LOST)),
        st.sampled_from((0.0, 0.5, 1.0, 7.25)),
        st.sampled_from((None, 0, 1 << 20, 5 << 30)),
        st.booleans(),
    ),
    max_size=12,
)


@given(jobs=_JOBS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_statistics_after_a_deletion_equal_a_fresh_count(
    store: QueueStore, jobs: list[tuple[str, Status, float, int | None, bool]]
) -> None:
    doomed: list[str] = []
    for tool, status, duration_s, memory, is_doomed in jobs:
        uuid = new_uuid()
        store.apply(whole_job(uuid, status, tool=tool, duration_s=duration_s, memory_bytes=memory))
        doomed += [uuid] if is_doomed else []
    store.delete_jobs(doomed, by="ann", at_us=LATER)
    assert store.check().problems == ()
    # A query that needs the jobs themselves counts them afresh.
    assert store.statistics(HistoryQuery()) == store.statistics(HistoryQuery(since_us=0))
