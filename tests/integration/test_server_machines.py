"""Queues, machines, benchmarks, settings, tokens in pages and comparison of runs over the API."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from msgspec.structs import replace

import joblens
from joblens.app.bench.files import default_results_dir, save
from joblens.model.access import Role, Scope
from joblens.model.settings import QueueSettings
from tests.builders.tickets import LEASE_S, ticketed, worker
from tests.builders.writes import NOON_US, queued, started
from tests.integration.served import Served
from tests.unit.analysis.comparing.test_bench_history import FAST, SLOW, result

API = "/api/v1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as one:
        yield one


def test_waiting_jobs_have_position_and_reason_in_pages(server: Served) -> None:
    server.apply(
        *(write for name in ("a1", "b1", "c1") for write in ticketed(name)), *ticketed("d1", queue="r")
    )
    with server.store() as store:
        store.renew(replace(worker("w1"), running=2), {}, LEASE_S)
    first = server.get(f"{API}/queue/waiting?limit=3").json
    assert [(each["uuid"], each["position"]) for each in first["items"]] == [("a1", 1), ("b1", 2), ("c1", 3)]
    assert first["items"][1]["reason"] == "1 before it; all 2 slots of 1 worker are taken"
    rest = server.get(f"{API}/queue/waiting?limit=3&cursor={first['next']}").json
    assert [each["uuid"] for each in rest["items"]] == ["d1"]
    assert "no worker serves the queue r" in rest["items"][0]["reason"]
    assert rest["next"] is None
    queues = {each["queue"]: each for each in server.get(f"{API}/queue").json["items"]}
    assert (queues["q"]["waiting"], queues["q"]["free_slots"], queues["q"]["problem"]) == (3, 0, "")
    assert "joblens worker --queues r" in queues["r"]["problem"]


def test_of_thousands_of_queued_jobs_the_first_are_listed_and_all_are_counted(server: Served) -> None:
    waiting = [queued(f"q{place}", user="ana", at_us=NOON_US + place) for place in range(1500)]
    server.apply(*waiting, queued("b1", user="bob"), queued("r1"), started("r1"))
    first = server.get(f"{API}/live").json
    assert (first["running"], first["queued"], first["is_complete"]) == (1, 1501, True)
    listed = {each["uuid"] for each in first["jobs"]}
    assert listed == {"r1", "b1", *(f"q{place}" for place in range(200))}
    server.apply(started("q0"))
    time.sleep(1.0)  # readings are shared for almost a second
    news = server.get(f"{API}/live?since={first['turn']}").json
    assert (news["running"], news["queued"], news["gone"]) == (2, 1500, [])
    assert [each["uuid"] for each in news["jobs"]] == ["q0", "q200"]
    mine = server.get(f"{API}/live", server.token(Role.READER, Scope.OWN, user="bob")).json
    assert (mine["queued"], [each["uuid"] for each in mine["jobs"]]) == (1, ["b1"])


def test_leases_name_worker_host_and_time_left(server: Served) -> None:
    server.apply(*ticketed("a1"), *ticketed("b1"))
    with server.store() as store:
        store.claim(worker("w1"), ["a1"], LEASE_S)
        store.renew(worker("w1"), {"a1": 1}, LEASE_S)
    (held,) = server.get(f"{API}/queue/leases").json["items"]
    assert (held["uuid"], held["worker"], held["host"], held["deliveries"]) == ("a1", "w1", "host", 1)
    assert 0 < held["left_us"] <= LEASE_S * 1e6


def test_others_see_only_their_own_waiting_jobs(server: Served) -> None:
    server.apply(*ticketed("a1", user="ana"), *ticketed("b1", user="bob"))
    token = server.token(scope=Scope.OWN, user="bob")
    assert [each["uuid"] for each in server.get(f"{API}/queue/waiting", token).json["items"]] == ["b1"]
    assert server.get(f"{API}/queue/waiting", token).json["items"][0]["position"] == 2
    assert server.get(f"{API}/queue", token).json == {"items": [], "is_complete": False}
    assert server.get(f"{API}/settings", token).status == 403
    assert server.get(f"{API}/benchmarks", token).status == 403


@pytest.mark.parametrize(
    "cursor", ["x", "1.", ".2", "1.2.3", "-1.2", "9" * 50, "9" * 23 + ".1", "1." + "9" * 23]
)
def test_a_cursor_of_no_list_is_refused(server: Served, cursor: str) -> None:
    for path in ("waiting", "leases"):
        answer = server.get(f"{API}/queue/{path}?cursor={cursor}")
        assert (answer.status, "cursor" in answer.json["detail"]) == (400, True)


def test_machines_show_workers_and_what_the_newest_job_measured(server: Served, tmp_path: Path) -> None:
    joblens.run(["true"], store=str(tmp_path / "joblens.db"))
    with server.store() as store:
        store.renew(replace(worker("w1", gpus=2), host="far"), {}, LEASE_S)
    here, far = server.get(f"{API}/nodes").json["items"]
    assert (here["is_server"], here["jobs_of_week"], far["host"], far["gpus"]) == (True, 1, "far", 2)
    assert server.get(f"{API}/nodes?limit=1").json["next"] == here["host"]
    page = server.get(f"{API}/nodes?limit=1&cursor={here['host']}").json
    assert ([each["host"] for each in page["items"]], page["next"]) == (["far"], None)
    assert server.get(f"{API}/nodes?cursor=nowhere").status == 400
    measured = server.get(f"{API}/nodes/measurements?host={here['host']}").json
    assert measured["job"] == 1
    assert {each["name"] for each in measured["items"] if each["source"]} >= {"cpu"}
    assert server.get(f"{API}/nodes/measurements?host=far").json["job"] is None


def test_benchmarks_are_listed_and_shown_with_their_history(server: Served) -> None:
    assert server.get(f"{API}/benchmarks").json["items"] == []
    folder = default_results_dir(server.settings)
    for document in (result(1, *FAST, title="a b/c"), result(2, *SLOW, title="a b/c"), result(1, *FAST)):
        save(document, folder, f"{document['id'].replace('/', '-')}.json")
    Path(folder, "broken.json").write_text("{")
    found = server.get(f"{API}/benchmarks?limit=1").json
    assert [(each["name"], each["results"]) for each in found["items"]] == [("a b/c", 2)]
    assert found["items"][0]["change"]["differs"] is True
    assert found["next"] == 1
    assert "broken.json" in found["problems"][0]
    assert [each["name"] for each in server.get(f"{API}/benchmarks?after=1").json["items"]] == ["sort"]
    history = server.get(f"{API}/benchmarks/results?name=a%20b/c").json
    assert [each["before"] is None for each in history["results"]] == [True, False]
    unknown = server.get(f"{API}/benchmarks/results?name=nothing")
    assert (unknown.status, unknown.json["code"]) == (404, "UnknownBenchmark")


def test_settings_have_values_and_origins_without_secrets(tmp_path: Path) -> None:
    server = Served(tmp_path)
    broker = "redis://:hunter2@host/0"
    server.settings = replace(server.settings, queue=replace(QueueSettings(), broker=broker))
    with server:
        answer = server.get(f"{API}/settings")
    found = {each["name"]: each for each in answer.json["items"]}
    assert found["store.url"]["value"] == str(tmp_path / "joblens.db")
    assert not found["store.url"]["is_default"]
    assert found["queue.lease"]["origin"] == "default"
    assert found["queue.lease"]["variable"] == "JOBLENS_QUEUE_LEASE"
    assert "redis://" in found["queue.broker"]["value"]
    assert "redis://" in answer.text
    assert "hunter2" not in answer.text


def test_tokens_come_in_pages(server: Served) -> None:
    for _ in range(3):
        server.token(Role.READER)
    first = server.get(f"{API}/tokens?limit=2").json
    rest = server.get(f"{API}/tokens?limit=2&after={first['next']}").json
    assert (len(first["items"]), len(rest["items"]), rest["next"]) == (2, 1, None)
    assert len({each["id"] for each in (*first["items"], *rest["items"])}) == 3


def test_runs_are_compared_beside_the_first(server: Served, tmp_path: Path) -> None:
    spec = {"name": "two", "jobs": [{"name": f"j{index}", "command": "true"} for index in range(2)]}
    with contextlib.chdir(tmp_path):
        for _ in range(2):
            joblens.run_workflow(spec, store=str(tmp_path / "joblens.db"))
    found = server.get(f"{API}/compare?run=1.1&run=1.2")
    assert found.status == 200, found.text
    answer = json.loads(found.body)
    assert [each["kind"] for each in answer["subjects"]] == ["run", "run"]
    assert {each["key"]: each["values"] for each in answer["numbers"]}["succeeded"] == [2, 2]
    assert answer["curves"][0]["curves"]["jobs"]
