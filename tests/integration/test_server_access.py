"""Who may ask a server, and what for. docs/server.md promises each of these."""

import http.client
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
import pytest

pytest.importorskip("starlette")

from joblens.app.server.access import local_owner
from joblens.model.access import Role, Scope
from joblens.model.runs.run import Run, Workflow
from joblens.model.values.ids import new_uuid
from joblens.model.writes import JobQueued, RunCreated, WorkflowCreated
from joblens.web import auth
from joblens.web.application import all_endpoints
from joblens.web.auth import Sessions
from joblens.web.stream_api import STREAMS
from tests.builders.tickets import LEASE_S, ticketed, worker
from tests.builders.writes import NOON_US, SECOND, ended, queued, started
from tests.integration.served import Served, certificate

API = "/api/v1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as one:
        yield one


def job(server: Served, user: str = "ana", **fields: Any) -> str:
    made: JobQueued = queued(user=user, **fields)
    uuid = made.job.uuid
    server.apply(made, started(uuid), ended(uuid))
    return uuid


def signed_in(server: Served) -> dict[str, str]:
    """Opens the sign-in URL; returns the cookie header."""
    place = urlsplit(server.started.sign_in_url)
    answer = server.get(f"{place.path}?{place.query}", "")
    assert answer.status == 200
    return {"cookie": answer.headers["set-cookie"].partition(";")[0]}


def test_nothing_is_answered_without_a_token_also_on_loopback(server: Served) -> None:
    answer = server.get(f"{API}/jobs", "")
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["code"] == "SignInRequired"
    assert "joblens token create" in answer.json["hint"]


@pytest.mark.parametrize(
    "header", ["Bearer wrong", "Bearer ", "Bearer", "Basic YTpi", "bearer jl_", "Bearer \xff", "null"]
)
def test_a_wrong_token_is_refused(server: Served, header: str) -> None:
    assert server.get(f"{API}/jobs", "", authorization=header).status == 401


def test_an_empty_token_is_nobody(server: Served) -> None:
    """An empty key that counted as a valid one made everybody an administrator elsewhere."""
    for header in ("Bearer ", "Bearer  ", "Bearer \t"):
        assert server.get(f"{API}/tokens", "", authorization=header).status == 401


def test_many_wrong_tokens_are_slowed_down(server: Served) -> None:
    statuses = [server.get(f"{API}/jobs", f"jl_{number}").status for number in range(30)]
    assert statuses[0] == 401
    assert statuses[-1] == 429


def test_the_owner_is_trusted_on_the_socket_that_only_the_owner_can_open(server: Served) -> None:
    assert stat.S_IMODE(os.stat(server.options.socket_path).st_mode) == 0o600
    assert server.get(f"{API}/session").json["principal"]["role"] == "admin"


def test_only_the_hash_of_a_token_is_in_the_store(server: Served, tmp_path: Path) -> None:
    secret = server.token()
    for name in os.listdir(tmp_path):
        if name.startswith("joblens.db"):
            assert secret.encode() not in (tmp_path / name).read_bytes()


def test_a_revoked_token_stops_working(server: Served) -> None:
    secret = server.token()
    assert server.get(f"{API}/session", secret).status == 200
    (ident,) = [each["id"] for each in server.get(f"{API}/tokens").json["items"]]
    assert server.ask("DELETE", f"{API}/tokens/{ident}").status == 200
    until = time.monotonic() + 10
    while server.get(f"{API}/session", secret).status == 200:
        assert time.monotonic() < until
        time.sleep(0.05)
    answer = server.get(f"{API}/session", secret)
    assert (answer.status, "was revoked" in answer.json["detail"]) == (401, True)


def test_an_expired_token_is_refused(server: Served) -> None:
    secret = server.token(life_s=1.0)
    until = time.monotonic() + 10
    while server.get(f"{API}/session", secret).status == 200:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert "has expired" in server.get(f"{API}/session", secret).json["detail"]


def test_a_rotated_token_is_replaced(server: Served) -> None:
    server.token()
    (ident,) = [each["id"] for each in server.get(f"{API}/tokens").json["items"]]
    new = server.post(f"{API}/tokens/{ident}/rotate", {}).json
    assert server.get(f"{API}/session", new["secret"]).status == 200


