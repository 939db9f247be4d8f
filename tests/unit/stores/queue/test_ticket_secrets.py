"""What a ticket held is gone from the file when the job has ended, not only from its tables."""

from pathlib import Path

from joblens.model.delivery import Order, Ticket
from joblens.model.jobs.job import Job, Status
from joblens.model.writes import JobQueued, TicketMade, Write
from joblens.stores.sqlite import SqliteStore
from tests.builders.tickets import LEASE_S, begun, done, worker
from tests.builders.writes import NOON_US

SECRET = "hunter2-secret"
SIZES = (10, 900, 3_000, 5_000, 9_000, 40_000)  # within a page of the file, and over several


def with_secret(number: int) -> list[Write]:
    uuid = f"job-{number}"
    job = Job(uuid=uuid, argv=("true",), created_at_us=NOON_US, queue="q", user="me")
    env = {
        f"NAME_{line}": f"{SECRET}-{number}-{line}" for line in range(SIZES[number % len(SIZES)] // 30 + 1)
    }
    return [JobQueued(job), TicketMade(Ticket(uuid=uuid, queue="q", order=Order(argv=("true",), env=env)))]


def bytes_of(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def test_no_secret_of_an_ended_job_stays_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(str(path))
    for number in range(60):
        store.apply(with_secret(number))
    store.close()
    assert SECRET.encode() in bytes_of(path)
    store = SqliteStore(str(path))
    given_back = store.claim_waiting(worker("first"), 20, LEASE_S)
    store.give_back("first", {claim.job.uuid: claim.fence for claim in given_back})
    lost = store.claim_waiting(worker("second-with-a-longer-name"), 20, LEASE_S)
    for claim in lost:
        store.take_back(claim.job.uuid, claim.fence)
    while claims := store.claim_waiting(worker("third"), 7, LEASE_S):
        held = {claim.job.uuid: claim.fence for claim in claims}
        store.renew(worker("third"), held, 1e6)
        for uuid, fence in list(held.items())[1:]:
            store.apply([begun(uuid, fence), done(uuid, fence)])
        first, fence = next(iter(held.items()))
        store.give_back("third", {first: fence})
        assert store.withdraw(first)
    states = store.states([f"job-{number}" for number in range(60)]).values()
    assert set(states) == {Status.SUCCESS, Status.CANCELLED}
    store.close()
    assert SECRET.encode() not in bytes_of(path)
