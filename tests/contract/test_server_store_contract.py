"""What every store must do for a server: tokens, audit log, repeated requests, notes, tags."""

import threading
from collections.abc import Callable

from msgspec.structs import replace

from joblens.model.access import ApiToken, AuditEntry, AuditQuery, IdempotentRequest, Role, Scope
from joblens.model.history import Annotation, HistoryQuery
from joblens.model.writes import AuditNoted, JobAnnotated
from joblens.ports.store import QueueStore
from tests.builders.writes import NOON_US, SECOND, queued, whole_job

TOKEN = ApiToken(
    id="t1",
    name="grafana",
    hash="a" * 64,
    user="ann",
    role=Role.READER,
    scope=Scope.OWN,
    created_at_us=NOON_US,
    expires_at_us=NOON_US + 60 * SECOND,
)


def test_a_token_is_found_by_the_hash_of_its_secret(store: QueueStore) -> None:
    store.add_token(TOKEN)
    assert store.token_of_hash("a" * 64) == TOKEN
    assert store.token_of_hash("b" * 64) is None


def test_a_token_that_is_added_twice_stays_as_it_was(store: QueueStore) -> None:
    store.add_token(TOKEN)
    store.add_token(replace(TOKEN, role=Role.ADMIN))
    assert store.tokens() == [TOKEN]


def test_tokens_are_listed_newest_first(store: QueueStore) -> None:
    newer = replace(TOKEN, id="t2", hash="b" * 64, created_at_us=NOON_US + 1, expires_at_us=None)
    store.add_token(TOKEN)
    store.add_token(newer)
    assert store.tokens() == [newer, TOKEN]


def test_a_token_is_revoked_once(store: QueueStore) -> None:
    store.add_token(TOKEN)
    assert store.revoke_token("t1", NOON_US + 5)
    assert not store.revoke_token("t1", NOON_US + 9)
    assert not store.revoke_token("none", NOON_US)
    (known,) = store.tokens()
    assert known.revoked_at_us == NOON_US + 5
    assert not known.is_valid(NOON_US + 6)


def test_a_token_gets_another_expiry_unless_it_is_revoked(store: QueueStore) -> None:
    store.add_token(TOKEN)
    assert TOKEN.is_valid(NOON_US + 59 * SECOND)
    assert store.expire_token("t1", NOON_US + 1)
    assert not store.tokens()[0].is_valid(NOON_US + 1)
    store.revoke_token("t1", NOON_US + 2)
    assert not store.expire_token("t1", NOON_US + 99)


def test_the_last_use_of_a_token_never_moves_back(store: QueueStore) -> None:
    store.add_token(TOKEN)
    store.token_used("t1", NOON_US + 7)
    store.token_used("t1", NOON_US + 3)
    assert store.tokens()[0].used_at_us == NOON_US + 7


def _entry(number: int, who: str = "ann", action: str = "job-tag") -> AuditEntry:
    return AuditEntry(
        uuid=f"e{number}",
        at_us=NOON_US + number,
        who=who,
        action=action,
        subject=f"job {number}",
        details={"n": number},
    )


def test_audit_entries_come_back_newest_first_and_once(store: QueueStore) -> None:
    store.apply([AuditNoted(_entry(1)), AuditNoted(_entry(2))])
    store.apply([AuditNoted(_entry(2))])
    found = store.audit_entries(AuditQuery())
    assert [replace(each, number=0) for each in found] == [_entry(2), _entry(1)]
    assert found[0].number > found[1].number > 0


def test_audit_entries_are_filtered_and_read_in_parts(store: QueueStore) -> None:
    store.apply([AuditNoted(_entry(n, who="bob" if n % 2 else "ann", action=f"a{n % 3}")) for n in range(6)])
    bobs = store.audit_entries(AuditQuery(who="bob"))
    assert [each.uuid for each in bobs] == ["e5", "e3", "e1"]
    assert [each.uuid for each in store.audit_entries(AuditQuery(action="a0"))] == ["e3", "e0"]
    assert [each.uuid for each in store.audit_entries(AuditQuery(subject="job 4"))] == ["e4"]
    assert [each.uuid for each in store.audit_entries(AuditQuery(since_us=NOON_US + 4))] == ["e5", "e4"]
    first = store.audit_entries(AuditQuery(limit=4))
    rest = store.audit_entries(AuditQuery(limit=4, before=first[-1].number))
    assert [each.uuid for each in (*first, *rest)] == ["e5", "e4", "e3", "e2", "e1", "e0"]


