"""A job of a queue that loses its worker and begins again, while others read its samples and output."""

from pathlib import Path

from msgspec.structs import replace

from joblens.model.values.ids import new_uuid
from joblens.model.writes import JobStarted
from tests.builders.tickets import LEASE_S, begun, done, ticketed, under, worker
from tests.builders.writes import samples
from tests.integration.served import Served


def requeued_job(server: Served, folder: Path) -> str:
    """A job that a worker has begun, with 5 samples and 5 lines."""
    uuid = new_uuid()
    with server.store() as store:
        store.apply(ticketed(uuid, queue="q"))
        store.claim(worker(), [uuid], LEASE_S)
        store.apply([attempt_in(folder, uuid, 1), under(1, samples(uuid, 0, 5))])
    (folder / "1" / "stdout.log").write_text("old\n" * 5)
    return uuid


def attempt_in(folder: Path, uuid: str, fence: int) -> JobStarted:
    """The start of an attempt that prints into a folder of its own."""
    logs = folder / str(fence)
    logs.mkdir()
    begin = begun(uuid, fence)
    return replace(begin, attempt=replace(begin.attempt, logs_dir=str(logs)))


def begin_again(server: Served, folder: Path, uuid: str, *, is_ended: bool) -> None:
    """Takes the job from its worker; the next one claims it at once."""
    with server.store() as store:
        store.take_back(uuid, 1)
        store.claim(worker("w2"), [uuid], LEASE_S)
        begin = attempt_in(folder, uuid, 2)
        (folder / "2" / "stdout.log").write_text("new\n" * 8)
        store.apply([begin, under(2, samples(uuid, 0, 8))])
        if is_ended:
            store.apply([done(uuid, 2, stdout_bytes=32)])
