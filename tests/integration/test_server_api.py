"""The REST API: what it answers, and what it says to requests that cannot be answered."""

import gzip
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from msgspec.structs import replace

from joblens.model.access import Role, Scope
from joblens.model.jobs.job import Finding, Severity, Status
from joblens.model.writes import CancelAsked, JobStarted
from tests.builders.tickets import LEASE_S, worker
from tests.builders.writes import NOON_US, SECOND, ended, queued, samples, started
from tests.integration.served import Served

API = "/api/v1"
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as one:
        yield one


def job(server: Served, *, at_us: int = NOON_US, status: Status = Status.SUCCESS, **fields: Any) -> str:
    made = queued(at_us=at_us, **fields)
    uuid = made.job.uuid
    server.apply(made, started(uuid, at_us=at_us), ended(uuid, status, at_us=at_us + SECOND))
    return uuid


def test_pages_have_every_job_once_newest_first(server: Served) -> None:
    made = [job(server, at_us=NOON_US + number * SECOND) for number in range(7)]
    found: list[str] = []
    path = f"{API}/jobs?limit=3"
    while path:
        page = server.get(path).json
        found += [each["job"]["uuid"] for each in page["items"]]
        path = f"{API}/jobs?limit=3&cursor={page['next']}" if page["next"] else ""
    assert found == made[::-1]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("status=failed", ["bad"]),
        ("status=failed&status=success", ["bad", "good"]),
        ("name=go*", ["good"]),
        ("name_contains=oo", ["good"]),
        ("tool=make", ["good"]),
        ("tag=night", ["bad"]),
        ("user=bob", ["bad"]),
        ("host=host&status=success", ["good"]),
        ("since=2025-11-15T12:00:05Z", ["bad"]),
        ("until=2025-11-15T12:00:05Z", ["good"]),
        ("id=mine", ["good"]),
        ("sort=name&ascending=true", ["bad", "good"]),
    ],
)
def test_jobs_are_filtered_as_in_history(server: Served, query: str, names: list[str]) -> None:
    job(server, name="good", tool="make", user="ana", external_id="mine")
    job(server, name="bad", tags=("night",), user="bob", at_us=NOON_US + 10 * SECOND, status=Status.FAILED)
    assert [each["job"]["name"] for each in server.get(f"{API}/jobs?{query}").json["items"]] == names


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/jobs/nothing", 404, "nothing"),
        ("/jobs?cursor=x", 400, "cursor"),
        ("/jobs?limit=0", 400, "limit"),
        ("/jobs?limit=abc", 400, "limit"),
        ("/jobs?limit=2&limit=3", 400, "given twice"),
        ("/jobs?stats=failed", 400, "no parameter 'stats'"),
        ("/jobs?status=broken", 400, "parameter 'status': there is no 'broken'"),
        ("/jobs?since=tomorrowish", 400, "since"),
        ("/jobs?run=none", 404, "none"),
        ("/jobs?name=%ff", 400, "query string"),
        ("/jobs?name=a%00b", 400, "control character"),
        ("/jobs/%00", 400, "control character"),
        ("/jobs/" + "9" * 40, 404, ""),
        ("/runs/1.1", 404, ""),
        ("/workflows/none", 404, ""),
        ("/advice", 400, "names of jobs"),
        ("/advice?name=none", 400, "none"),
        ("/audit?before=-1", 400, "before"),
        ("/nowhere", 404, ""),
    ],
)
def test_a_request_that_cannot_be_answered_says_why(
    server: Served, path: str, status: int, text: str
) -> None:
    answer = server.get(API + path)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    assert text in answer.json.get("detail", "") + answer.json["title"]
    assert answer.json["hint"] or not text
    assert "Traceback" not in answer.text