@pytest.mark.parametrize(
    ("role", "method", "path", "status"),
    [
        (Role.READER, "POST", "/jobs", 403),
        (Role.READER, "POST", "/jobs/x/cancel", 403),
        (Role.READER, "POST", "/jobs/x/tags", 403),
        (Role.READER, "GET", "/tokens", 403),
        (Role.READER, "GET", "/audit", 403),
        (Role.OPERATOR, "GET", "/tokens", 403),
        (Role.OPERATOR, "POST", "/tokens", 403),
        (Role.ADMIN, "GET", "/tokens", 200),
    ],
)
def test_a_role_allows_only_its_own(server: Served, role: Role, method: str, path: str, status: int) -> None:
    answer = server.ask(method, API + path, server.token(role), {} if method == "POST" else None)
    assert answer.status == status
    if status == 403:
        assert "needs the role" in answer.json["detail"]


def test_own_scope_hides_jobs_of_others_everywhere(server: Served) -> None:
    own, other = job(server, "ana"), job(server, "bob")
    token = server.token(scope=Scope.OWN, user="ana")
    assert [each["job"]["uuid"] for each in server.get(f"{API}/jobs", token).json["items"]] == [own]
    assert server.get(f"{API}/jobs/{own}", token).status == 200
    for part in ("", "/samples", "/series", "/findings", "/details", "/logs/stdout", "/samples/stream"):
        assert server.get(f"{API}/jobs/{other}{part}", token).status == 404, part
    assert server.get(f"{API}/jobs?user=bob", token).status == 403
    # The answer is the same for a job of another user and for one that does not exist.
    answers = [server.get(f"{API}/jobs/{ident}", token).json["detail"] for ident in ("2", "77")]
    assert answers[0].replace("2", "77") == answers[1]


def test_own_scope_is_answered_as_if_there_were_no_job_run_or_workflow_of_others(server: Served) -> None:
    """Every path: a new one is in this test without being named here."""
    workflow = Workflow(uuid=new_uuid(), name="secret-workflow", created_at_us=NOON_US, user="bob")
    run = Run(uuid=new_uuid(), workflow_uuid=workflow.uuid, created_at_us=NOON_US, user="bob")
    server.apply(WorkflowCreated(workflow), RunCreated(run))
    uuid = job(server, "bob", name="secret-job", tags=("secret-tag",))
    token = server.token(Role.ADMIN, Scope.OWN, "ana")
    names = {"job": uuid, "run": run.uuid, "workflow": workflow.uuid, "stream": "stdout", "token": "x"}
    required = {"text": "x", "host": "host", "name": "secret*", "job": uuid}
    asked = [each for each in all_endpoints() if each.method == "GET"]
    for path, query in [
        *((each.path, each.query) for each in asked),
        *((each.path, each.query) for each in STREAMS),
    ]:
        fields = {each.encode_name: each.required for each in msgspec.structs.fields(query)}
        words = "&".join(f"{name}={required[name]}" for name in fields if fields[name])
        answer = server.get(f"{API}{path.format(**names)}?{words}", token)
        if {"{job}", "{run}", "{workflow}"} & set(re.findall("{.*?}", path)):
            assert answer.status == 404, path
        else:
            assert "secret" not in answer.text, path


def test_own_scope_counts_only_own_jobs_of_a_tag(server: Served) -> None:
    later_us = NOON_US + 60 * SECOND
    theirs, mine = queued(user="bob", tags=("t=1",)), queued(user="ana", tags=("t=1",), at_us=later_us)
    server.apply(theirs, mine, queued(user="bob", tags=("t=2",)))
    token = server.token(scope=Scope.OWN, user="ana")
    found = server.post(f"{API}/store/tagged", {"prefix": "t="}, token).json["items"]
    assert found == [
        {
            "tag": "t=1",
            "one_of_them": mine.job.uuid,
            "began_at_us": later_us,
            "by_status": {"queued": 1},
        }
    ]


