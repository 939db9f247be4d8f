"""The server: streams of many clients, a day of samples, memory, its description. `bench.lists` asks it for
lists of a million jobs.

`JOBLENS_BENCH_STREAM_S=1800` measures streams and memory for half an hour."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from msgspec import Struct

from bench.commands import JOBLENS, Workbench
from bench.goals import Figure
from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Status
from joblens.model.jobs.sample import Sample
from joblens.model.values.ids import new_uuid
from joblens.model.writes import JobEnded, JobQueued, JobStarted, SamplesTaken
from joblens.stores.sqlite import SqliteStore

JOBS, CLIENTS = 50, 200
STREAM_S = float(os.environ.get("JOBLENS_BENCH_STREAM_S", "60"))
DAY_S = 86_400
MOST_GROWTH_MB = 10.0  # of resident memory that is still flat
EXAMPLES = os.environ.get("JOBLENS_BENCH_EXAMPLES", "20")  # per operation of the description


class Server(Struct):
    pid: int
    socket: str
    url: str
    sign_in_url: str

    def ask_s(self, path: str) -> float:
        """Returns how long an answer takes."""
        began = time.perf_counter()
        connection = http.client.HTTPConnection("joblens")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.socket)
        connection.request("GET", f"/api/v1{path}")
        response = connection.getresponse()
        body = response.read()
        connection.close()
        assert response.status == 200, body[:300]
        return time.perf_counter() - began

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS"))


def figures(bench: Workbench) -> Iterator[Figure]:
    yield from _streams(bench)
    yield _day(bench)
    yield _description(bench)


@contextmanager
def serving(bench: Workbench, store: str) -> Iterator[Server]:
    env = {**bench.env, "JOBLENS_STORE": store, "JOBLENS_SERVER_SOCKET": bench.path("server.sock")}
    command = [*JOBLENS, "serve", "--port", "0", "--json"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        yield Server(started["pid"], started["socket"], started["url"], started["sign_in_url"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


# ---- streams


class _Writer(threading.Thread):
    """Gives every job a sample per second, and remembers when it was in the store."""

    def __init__(self, path: str, uuids: list[str], seconds: float) -> None:
        super().__init__()
        self._store = SqliteStore(path)
        self._uuids = uuids
        self._seconds = seconds
        self.stored_at: dict[tuple[str, int], float] = {}

    def run(self) -> None:
        began = time.monotonic()
        for index in range(round(self._seconds)):
            for place, uuid in enumerate(self._uuids):
                time.sleep(max(0.0, began + index + place / len(self._uuids) - time.monotonic()))
                self._store.apply([SamplesTaken(uuid, index, (_sample(index),))])
                self.stored_at[uuid, index] = time.monotonic()
        for uuid in self._uuids:
            self._store.apply([JobEnded(uuid, _outcome())])
        self._store.close()


Arrivals = dict[int, list[float]]  # index of a sample -> when it came; more than once is wrong


async def _client(server: Server, uuid: str, arrived: Arrivals) -> None:
    reader, writer = await asyncio.open_unix_connection(server.socket)
    writer.write(f"GET /api/v1/jobs/{uuid}/samples/stream HTTP/1.1\r\nHost: joblens\r\n\r\n".encode())
    index, event = -1, b""
    while line := await reader.readline():
        if line.startswith(b"id: "):
            index = int(line[4:].rpartition(b".")[2])  # ATTEMPT.INDEX
        elif line.startswith(b"event: "):
            event = line[7:].strip()
        elif line.startswith(b"data: ") and event == b"sample":
            arrived.setdefault(index, []).append(time.monotonic())
        if event == b"end" and not line.strip():
            break
    writer.close()


def _streams(bench: Workbench) -> Iterator[Figure]:
    path = bench.path("streams.db")
    uuids = [new_uuid() for _ in range(JOBS)]
    store = SqliteStore(path)
    for uuid in uuids:
        store.apply([_queued(uuid), _started(uuid)])
    store.close()
    with serving(bench, path) as server:
        followed = [(uuids[place % JOBS], Arrivals()) for place in range(CLIENTS)]
        writer = _Writer(path, uuids, STREAM_S)
        resident: list[float] = []

        async def follow() -> None:
            tasks = [asyncio.create_task(_client(server, uuid, arrived)) for uuid, arrived in followed]
            await asyncio.sleep(2.0)
            writer.start()
            while not all(task.done() for task in tasks):
                await asyncio.sleep(1.0)
                resident.append(server.resident_mb())
            await asyncio.gather(*tasks)

        cpu_s, began = server.cpu_s(), time.monotonic()
        asyncio.run(follow())
        took_s, cpu_s = time.monotonic() - began, server.cpu_s() - cpu_s
        writer.join()
    late_ms = sorted(
        (at - writer.stored_at[uuid, index]) * 1000
        for uuid, arrived in followed
        for index, times in arrived.items()
        for at in times
    )
    indexes = range(round(STREAM_S))
    wrong = sum(len(arrived.get(index, ())) != 1 for _, arrived in followed for index in indexes)
    note = f"{CLIENTS} clients, {JOBS} jobs, {took_s:.0f} s, {len(late_ms):,} events"
    yield Figure("samples that a client got never or twice", wrong, "", 0, note=note)
    yield Figure("time from store to client, p99", late_ms[len(late_ms) * 99 // 100], "ms", 250)
    yield Figure("CPU of the server", 100 * cpu_s / took_s, "% of a core", 50)
    yield Figure("resident memory with streams", max(resident), "MB", 150)
    steady = resident[len(resident) // 5 :]
    part = max(1, len(steady) // 5)
    growth = median(steady[-part:]) - median(steady[:part])
    yield Figure(
        "growth of resident memory with streams", growth, "MB", MOST_GROWTH_MB, note=f"in {took_s:.0f} s"
    )


# ---- one day of samples, and the description


def _day(bench: Workbench) -> Figure:
    path, uuid = bench.path("day.db"), new_uuid()
    store = SqliteStore(path)
    store.apply([_queued(uuid), _started(uuid)])
    for first in range(0, DAY_S, 3600):
        store.apply([SamplesTaken(uuid, first, tuple(map(_sample, range(first, first + 3600))))])
    store.apply([JobEnded(uuid, _outcome())])
    store.close()
    with serving(bench, path) as server:
        took_s = median(server.ask_s(f"/jobs/{uuid}/series?points=1000") for _ in range(5))
    return Figure("one day of samples as 1,000 points", took_s * 1000, "ms", 100)


def _description(bench: Workbench) -> Figure:
    from tests.integration.test_server_description import ask_everything  # needs schemathesis

    folder = Path(bench.path("description"))
    folder.mkdir()
    asked = ask_everything(folder, EXAMPLES)
    if not asked.is_success:
        Path(bench.path("description.txt")).write_text(asked.output)
    failures = re.search(r"found (\d+) unique failures", asked.output)
    wrong = int(failures[1]) if failures else int(not asked.is_success)
    return Figure("server errors and undocumented answers", wrong, "", 0, note=f"{asked.cases:,} cases")


def _queued(uuid: str) -> JobQueued:
    return JobQueued(Job(uuid=uuid, argv=("true",), created_at_us=_now_us(), name="bench", user="bench"))


def _started(uuid: str) -> JobStarted:
    owner = Owner("elsewhere", 1, 1, "boot")
    return JobStarted(uuid, Attempt(started_at_us=_now_us(), owner=owner))


def _outcome() -> Outcome:
    return Outcome(status=Status.SUCCESS, ended_at_us=_now_us(), duration_s=STREAM_S)


def _sample(index: int) -> Sample:
    return Sample(
        at_us=_now_us(),
        elapsed_us=index * 1_000_000,
        cpu_total_usec=index * 900_000,
        cpu_user_usec=index * 800_000,
        cpu_system_usec=index * 100_000,
        memory_current_bytes=(1 << 30) + index % 97 * 4096,
        memory_anon_bytes=(1 << 29) + index % 89 * 4096,
        memory_file_bytes=1 << 28,
        io_read_bytes=index * 4096,
        io_write_bytes=index * 8192,
        processes=3,
        threads=12,
    )


def _now_us() -> int:
    return time.time_ns() // 1000