def test_parts_of_a_job(server: Served) -> None:
    made = queued(name="one")
    uuid = made.job.uuid
    found = Finding("out-of-memory", Severity.PROBLEM, "out of memory", "--memory 2g")
    end = ended(uuid, Status.FAILED, findings=(found,))
    server.apply(made, started(uuid), samples(uuid, 0, 5), end)
    assert server.get(f"{API}/jobs/{uuid[:8]}").json["job"]["uuid"] == uuid
    assert server.get(f"{API}/jobs/1").json["number"] == 1
    page = server.get(f"{API}/jobs/{uuid}/samples?limit=3").json
    assert ([each["index"] for each in page["items"]], page["next"]) == ([0, 1, 2], 2)
    rest = server.get(f"{API}/jobs/{uuid}/samples?after=2").json
    assert ([each["index"] for each in rest["items"]], rest["next"]) == ([3, 4], None)
    assert server.get(f"{API}/jobs/{uuid}/findings").json["items"][0]["code"] == "out-of-memory"
    listed = server.get(f"{API}/findings?finding=out-of-memory").json["items"]
    assert [each["job_uuid"] for each in listed] == [uuid]
    assert server.get(f"{API}/jobs/{uuid}/attempts").json["items"][0]["number"] == 1
    assert server.get(f"{API}/jobs/{uuid}/provenance").status == 404
    assert server.get(f"{API}/statistics").json["overall"]["jobs"] == 1


def test_a_series_has_few_points_and_every_peak(server: Served) -> None:
    from joblens.model.jobs.sample import Sample
    from joblens.model.writes import SamplesTaken

    made = queued()
    uuid = made.job.uuid
    peak = 5 * 2**30
    points = tuple(
        Sample(
            at_us=NOON_US + index * SECOND,
            elapsed_us=index * SECOND,
            cpu_total_usec=index * SECOND,
            memory_current_bytes=peak if index == 777 else 2**20,
            memory_anon_bytes=peak if index == 777 else 2**20,
            memory_file_bytes=0,
        )
        for index in range(3000)
    )
    server.apply(made, started(uuid), SamplesTaken(uuid, 0, points), ended(uuid))
    series = server.get(f"{API}/jobs/{uuid}/series?points=100").json
    assert (len(series["at_us"]), series["samples"]) == (100, 3000)
    assert (max(series["fields"]["memory_current_bytes"]["max"]), peak) == (peak, peak)
    assert series["fields"]["cpu_total_usec/s"]["last"][5] == SECOND
    begin = NOON_US + 100 * SECOND
    part = server.get(f"{API}/jobs/{uuid}/series?begin_us={begin}&end_us={begin + 50 * SECOND}").json
    assert len(part["at_us"]) == 50
    one = server.get(f"{API}/jobs/{uuid}/series?field=memory_anon_bytes&points=10").json["fields"]
    assert list(one) == ["memory_anon_bytes"]
    wrong = server.get(f"{API}/jobs/{uuid}/series?field=memory_anon")
    assert (wrong.status, "did you mean memory_anon_bytes?" in wrong.json["hint"]) == (400, True)


def test_an_unchanged_answer_is_not_sent_again(server: Served) -> None:
    uuid = job(server)
    first = server.get(f"{API}/jobs/{uuid}")
    again = server.get(f"{API}/jobs/{uuid}", if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    server.post(f"{API}/jobs/{uuid}/tags", {"add": ["new"]})
    assert server.get(f"{API}/jobs/{uuid}", if_none_match=first.headers["etag"]).status == 200
    assert server.get(f"{API}/jobs/{uuid}", if_none_match='nonsense, W/"').status == 200


def test_a_long_answer_is_compressed(server: Served) -> None:
    for _ in range(20):
        job(server)
    plain = server.get(f"{API}/jobs")
    packed = server.get(f"{API}/jobs", accept_encoding="gzip")
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body


def test_tags_and_notes(server: Served) -> None:
    uuid = job(server, tags=("old",))
    changed = server.post(f"{API}/jobs/{uuid}/tags", {"add": ["a=b"], "remove": ["old"]})
    assert changed.json["job"]["tags"] == ["a=b"]
    note = server.post(f"{API}/jobs/{uuid}/annotations", {"text": SCRIPT})
    assert note.status == 201
    assert [each["text"] for each in server.get(f"{API}/jobs/{uuid}/annotations").json["items"]] == [SCRIPT]


def test_cancelling_asks_the_owner_of_the_job(server: Served) -> None:
    made = queued()
    uuid = made.job.uuid
    server.apply(made, started(uuid))
    assert server.post(f"{API}/jobs/{uuid}/cancel").status == 202
    with server.store() as store:
        assert isinstance(store.cancel_requests()[uuid], CancelAsked)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"argv": "true"}', 400),
        (b'{"argv": ["true"], "extra": 1}', 400),
        (b'{"argv": []}', 400),
        (b'{"argv": ["true"], "cpus": -1}', 400),
        (b'{"argv": ["a\\u0000b"]}', 400),
        (b'{"argv": ["true"], "cwd": "/no/such/folder"}', 400),
        (b"\xff\xfe", 400),
        (b"[" * 5000, 400),
    ],
)
def test_a_bad_body_is_refused(server: Served, body: bytes, status: int) -> None:
    answer = server.post(f"{API}/jobs", body)
    assert answer.status == status
    assert answer.json["detail"]
    assert answer.json["type"] == "urn:joblens:error:InputError"


