"""A client that is away while its job begins again misses nothing of the new attempt."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette")

import joblens
from joblens.app.jobs.logs import OpenOutput, follow_log, open_output
from joblens.app.jobs.queries import follow_samples
from joblens.model.jobs.job import Record
from joblens.ports.store import Store
from joblens.stores.remote import RemoteLog, RemoteStore, ServerConnection
from tests.builders.tickets import LEASE_S, done, under, worker
from tests.builders.writes import samples
from tests.integration.requeued import attempt_in, begin_again, requeued_job
from tests.integration.served import EventReader, Served

API = "/api/v1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as one:
        yield one


def idents(reader: EventReader) -> list[str]:
    found = [ident for _, ident, _ in reader]
    reader.close()
    return found


def test_a_client_that_was_away_while_its_job_began_again_gets_a_reset(
    server: Served, tmp_path: Path
) -> None:
    """The new attempt is already behind the client's position."""
    uuid = requeued_job(server, tmp_path)
    path = f"{API}/jobs/{uuid}/samples/stream"
    reader = EventReader(server, path)
    events = iter(reader)
    last = [next(events)[1] for _ in range(5)][-1]
    reader.close()
    begin_again(server, tmp_path, uuid, is_ended=True)
    for again in (EventReader(server, path, last_event_id=last), EventReader(server, f"{path}?after={last}")):
        (name, _, facts), *rest = again
        assert (name, facts) == ("reset", {"reason": "job-queued-again"})
        assert [ident for _, ident, _ in rest] == [*(f"2.{index}" for index in range(8)), ""]
        assert rest[-1][0] == "end"
        again.close()
    assert idents(EventReader(server, path, last_event_id="2.3")) == ["2.4", "2.5", "2.6", "2.7", ""]
    assert idents(EventReader(server, f"{path}?after=5")) == ["2.6", "2.7", ""]  # of the present attempt


def test_a_client_that_was_away_gets_the_output_of_the_new_attempt_whole(
    server: Served, tmp_path: Path
) -> None:
    uuid = requeued_job(server, tmp_path)
    path = f"{API}/jobs/{uuid}/logs/stdout/stream"
    reader = EventReader(server, path)
    _, last, data = next(iter(reader))
    assert data["text"] == "old\n" * 5
    reader.close()
    begin_again(server, tmp_path, uuid, is_ended=True)
    again = EventReader(server, path, last_event_id=last)
    found = list(again)
    again.close()
    assert [name for name, _, _ in found] == ["reset", "log", "end"]
    assert (found[1][1], found[1][2]) == ("2.32", {"offset": 0, "text": "new\n" * 8})
    resumed = EventReader(server, path, last_event_id="2.28")
    assert next(iter(resumed))[2] == {"offset": 28, "text": "new\n"}
    resumed.close()


def test_a_job_that_waits_again_has_voided_what_a_client_has(server: Served, tmp_path: Path) -> None:
    uuid = requeued_job(server, tmp_path)
    with server.store() as store:
        store.take_back(uuid, 1)
    reader = EventReader(server, f"{API}/jobs/{uuid}/samples/stream", last_event_id="1.4")
    events = iter(reader)
    assert next(events)[::2] == ("reset", {"reason": "job-queued-again"})
    with server.store() as store:
        store.claim(worker("w2"), [uuid], LEASE_S)
        store.apply([attempt_in(tmp_path, uuid, 2), under(2, samples(uuid, 0, 2)), done(uuid, 2)])
    assert [(name, ident) for name, ident, _ in events] == [
        ("sample", "2.0"),
        ("sample", "2.1"),
        ("end", ""),
    ]
    reader.close()


def test_clients_in_python_come_back_with_the_attempt(server: Served, tmp_path: Path) -> None:
    uuid = requeued_job(server, tmp_path)
    url, token = f"http://127.0.0.1:{server.port}", server.token()
    client = joblens.Client(url, token)
    with_samples, with_output = client.stream_of_samples(uuid), client.stream_of_log(uuid)
    last = next(iter(with_samples)).id
    printed = next(iter(with_output)).id
    with_samples.close()
    with_output.close()
    begin_again(server, tmp_path, uuid, is_ended=True)
    assert [index for index, _ in client.follow_samples(uuid, last)] == list(range(8))
    assert [each.name for each in client.stream_of_log(uuid, after=printed)] == ["reset", "log", "end"]
    assert [index for index, _ in client.follow_samples(uuid, 5)] == [6, 7]
    client.close()

    async def follow() -> list[int]:
        async with joblens.AsyncClient(url, token) as other:
            return [index async for index, _ in other.follow_samples(uuid, last)]

    assert asyncio.run(follow()) == list(range(8))


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_followed_job_that_begins_again_is_printed_from_its_start(
    server: Served, tmp_path: Path, *, is_remote: bool
) -> None:
    uuid = requeued_job(server, tmp_path)
    with server.store() as local:
        connection = ServerConnection(f"http://127.0.0.1:{server.port}", server.token())
        store: Store = RemoteStore(connection) if is_remote else local

        def remote_output(record: Record, stream: str) -> RemoteLog:
            return RemoteLog(connection, record, stream, lambda _: None)

        open_it: OpenOutput = remote_output if is_remote else open_output
        output = follow_log(store, uuid, "stdout", 2, lambda: None, open_it)
        found = follow_samples(store, uuid, lambda: None)
        assert next(output) == b"old\n" * 2
        assert [next(found)[0] for _ in range(5)] == list(range(5))
        begin_again(server, tmp_path, uuid, is_ended=True)
        assert b"".join(output) == b"new\n" * 8
        assert [index for index, _ in found] == list(range(8))
        connection.close()