REQUEST = IdempotentRequest(
    user="ann", key="k", digest="d1", job_uuid="j1", at_us=NOON_US, expires_at_us=NOON_US + 10
)


def test_a_repeated_request_gets_the_job_of_the_first(store: QueueStore) -> None:
    assert store.remember_request(REQUEST) == REQUEST
    again = replace(REQUEST, job_uuid="j2", digest="d2", at_us=NOON_US + 5)
    assert store.remember_request(again) == REQUEST
    assert store.find_request("ann", "k", NOON_US + 5) == REQUEST


def test_keys_belong_to_their_user(store: QueueStore) -> None:
    bobs = replace(REQUEST, user="bob", job_uuid="j2")
    store.remember_request(REQUEST)
    assert store.remember_request(bobs) == bobs


def test_an_expired_key_may_be_used_again(store: QueueStore) -> None:
    store.remember_request(REQUEST)
    assert store.find_request("ann", "k", NOON_US + 10) is None
    later = replace(REQUEST, job_uuid="j2", at_us=NOON_US + 10, expires_at_us=NOON_US + 99)
    assert store.remember_request(later) == later


def test_of_requests_at_once_all_get_the_same_job(open_store: Callable[[], QueueStore]) -> None:
    stores = [open_store() for _ in range(4)]
    jobs: list[str] = []

    def ask(number: int, store: QueueStore) -> None:
        jobs.append(store.remember_request(replace(REQUEST, job_uuid=f"j{number}")).job_uuid)

    threads = [threading.Thread(target=ask, args=each) for each in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(jobs) == 4
    assert len(set(jobs)) == 1


def _note(number: int, job: str = "a1") -> Annotation:
    return Annotation(
        uuid=f"n{number}", job_uuid=job, at_us=NOON_US + number, author="ann", text=f"ü {number}"
    )


def test_notes_of_a_job_come_back_oldest_first_and_once(store: QueueStore) -> None:
    store.apply([queued("a1"), queued("a2")])
    store.apply([JobAnnotated(_note(2)), JobAnnotated(_note(1)), JobAnnotated(_note(3, "a2"))])
    store.apply([JobAnnotated(_note(2))])
    assert store.annotations("a1") == [_note(1), _note(2)]


def test_a_note_about_an_unknown_job_is_ignored(store: QueueStore) -> None:
    store.apply([JobAnnotated(_note(1, "nobody"))])
    assert store.annotations("nobody") == []


def test_tags_are_added_and_removed_after_the_fact(store: QueueStore) -> None:
    store.apply([*whole_job("a1", tags=("x", "y")), *whole_job("a2")])
    assert store.change_tags(["a1", "a2", "nobody"], add=["z", "y"], remove=["x"]) == ["a1", "a2"]
    assert store.find("a1").job.tags == ("y", "z")
    assert [each.job.uuid for each in store.records(HistoryQuery(tags=("x",)))] == []
    assert {each.job.uuid for each in store.records(HistoryQuery(tags=("z",)))} == {"a1", "a2"}
    assert store.check().ok


def test_tags_that_are_as_wanted_change_nothing(store: QueueStore) -> None:
    store.apply(whole_job("a1", tags=("x",)))
    assert store.change_tags(["a1"], add=["x"], remove=["q"]) == []
    assert store.change_tags(["a1"], add=[], remove=["x"]) == ["a1"]
    assert store.find("a1").job.tags == ()


def test_tags_that_many_add_at_once_are_all_there(open_store: Callable[[], QueueStore]) -> None:
    stores = [open_store() for _ in range(4)]
    stores[0].apply(whole_job("a1"))
    threads = [
        threading.Thread(target=store.change_tags, args=(["a1"],), kwargs={"add": [f"t{n}"], "remove": []})
        for n, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(stores[0].find("a1").job.tags) == {"t0", "t1", "t2", "t3"}


def test_no_job_was_deleted_yet(store: QueueStore) -> None:
    store.apply(whole_job("a1"))
    assert store.tombstones(["a1", "1"]) == []