def test_a_body_must_be_json(server: Served) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert server.post(f"{API}/jobs", b'{"argv": ["true"]}', content_type=kind).status == 415
    assert server.post(f"{API}/jobs", b"{}", content_encoding="gzip").status == 415


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "OPTIONS"])
def test_other_methods_are_refused(server: Served, method: str) -> None:
    answer = server.ask(method, f"{API}/jobs")
    assert answer.status == 405
    assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize(
    "name", ["'; DROP TABLE job; --", 'x" OR 1=1', "%' OR '1'='1", "a)) UNION SELECT hash FROM api_token --"]
)
def test_hostile_names_are_only_text(server: Served, name: str) -> None:
    """A metric name that reached a query made other servers answer with everything."""
    from urllib.parse import quote

    uuid = job(server, name=name, tags=(name,), user=name)
    job(server, name="other")
    for filter_name in ("name_contains", "tag", "user"):
        found = server.get(f"{API}/jobs?{filter_name}={quote(name)}").json["items"]
        assert [each["job"]["uuid"] for each in found] == [uuid], filter_name
    for other in ("tool", "host", "finding", "id"):
        assert server.get(f"{API}/jobs?{other}={quote(name)}").json["items"] == []
    assert server.get(f"{API}/jobs/{uuid}/series?field={quote(name)}").status == 400
    assert server.get(f"{API}/jobs/{quote(name, safe='')}").status in (200, 404)
    assert len(server.get(f"{API}/jobs").json["items"]) == 2


def logged(server: Served, folder: Path, text: bytes) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "stdout.log").write_bytes(text)
    made = queued()
    uuid = made.job.uuid
    server.apply(made, started(uuid, logs_dir=str(folder)), ended(uuid, stdout_bytes=len(text)))
    return uuid


def test_output_in_ranges(server: Served, tmp_path: Path) -> None:
    uuid = logged(server, tmp_path / "logs", b"one\ntwo\nthree\n")
    log = f"{API}/jobs/{uuid}/logs/stdout"
    whole = server.get(log)
    assert (whole.body, whole.headers["x-joblens-next"]) == (b"one\ntwo\nthree\n", "14")
    part = server.get(log, range="bytes=4-6")
    assert (part.status, part.body, part.headers["content-range"]) == (206, b"two", "bytes 4-6/14")
    assert server.get(log, range="bytes=-6").body == b"three\n"
    assert server.get(log, range="bytes=8-").body == b"three\n"
    assert server.get(f"{log}?tail=2").body == b"two\nthree\n"
    for wrong in ("bytes=20-", "bytes=5-2", "lines=1-2", "bytes=a-b", "bytes=-"):
        assert server.get(log, range=wrong).status == 416, wrong


