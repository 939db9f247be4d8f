"""Event streams: everything once and in order, whatever happens to clients, the store and the server."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from joblens.app.server.streams import LogSource, RunEventSource
from joblens.model.errors import StoreError, UnknownRun
from joblens.model.runs.run import Run, RunEnded, RunEvent, RunStarted, RunStatus, Workflow
from joblens.model.values.ids import new_uuid
from joblens.model.writes import RunCreated, RunNoted, WorkflowCreated
from joblens.ports.store import QueueStore
from joblens.web import auth, streams
from joblens.web.store_threads import StoreThreads
from tests.builders.tickets import done
from tests.builders.writes import NOON_US, ended, queued, samples, started
from tests.integration.requeued import begin_again, requeued_job
from tests.integration.served import EventReader, Served
from tests.servers import PostgresServer

API = "/api/v1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as one:
        yield one


def running_job(server: Served, count: int = 0, **attempt: Any) -> str:
    made = queued()
    uuid = made.job.uuid
    server.apply(made, started(uuid, **attempt))
    if count:
        server.apply(samples(uuid, 0, count))
    return uuid


def index_of(ident: str) -> int:
    return int(ident.rpartition(".")[2])


def indexes(reader: EventReader, most: int | None = None) -> list[int]:
    """Returns ids of samples up to the end of the stream, or the first `most`."""
    found: list[int] = []
    for name, ident, _ in reader:
        if name == "sample":
            found.append(index_of(ident))
        if name == "end" or len(found) == most:
            break
    reader.close()
    return found


def test_history_comes_first_and_then_live_until_the_end(server: Served) -> None:
    uuid = running_job(server, 700)  # more than a topic keeps
    reader = EventReader(server, f"{API}/jobs/{uuid}/samples/stream")
    found: list[int] = []
    for name, ident, data in reader:
        if name == "sample":
            found.append(index_of(ident))
            assert data["elapsed_us"] == index_of(ident) * 1_000_000
        if len(found) == 700:
            server.apply(samples(uuid, 700, 5))
        if len(found) == 705:
            server.apply(samples(uuid, 705, 1), ended(uuid))
        if name == "end":
            assert data == {"reason": "job-ended", "status": "success"}
            break
    reader.close()
    assert found == list(range(706))


def test_a_client_that_comes_back_gets_the_rest_once(server: Served) -> None:
    uuid = running_job(server, 20)
    path = f"{API}/jobs/{uuid}/samples/stream"
    first = indexes(EventReader(server, path), most=8)
    server.apply(samples(uuid, 20, 5), ended(uuid))
    rest = indexes(EventReader(server, path, last_event_id=str(first[-1])))
    assert first + rest == list(range(25))
    assert indexes(EventReader(server, f"{path}?after=22")) == [23, 24]


def test_many_clients_of_one_job_get_every_sample_once(server: Served) -> None:
    uuid = running_job(server, 3)
    found: list[list[int]] = []
    readers = [EventReader(server, f"{API}/jobs/{uuid}/samples/stream") for _ in range(8)]
    threads = [threading.Thread(target=lambda one=each: found.append(indexes(one))) for each in readers]
    for thread in threads:
        thread.start()
    for number in range(3, 40):
        server.apply(samples(uuid, number, 1))
    server.apply(ended(uuid))
    for thread in threads:
        thread.join(30)
    assert found == [list(range(40))] * 8


def test_a_position_that_never_was_starts_again(server: Served) -> None:
    uuid = running_job(server, 3)
    reader = EventReader(server, f"{API}/jobs/{uuid}/samples/stream", last_event_id="99")
    names = []
    for name, ident, _ in reader:
        names.append(f"{name}{ident}")
        if len(names) == 4:
            break
    reader.close()
    assert names == ["reset", "sample1.0", "sample1.1", "sample1.2"]


@pytest.mark.parametrize("is_ended", [True, False])
def test_a_job_that_begins_again_at_once_is_reported_and_sent_from_its_first_sample(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_ended: bool
) -> None:
    """All between two looks of the server at the store."""
    monkeypatch.setattr(streams, "_POLL_S", 0.6)
    uuid = requeued_job(server, tmp_path)
    reader = EventReader(server, f"{API}/jobs/{uuid}/samples/stream")
    events = iter(reader)
    assert [next(events)[1] for _ in range(5)] == [f"1.{index}" for index in range(5)]
    begin_again(server, tmp_path, uuid, is_ended=is_ended)
    assert next(events)[::2] == ("reset", {"reason": "job-queued-again"})
    assert [next(events)[1] for _ in range(8)] == [f"2.{index}" for index in range(8)]
    server.apply(done(uuid, 2))
    assert next(events)[::2] == ("end", {"reason": "job-ended", "status": "success"})
    reader.close()


@pytest.mark.parametrize("is_ended", [True, False])
def test_output_of_a_job_that_begins_again_starts_again(
    server: Served, tmp_path: Path, *, is_ended: bool
) -> None:
    uuid = requeued_job(server, tmp_path)
    reader = EventReader(server, f"{API}/jobs/{uuid}/logs/stdout/stream")
    events = iter(reader)
    assert next(events)[2]["text"] == "old\n" * 5
    begin_again(server, tmp_path, uuid, is_ended=is_ended)
    assert next(events)[::2] == ("reset", {"reason": "job-queued-again"})
    assert next(events)[2] == {"offset": 0, "text": "new\n" * 8}
    server.apply(done(uuid, 2, stdout_bytes=32))
    assert next(events)[0] == "end"
    reader.close()


@pytest.mark.parametrize("kind", ["samples", "logs/stdout"])
def test_a_new_attempt_is_reported_also_if_another_stream_cannot_be_read(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(streams, "_LONGEST_PAUSE_S", 0.2)
    lost: list[Any] = []

    def read(hub: StoreThreads, function: Callable[[QueueStore], Any]) -> Any:
        found = call_here(hub, function)
        if isinstance(found, dict) and any(getattr(each, "attempt", 0) == 2 for each in found.values()):
            lost.append(found)
            if len(lost) == 1:
                raise StoreError("the store went away while another stream was read")
        return found

    call_here = StoreThreads.call_here
    monkeypatch.setattr(StoreThreads, "call_here", read)
    uuid = requeued_job(server, tmp_path)
    reader = EventReader(server, f"{API}/jobs/{uuid}/{kind}/stream")
    events = iter(reader)
    while next(events)[1] not in ("1.4", "1.20"):
        pass
    begin_again(server, tmp_path, uuid, is_ended=True)
    assert next(events)[::2] == ("reset", {"reason": "job-queued-again"})
    assert [name for name, _, _ in events][-1] == "end"
    assert lost
    reader.close()


@pytest.mark.parametrize("wrong", ["x", "1.5.2", ".5", "2.", "-2", "9" * 30, "1 OR 1=1"])
def test_a_wrong_position_is_refused(server: Served, wrong: str) -> None:
    uuid = running_job(server)
    answer = server.get(f"{API}/jobs/{uuid}/samples/stream", last_event_id=wrong)
    assert answer.status == 400


def test_a_server_that_stops_tells_its_streams(server: Served) -> None:
    uuid = running_job(server, 2)
    reader = EventReader(server, f"{API}/jobs/{uuid}/samples/stream")
    events = iter(reader)
    assert [next(events)[1], next(events)[1]] == ["1.0", "1.1"]
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    assert next(events)[::2] == ("disconnect", {"reason": "shutdown"})
    stopping.join(30)
    reader.close()


def test_streams_outlast_a_store_that_disappears(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_LONGEST_PAUSE_S", 0.2)
    uuid = running_job(server, 2)
    reader = EventReader(server, f"{API}/jobs/{uuid}/samples/stream")
    events = iter(reader)
    assert [next(events)[1], next(events)[1]] == ["1.0", "1.1"]
    store = tmp_path / "joblens.db"
    store.rename(tmp_path / "away.db")
    while server.get(f"{API}/jobs/{uuid}").status != 503:
        time.sleep(0.05)
    (tmp_path / "away.db").rename(store)
    server.apply(samples(uuid, 2, 2))
    assert [next(events)[1], next(events)[1]] == ["1.2", "1.3"]
    reader.close()


def test_a_store_that_cannot_be_asked_signs_nobody_out(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_LONGEST_PAUSE_S", 0.2)
    monkeypatch.setattr(streams, "_HEARTBEAT_S", 0.05)
    monkeypatch.setattr(auth, "_TOKEN_CACHE_S", 0.0)
    uuid = running_job(server, 1)
    token = server.token()
    reader = EventReader(server, f"{API}/jobs/{uuid}/samples/stream", token)
    events = iter(reader)
    assert next(events)[1] == "1.0"
    store = tmp_path / "joblens.db"
    store.rename(tmp_path / "away.db")
    while server.get(f"{API}/jobs/{uuid}", token).status != 503:
        time.sleep(0.05)
    time.sleep(0.5)  # several checks of the token
    (tmp_path / "away.db").rename(store)
    server.apply(samples(uuid, 1, 1), ended(uuid))
    assert [next(events)[:2], next(events)[0]] == [("sample", "1.1"), "end"]
    reader.close()


def test_streams_outlast_a_database_that_is_restarted(
    own_postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_LONGEST_PAUSE_S", 0.2)
    with Served(tmp_path, store=own_postgres.new_database()) as server:
        uuid = running_job(server, 2)
        reader = EventReader(server, f"{API}/jobs/{uuid}/samples/stream")
        events = iter(reader)
        assert [next(events)[1], next(events)[1]] == ["1.0", "1.1"]
        own_postgres.kill()
        assert server.get(f"{API}/jobs/{uuid}").status == 503
        stranger = server.get(f"{API}/jobs/{uuid}", "jl_wrong")
        assert (stranger.status, "postgresql" in stranger.text) == (503, False)
        own_postgres.start()
        server.apply(samples(uuid, 2, 2), ended(uuid))
        assert [next(events)[1], next(events)[1], next(events)[0]] == ["1.2", "1.3", "end"]
        reader.close()


def test_more_streams_than_allowed_are_refused(tmp_path: Path) -> None:
    with Served(tmp_path, max_streams=1) as server:
        uuid = running_job(server, 1)
        path = f"{API}/jobs/{uuid}/samples/stream"
        reader = EventReader(server, path)
        next(iter(reader))
        answer = server.get(path)
        assert (answer.status, "max_streams" in answer.json["hint"]) == (503, True)
        reader.close()


def test_a_stream_of_a_revoked_token_ends(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_HEARTBEAT_S", 0.2)
    uuid = running_job(server, 1)
    reader = EventReader(server, f"{API}/jobs/{uuid}/samples/stream", server.token())
    events = iter(reader)
    next(events)
    (ident,) = [each["id"] for each in server.get(f"{API}/tokens").json["items"]]
    server.ask("DELETE", f"{API}/tokens/{ident}")
    assert next(events)[::2] == ("disconnect", {"reason": "signed-out"})
    reader.close()


def test_a_busy_stream_of_a_revoked_token_ends_too(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_HEARTBEAT_S", 1.0)
    uuid = running_job(server, 1)
    reader = EventReader(server, f"{API}/jobs/{uuid}/samples/stream", server.token())
    events = iter(reader)
    next(events)
    (ident,) = [each["id"] for each in server.get(f"{API}/tokens").json["items"]]
    server.ask("DELETE", f"{API}/tokens/{ident}")
    names = []
    for number in range(1, 100):
        server.apply(samples(uuid, number, 1))
        names.append(next(events)[0])
        if names[-1] != "sample":
            break
    reader.close()
    assert names[-1] == "disconnect"


def test_a_position_that_the_server_has_not_polled_yet_is_known(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_POLL_S", 1.0)
    uuid = running_job(server, 3)
    path = f"{API}/jobs/{uuid}/samples/stream"
    other = EventReader(server, path)  # its topic is polled once per second
    next(iter(other))
    server.apply(samples(uuid, 3, 3))
    reader = EventReader(server, f"{path}?after=5")
    server.apply(samples(uuid, 6, 1), ended(uuid))
    assert [(name, ident) for name, ident, _ in reader] == [("sample", "1.6"), ("end", "")]
    reader.close()
    other.close()


def test_a_reader_that_does_not_read_is_cut_off_and_others_go_on(
    tmp_path: Path,
) -> None:
    with Served(tmp_path, write_timeout=0.5) as server:
        uuid = running_job(server, 20_000)
        request = f"GET {API}/jobs/{uuid}/samples/stream HTTP/1.1\r\nHost: localhost\r\n"
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(f"{request}Authorization: Bearer {server.token()}\r\n\r\n".encode())
        hub = server.serving.application.hub
        until = time.monotonic() + 30
        while hub.streams == 0:
            assert time.monotonic() < until
            time.sleep(0.02)
        while hub.streams:
            assert time.monotonic() < until
            time.sleep(0.05)
        server.apply(ended(uuid))
        assert indexes(EventReader(server, f"{API}/jobs/{uuid}/samples/stream?after=19990")) == list(
            range(19_991, 20_000)
        )
        slow.close()


def test_output_is_followed_to_its_end(server: Served, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log = folder / "stdout.log"
    log.write_bytes(b"first\n")
    uuid = running_job(server, logs_dir=str(folder))
    reader = EventReader(server, f"{API}/jobs/{uuid}/logs/stdout/stream")
    text, ident = "", ""
    for name, position, data in reader:
        if name == "log":
            assert data["offset"] == len(text.encode())
            text += data["text"]
            ident = position
        if text == "first\n":
            with log.open("ab") as file:
                file.write("zweite Zeile: ä".encode()[:-1])  # half a character
            time.sleep(0.3)
            with log.open("ab") as file:
                file.write("ä".encode()[-1:] + b"\n")
        if text.endswith("ä\n"):
            server.apply(ended(uuid, stdout_bytes=log.stat().st_size))
        if name == "end":
            break
    reader.close()
    assert (text, index_of(ident)) == ("first\nzweite Zeile: ä\n", log.stat().st_size)
    again = EventReader(server, f"{API}/jobs/{uuid}/logs/stdout/stream", last_event_id="6")
    assert next(iter(again))[2]["text"] == "zweite Zeile: ä\n"
    again.close()


def test_a_reader_that_comes_back_inside_a_chunk_gets_no_byte_twice(server: Served, tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_bytes(b"-")
    uuid = running_job(server, logs_dir=str(tmp_path))
    path = f"{API}/jobs/{uuid}/logs/stdout/stream"
    first = EventReader(server, path)
    events = iter(first)
    assert next(events)[2]["text"] == "-"
    log.write_bytes(b"-123456789")
    assert next(events)[2] == {"offset": 1, "text": "123456789"}  # one chunk, which the server keeps
    before = EventReader(server, f"{path}?after=-1")  # as of samples: everything
    assert next(iter(before))[2] == {"offset": 0, "text": "-123456789"}
    before.close()
    second = EventReader(server, f"{path}?after=4")
    others = iter(second)
    assert next(others)[2] == {"offset": 4, "text": "456789"}
    with log.open("ab") as file:
        file.write(b"end")
    server.apply(ended(uuid, stdout_bytes=13))
    for rest in (events, others):
        assert [data.get("text") for _, _, data in rest] == ["end", None]
    first.close()
    second.close()


def test_a_source_that_was_closed_opens_no_file_again(server: Served, tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_text("hello")
    uuid = running_job(server, logs_dir=str(tmp_path))
    source = LogSource(uuid, "stdout")
    with server.store() as store:
        assert source.read(store, 0).events
        source.close()
        before = len(os.listdir("/proc/self/fd"))
        assert source.read(store, 0).events == ()  # the poller was about to read it
        assert len(os.listdir("/proc/self/fd")) == before


def test_bytes_that_are_no_text_arrive_as_they_are(server: Served, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "stdout.log").write_bytes(b"\xff\x00\xfe")
    uuid = running_job(server, logs_dir=str(folder))
    server.apply(ended(uuid, stdout_bytes=3))
    reader = EventReader(server, f"{API}/jobs/{uuid}/logs/stdout/stream")
    events = list(reader)
    reader.close()
    assert events[0][2] == {"offset": 0, "base64": "/wD+"}


def begun_run(server: Served) -> Run:
    workflow = Workflow(uuid=new_uuid(), name="w", created_at_us=NOON_US, user="ana")
    run = Run(uuid=new_uuid(), workflow_uuid=workflow.uuid, created_at_us=NOON_US, user="ana")
    owner = started("x").attempt.owner
    begun = RunEvent(new_uuid(), run.uuid, NOON_US, RunStarted(owner))
    server.apply(WorkflowCreated(workflow), RunCreated(run), RunNoted(begun))
    return run


def test_events_of_a_run_are_followed(server: Served) -> None:
    run = begun_run(server)
    reader = EventReader(server, f"{API}/runs/{run.uuid}/events/stream")
    events = iter(reader)
    name, _, data = next(events)
    assert (name, data["fact"]["type"]) == ("run-event", "started")
    server.apply(RunNoted(RunEvent(new_uuid(), run.uuid, NOON_US + 1, RunEnded(RunStatus.COMPLETED))))
    assert next(events)[2]["fact"]["type"] == "ended"
    assert next(events)[::2] == ("end", {"reason": "run-ended", "status": "completed"})
    reader.close()


def test_a_stream_of_a_deleted_job_ends(server: Served) -> None:
    uuid = running_job(server, 1)
    reader = EventReader(server, f"{API}/jobs/{uuid}/logs/stdout/stream")
    server.apply(ended(uuid))
    with server.store() as store:
        store.delete_jobs([uuid], by="ana", at_us=NOON_US)
    names = [name for name, _, _ in reader]
    reader.close()
    assert names == ["end"]


def test_a_stream_ends_when_its_run_is_deleted_before_the_reader_has_caught_up(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deleted(*_: object) -> None:
        raise UnknownRun("no run has that id")

    run = begun_run(server)
    monkeypatch.setattr(RunEventSource, "read", deleted)
    reader = EventReader(server, f"{API}/runs/{run.uuid}/events/stream")
    names = [name for name, _, _ in reader]
    reader.close()
    assert names == ["end"]