def test_own_scope_hides_workers_and_queues_of_others(server: Served) -> None:
    with server.store() as store:
        for user in ("ana", "bob"):
            store.renew(worker(f"of-{user}", user=user), {}, LEASE_S)
    server.apply(*ticketed(new_uuid(), user="bob"))
    own, every = server.token(scope=Scope.OWN, user="ana"), server.token()
    for token, names, queues in ((own, {"of-ana"}, 0), (every, {"of-ana", "of-bob"}, 1)):
        whole = server.get(f"{API}/workers", token).json
        asked = server.post(f"{API}/store/workers", {}, token).json
        backlog = server.post(f"{API}/store/backlog", {}, token).json
        assert {each["name"] for each in whole["items"]} == names
        assert {each["name"] for each in asked["items"]} == names
        assert (len(whole["backlog"]), len(backlog["items"])) == (queues, queues)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/tokens"),
        ("POST", "/tokens"),
        ("GET", "/tokens/TOKEN"),
        ("POST", "/tokens/TOKEN/rotate"),
        ("DELETE", "/tokens/TOKEN"),
        ("GET", "/audit"),
    ],
)
def test_an_admin_with_the_scope_own_gets_no_further_through_tokens(
    server: Served, method: str, path: str
) -> None:
    token = server.token(Role.ADMIN, Scope.OWN, "ana")
    server.token(Role.ADMIN, Scope.ALL, "bob")
    (others,) = [each for each in server.get(f"{API}/tokens").json["items"] if each["user"] == "bob"]
    body = {"name": "more", "user": "bob", "role": "admin", "scope": "all"} if path == "/tokens" else {}
    answer = server.ask(
        method, API + path.replace("TOKEN", others["id"]), token, body if method == "POST" else None
    )
    assert (answer.status, "of all users" in answer.json["detail"]) == (403, True)


def test_the_last_use_of_a_token_is_noted(server: Served) -> None:
    token = server.token()
    assert [each["used_at_us"] for each in server.get(f"{API}/tokens").json["items"]] == [None]
    server.get(f"{API}/session", token)
    (used,) = [each["used_at_us"] for each in server.get(f"{API}/tokens").json["items"]]
    assert used > 0


def test_a_sign_in_url_works_once(server: Served) -> None:
    place = urlsplit(server.started.sign_in_url)
    cookie = signed_in(server)
    assert server.get(f"{API}/session", "", **cookie).json["principal"]["role"] == "admin"
    assert server.get(f"{place.path}?{place.query}", "").status == 401


def test_a_session_cookie_is_for_this_server_alone(server: Served) -> None:
    place = urlsplit(server.started.sign_in_url)
    cookie = server.get(f"{place.path}?{place.query}", "").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


@pytest.mark.parametrize("is_tls", [True, False])
def test_a_session_cookie_travels_only_encrypted_under_tls_and_behind_a_proxy(
    tmp_path: Path, *, is_tls: bool
) -> None:
    cert, key = certificate(tmp_path, "server")
    options = {"certificate": cert, "key": key} if is_tls else {"is_behind_proxy": True}
    with Served(tmp_path, options=options) as server:
        place = urlsplit(server.started.sign_in_url)
        cookie = server.get(f"{place.path}?{place.query}").headers["set-cookie"]
    assert cookie.startswith("__Host-joblens=")
    assert {"Path=/", "HttpOnly", "SameSite=Strict", "Secure"} <= set(cookie.split("; "))


@pytest.mark.parametrize("other", ['{"a": 1}', '"2|1:0|10:x', "a b", "\xe9", "[1,2]; =; ;; b", "joblen=x"])
def test_cookies_of_other_programs_on_this_machine_do_not_hide_the_session(
    server: Served, other: str
) -> None:
    """A browser sends the cookies of all ports of a host."""
    cookie = signed_in(server)["cookie"]
    for header in (f"other={other}; {cookie}", f"{cookie}; other={other}"):
        assert server.get(f"{API}/session", "", cookie=header).status == 200, header


def test_a_browser_is_not_sent_to_sign_in_while_the_store_is_away(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "_TOKEN_CACHE_S", 0.0)
    form = urlencode({"token": server.token()}).encode()
    kind = {"content-type": "application/x-www-form-urlencoded"}
    answer = server.ask("POST", "/sign-in", "", form, kind)
    cookie = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    store = tmp_path / "joblens.db"
    store.rename(tmp_path / "away.db")
    assert server.get("/", "", **cookie).status == 503
    assert str(tmp_path) not in server.get("/", "", **cookie).text
    (tmp_path / "away.db").rename(store)
    assert server.get("/", "", **cookie).status == 200


