"""What every store must do about what jobs ran in."""

from joblens.model.errors import StoreError
from joblens.model.jobs.details import CodeVersion, Hardware, Program, Provenance, digest_of
from joblens.model.jobs.job import Status
from joblens.model.writes import ProvenanceSeen
from joblens.ports.store import Store
from joblens.stores.sqlite import SqliteStore
from joblens.stores.wrappers.journal import JournaledStore
from tests.builders.writes import ended, queued, samples, started
from tests.contract.conftest import Place
from tests.contract.test_store_copy import Two, two

__all__ = ["two"]  # a fixture

WHOLE = Provenance(
    host="node7",
    system="Debian GNU/Linux 12",
    kernel="6.1.0",
    hardware=Hardware(
        cpu_model="a ü CPU", architecture="x86_64", cpus=4, memory_bytes=1 << 34, gpus=("H200",)
    ),
    code=CodeVersion(commit="c" * 40, is_dirty=True, branch="main", root="/src", changes_digest="d"),
    programs=(Program(path="/bin/true", sha256="a" * 64, bytes=4096, version="9.1"),),
    versions={"joblens": "1", "numpy": "2.3"},
    environment={"OMP_NUM_THREADS": "4"},
    limits={"umask": "0022"},
    unknown={"gpus": "not looked for"},
)


def test_what_jobs_ran_in_comes_back_by_its_digest(store: Store) -> None:
    digest = digest_of(WHOLE)
    store.apply([ProvenanceSeen(digest, WHOLE), queued("a1"), started("a1", provenance=digest)])
    record = store.find("a1")
    assert record.attempt is not None
    assert store.provenance(record.attempt.provenance) == WHOLE
    assert store.provenance("nobody knows") is None


def test_said_twice_in_one_batch_and_in_two_it_is_there_once(store: Store) -> None:
    other = Provenance(host="another")
    first, second = ProvenanceSeen("d1", WHOLE), ProvenanceSeen("d2", other)
    store.apply([first, second, first])
    store.apply([second])
    store.apply([ProvenanceSeen("d1", other)])  # a digest is a promise: what was there first stays
    assert (store.provenance("d1"), store.provenance("d2")) == (WHOLE, other)
    assert store.check().ok


def test_a_start_may_be_said_again_with_what_it_ran_in(store: Store) -> None:
    store.apply([queued("a1"), started("a1")])
    store.apply([samples("a1", 0, 2)])
    store.apply([ProvenanceSeen("d1", WHOLE), started("a1", provenance="d1"), ended("a1")])
    record = store.find("a1")
    assert record.status is Status.SUCCESS
    assert record.attempt is not None
    assert record.attempt.provenance == "d1"


def test_pruning_leaves_what_jobs_ran_in(store: Store) -> None:
    store.apply([ProvenanceSeen("d1", WHOLE), queued("a1"), started("a1", provenance="d1")])
    store.apply([samples("a1", 0, 5), ended("a1")])
    assert store.prune(before_us=None, max_bytes=0, dry_run=False).jobs == 1
    assert store.provenance("d1") == WHOLE


def test_equal_values_have_one_digest_whatever_the_order_of_their_parts() -> None:
    one = Provenance(versions={"a": "1", "b": "2"})
    other = Provenance(versions={"b": "2", "a": "1"})
    assert digest_of(one) == digest_of(other)
    assert digest_of(one) != digest_of(Provenance(versions={"a": "1"}))


def test_a_copy_of_a_store_has_what_its_jobs_ran_in(two: Two) -> None:
    for uuid in ("a1", "b1"):
        two.source.apply(
            [ProvenanceSeen("d1", WHOLE), queued(uuid), started(uuid, provenance="d1"), ended(uuid)]
        )
    two.source.apply([queued("c1"), started("c1", provenance="never came"), ended("c1")])
    assert two.copy().jobs == 3
    assert two.target.provenance("d1") == WHOLE
    assert two.target.find("a1") == two.source.find("a1")


def test_it_waits_in_the_journal_while_the_store_is_away(place: Place) -> None:
    path, is_away = str(place.folder / "store.db"), True

    def opened() -> SqliteStore:
        if is_away:
            raise StoreError("away")
        return SqliteStore(path)

    journals = str(place.folder / "journals")
    journaled = JournaledStore(opened, journals, warn=lambda _: None, url=path)
    journaled.apply([ProvenanceSeen("d1", WHOLE), queued("a1"), started("a1", provenance="d1")])
    is_away = False
    journaled.close()  # brings in what waits
    store = SqliteStore(path)
    assert store.provenance("d1") == WHOLE
    store.close()