@pytest.mark.parametrize(("text", "span"), [("", "bytes=-5"), ("abc", "bytes=-0"), ("abc", "bytes=3-")])
def test_a_range_without_a_byte_is_refused(server: Served, tmp_path: Path, text: str, span: str) -> None:
    (tmp_path / "stdout.log").write_text(text)
    made = queued()
    server.apply(made, started(made.job.uuid, logs_dir=str(tmp_path)))
    answer = server.get(f"{API}/jobs/{made.job.uuid}/logs/stdout", range=span)
    assert (answer.status, answer.headers["content-range"]) == (416, f"bytes */{len(text)}")


def test_output_with_markup_is_never_a_page(server: Served, tmp_path: Path) -> None:
    uuid = logged(server, tmp_path / "logs", SCRIPT.encode())
    answer = server.get(f"{API}/jobs/{uuid}/logs/stdout", accept="text/html")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("sandbox")


def test_a_log_is_only_ever_a_stream_of_its_job(server: Served, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    uuid = logged(server, tmp_path / "logs", b"fine")
    for path in ("../secret", "..%2f..%2fsecret", "%2e%2e/secret", "passwd", "stdout.log", "stdout%00"):
        answer = server.get(f"{API}/jobs/{uuid}/logs/{path}")
        assert answer.status in (400, 404), path
        assert b"secret" not in answer.body.replace(b"/secret", b"")
    linked = logged(server, tmp_path / "linked", b"x")
    (tmp_path / "linked" / "stdout.log").unlink()
    (tmp_path / "linked" / "stdout.log").symlink_to(secret)
    assert b"secret" not in server.get(f"{API}/jobs/{linked}/logs/stdout").body


def test_output_on_another_machine_is_the_stored_tail(server: Served) -> None:
    made = queued()
    uuid = made.job.uuid
    end = ended(uuid, stderr_tail="the end\n")
    server.apply(made, started(uuid, logs_dir="/nowhere/at/all"), end)
    answer = server.get(f"{API}/jobs/{uuid}/logs/stderr")
    assert (answer.body, answer.headers["x-joblens-source"]) == (b"the end\n", "stored-tail")
    assert answer.headers["x-joblens-node"] == "host"


def test_a_host_name_that_is_no_header_is_left_out(server: Served) -> None:
    made = queued()
    uuid = made.job.uuid
    attempt = started(uuid).attempt
    hostile = replace(attempt, owner=replace(attempt.owner, host="a\r\nset-cookie: b=c"))
    server.apply(made, JobStarted(uuid, hostile), ended(uuid, stdout_tail="the end"))
    answer = server.get(f"{API}/jobs/{uuid}/logs/stdout")
    assert (answer.status, answer.text) == (200, "the end")
    assert not {"set-cookie", "x-joblens-node"} & set(answer.headers)


def test_the_description_names_every_path_and_needs_a_token(server: Served) -> None:
    document = server.get(f"{API}/openapi.json").json
    assert document["openapi"] == "3.1.0"
    assert {"get", "post"} <= document["paths"][f"{API}/jobs"].keys()
    assert document["paths"][f"{API}/jobs/{{job}}/samples/stream"]["get"]["responses"]["200"]
    assert server.get(f"{API}/openapi.json", "").status == 401


def test_a_store_that_disappears_is_reported_and_comes_back(server: Served, tmp_path: Path) -> None:
    uuid = job(server)
    store = tmp_path / "joblens.db"
    store.rename(tmp_path / "away.db")
    answer = server.get(f"{API}/jobs")
    assert (answer.status, answer.json["code"]) == (503, "StoreVanished")
    (tmp_path / "away.db").rename(store)
    assert server.get(f"{API}/jobs/{uuid}").status == 200


def test_an_unexpected_error_shows_nothing_of_itself(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from joblens.app.server import jobs

    def fail(*_: object) -> None:
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr(jobs, "job_query", fail)
    answer = server.get(f"{API}/jobs")
    assert answer.status == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


def test_someone_who_could_not_see_the_job_may_not_submit_it(server: Served) -> None:
    token = server.token(Role.OPERATOR, Scope.OWN, user="somebody-else")
    answer = server.post(f"{API}/jobs", {"argv": ["true"]}, token)
    assert (answer.status, answer.json["code"]) == (403, "AccessDenied")


def test_deleting_needs_an_ended_job_and_leaves_a_trace(server: Served) -> None:
    uuid = job(server, name="old")
    running = queued()
    server.apply(running, started(running.job.uuid))
    assert server.ask("DELETE", f"{API}/jobs/{running.job.uuid}").status == 409
    assert server.ask("DELETE", f"{API}/jobs/{uuid}", server.token(Role.OPERATOR)).status == 403
    assert server.ask("DELETE", f"{API}/jobs/{uuid}").json["uuid"] == uuid
    gone = server.get(f"{API}/jobs/{uuid}")
    assert (gone.status, "was deleted by" in gone.json["detail"]) == (404, True)
    assert uuid in [each["subject"] for each in server.get(f"{API}/audit").json["items"]]


def test_prometheus_gets_metrics_with_a_token_for_all_jobs(server: Served) -> None:
    made = queued(name="work")
    server.apply(made, started(made.job.uuid))
    answer = server.get("/metrics", server.token())
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "joblens_" in answer.text
    openmetrics = server.get("/metrics", accept="application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")
    assert server.get("/metrics", server.token(scope=Scope.OWN)).status == 403
    assert server.get("/metrics", "").status == 401


def wait_for_end(server: Served, uuid: str) -> dict[str, object]:
    until = time.monotonic() + 60
    while True:
        record: dict[str, object] = server.get(f"{API}/jobs/{uuid}").json
        if record["status"] not in ("queued", "running"):
            return record
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_submitted_command_runs_once_however_often_it_is_sent(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    marks = tmp_path / "marks"
    body = {"shell": f"echo ran >> {marks}", "name": "mark", "tags": ["api"]}
    first = server.post(f"{API}/jobs", body, idempotency_key="k1")
    again = server.post(f"{API}/jobs", body, idempotency_key="k1")
    assert (first.status, again.status) == (201, 200)
    uuid = first.json["job"]["uuid"]
    assert again.json["job"]["uuid"] == uuid
    other = server.post(f"{API}/jobs", {**body, "name": "other"}, idempotency_key="k1")
    assert (other.status, other.json["code"]) == (409, "Conflict")
    assert wait_for_end(server, uuid)["status"] == "success"
    assert marks.read_text() == "ran\n"
    rerun = server.post(f"{API}/jobs/{uuid}/rerun", {})
    assert rerun.status == 201
    assert wait_for_end(server, rerun.json["job"]["uuid"])["status"] == "success"
    assert marks.read_text() == "ran\nran\n"


def test_a_deleted_job_is_not_submitted_again_by_its_key(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    body = {"argv": ["true"]}
    uuid = server.post(f"{API}/jobs", body, idempotency_key="k1").json["job"]["uuid"]
    wait_for_end(server, uuid)
    assert server.ask("DELETE", f"{API}/jobs/{uuid}").status == 200
    again = server.post(f"{API}/jobs", body, idempotency_key="k1")
    assert (again.status, again.json["code"]) == (409, "Conflict")
    assert [path.name for path in tmp_path.rglob(f"*{uuid}*")] == []  # no command waits for a supervisor


def wait_for_run(server: Served, uuid: str) -> str:
    until = time.monotonic() + 60
    while True:
        status: str = server.get(f"{API}/runs/{uuid}").json.get("status", "created")
        if status not in ("created", "running"):
            return status
        assert time.monotonic() < until
        time.sleep(0.1)


def test_failed_jobs_of_a_run_are_repeated_in_a_new_one(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    jobs = [{"name": "a", "command": "true"}, {"name": "b", "command": "test -e made"}]
    body = {"workflow": {"name": "half", "jobs": jobs}, "cwd": str(tmp_path)}
    first = server.post(f"{API}/runs", body).json["uuid"]
    assert wait_for_run(server, first) == "failed"
    (tmp_path / "made").touch()
    again = server.post(f"{API}/runs/{first}/rerun", {"failed": True})
    assert again.status == 201, again.text
    assert wait_for_run(server, again.json["uuid"]) == "completed"
    rows = server.get(f"{API}/runs/{again.json['uuid']}/jobs").json["items"]
    assert [row["kept_from"] for row in rows] == [first, None]
    assert server.post(f"{API}/runs/{again.json['uuid']}/rerun", {"failed": True}).status == 400
    assert server.post(f"{API}/runs/{first}/rerun", {"failed": True, "only": ["a"]}).status == 400


def test_a_workflow_runs_and_its_parts_can_be_read(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    jobs = [{"name": "a", "command": "true"}, {"name": "b", "command": "true", "depends_on": ["a"]}]
    body = {"workflow": {"name": "pair", "jobs": jobs}, "cwd": str(tmp_path)}
    started_run = server.post(f"{API}/runs", body)
    assert started_run.status == 201, started_run.text
    path = f"{API}/runs/{started_run.json['uuid']}"
    assert wait_for_run(server, started_run.json["uuid"]) == "completed"
    rows = server.get(f"{path}/jobs?limit=1").json
    assert ([row["name"] for row in rows["items"]], rows["next"]) == (["a"], 1)
    assert [row["status"] for row in server.get(f"{path}/jobs").json["items"]] == ["completed", "completed"]
    assert [job["name"] for job in server.get(f"{path}/plan").json["plan"]["jobs"]] == ["a", "b"]
    facts = [each["event"]["fact"]["type"] for each in server.get(f"{path}/events").json["items"]]
    assert (facts[0], facts[-1]) == ("started", "ended")
    (workflow,) = server.get(f"{API}/workflows").json["items"]
    assert (workflow["workflow"]["name"], workflow["runs"]) == ("pair", 1)
    assert len(server.get(f"{API}/workflows/pair/runs").json["items"]) == 1
    finished = server.post(f"{path}/resume")
    assert (finished.status, "nothing is left" in finished.json["detail"]) == (400, True)
    assert server.post(f"{path}/cancel").json["status"] == "completed"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"workflow": {"name": "x", "jobs": [{"nam": "a"}]}, "cwd": "/"}, 422),
        ({"workflow": {}, "cwd": "/no/such"}, 400),
        ({"workflow": {"name": "x"}, "cwd": "relative"}, 400),
        ({"workflow": [], "cwd": "/"}, 400),
    ],
)
def test_a_workflow_with_mistakes_is_refused(server: Served, body: dict[str, Any], status: int) -> None:
    answer = server.post(f"{API}/runs", body)
    assert (answer.status, bool(answer.json["detail"])) == (status, True)


@pytest.mark.parametrize("scope", Scope)
def test_running_jobs_come_in_pages_oldest_first(server: Served, scope: Scope) -> None:
    made = [queued(user="ana", at_us=NOON_US + number * SECOND) for number in range(5)]
    server.apply(*made, queued(user="bob", at_us=NOON_US + 9 * SECOND), started(made[2].job.uuid))
    token = server.token(scope=scope, user="ana")
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = server.get(f"{API}/running?limit=2{cursor and f'&cursor={cursor}'}", token).json
        assert len(page["items"]) <= 2
        found += [each["job"]["uuid"] for each in page["items"]]
        cursor = page["next"]
    assert len(found) == len(set(found)) == (5 if scope is Scope.OWN else 6)
    assert found[0] == made[0].job.uuid


@pytest.mark.parametrize("part", ["/jobs/1/annotations", "/tools", "/workers"])
def test_parts_and_lists_of_the_machine_come_in_pages(server: Served, part: str) -> None:
    made = queued()
    server.apply(made)
    for number in range(3):
        server.post(f"{API}/jobs/1/annotations", {"text": f"note {number}"})
        with server.store() as store:
            store.renew(worker(f"w{number}"), {}, LEASE_S)
    whole = server.get(f"{API}{part}").json["items"]
    found, after = [], ""
    while True:
        page = server.get(f"{API}{part}?limit=2{after}").json
        assert len(page["items"]) <= 2
        found += page["items"]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert (found, len(found) >= 3) == (whole, True)