def test_a_change_with_a_cookie_needs_the_csrf_token(server: Served) -> None:
    cookie = signed_in(server)
    uuid = job(server)
    without = server.post(f"{API}/jobs/{uuid}/tags", {"add": ["x"]}, "", **cookie)
    assert (without.status, "CSRF" in without.json["detail"]) == (403, True)
    csrf = server.get(f"{API}/session", "", **cookie).json["csrf"]
    given = {**cookie, "x-csrf-token": csrf}
    assert server.post(f"{API}/jobs/{uuid}/tags", {"add": ["x"]}, "", **given).status == 200
    elsewhere = {**given, "sec-fetch-site": "cross-site"}
    assert server.post(f"{API}/jobs/{uuid}/tags", {"add": ["y"]}, "", **elsewhere).status == 403


def test_one_token_cannot_sign_others_out_by_many_sessions() -> None:
    sessions = Sessions(60.0)
    principal = local_owner()
    other = sessions.open(principal, "another token")
    mine = [sessions.open(principal, "one token") for _ in range(2000)]
    assert sessions.find(other) is not None
    assert sessions.find(mine[0]) is None
    assert sessions.find(mine[-1]) is not None


def test_signing_out_ends_the_session(server: Served) -> None:
    cookie = signed_in(server)
    csrf = server.get(f"{API}/session", "", **cookie).json["csrf"]
    answer = server.post("/sign-out", b"", "", **{**cookie, "x-csrf-token": csrf})
    assert (answer.status, "Max-Age=0" in answer.headers["set-cookie"]) == (303, True)
    assert server.get(f"{API}/session", "", **cookie).status == 401


def test_a_browser_signs_in_with_a_token(server: Served) -> None:
    form = f"token={server.token()}".encode()
    kind = {"content-type": "application/x-www-form-urlencoded"}
    answer = server.post("/sign-in", form, "", **kind)
    cookie = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    assert server.get(f"{API}/session", "", **cookie).json["principal"]["user"] == "ana"
    assert server.post("/sign-in", b"token=wrong", "", **kind).status == 401
    assert server.post("/sign-in", form, "", **kind, **{"sec-fetch-site": "cross-site"}).status == 403


def test_the_sign_in_leads_back_to_the_page_that_was_asked_for(server: Served) -> None:
    place = server.get("/jobs/7?zoom=1", "").headers["location"]
    assert place == "/sign-in?next=%2Fjobs%2F7%3Fzoom%3D1"
    assert 'name="next" value="/jobs/7?zoom=1"' in server.get(place, "").text


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ("/jobs?a=%22&b=1", "/jobs?a=%22&b=1"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example/", "/"),
        ("/a\r\nset-cookie: b=c", "/"),
        ("/sign-out", "/"),
        ("", "/"),
    ],
)
def test_a_sign_in_never_leads_to_another_site(server: Served, asked: str, place: str) -> None:
    form = urlencode({"token": server.token(), "next": asked}).encode()
    answer = server.post("/sign-in", form, "", **{"content-type": "application/x-www-form-urlencoded"})
    assert (answer.status, answer.headers["location"]) == (303, place)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example", "[::1", "a:b:c"]
)
def test_a_request_for_another_host_is_refused(server: Served, host: str) -> None:
    """A site that resolves its own name to 127.0.0.1 (DNS rebinding)."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.putrequest("GET", f"{API}/session", skip_host=True)
    connection.putheader("Host", host)
    connection.putheader("Authorization", f"Bearer {server.token()}")
    connection.endheaders()
    assert connection.getresponse().status == 421
    connection.close()


def test_other_sites_may_not_read_answers(server: Served) -> None:
    answer = server.get(f"{API}/session", server.token(), origin="https://evil.example")
    assert "content-type" in answer.headers
    assert "access-control-allow-origin" not in answer.headers
    assert server.ask("OPTIONS", f"{API}/jobs", "").status == 405


def test_every_answer_has_security_headers(server: Served) -> None:
    for path in (f"{API}/jobs", "/sign-in", "/", "/nowhere", f"{API}/nowhere"):
        headers = server.get(path, "").headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


def test_every_change_is_in_the_audit_log(server: Served) -> None:
    uuid = job(server)
    token = server.token(Role.OPERATOR)
    server.post(f"{API}/jobs/{uuid}/tags", {"add": ["night"]}, token)
    server.post(f"{API}/jobs/{uuid}/annotations", {"text": "odd"}, token)
    entries = server.get(f"{API}/audit").json["items"]
    assert [each["action"] for each in entries] == ["job-annotate", "job-tag", "token-create"]
    assert entries[0]["who"] == "ana (token test)"
    assert entries[1]["details"] == {"add": ["night"], "remove": []}
