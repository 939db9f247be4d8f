"""Lists in pages: nothing twice, nothing lost, and bounded answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

import joblens
from joblens.model.jobs.job import RunLink
from joblens.model.runs.run import Run, Workflow
from joblens.model.values.ids import new_uuid
from joblens.model.writes import RunCreated, WorkflowCreated
from tests.builders.writes import NOON_US, SECOND, whole_job
from tests.integration.served import Served

API = "/api/v1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as one:
        yield one


def pages(server: Served, path: str, items: str = "items", limit: int = 2) -> list[list[Any]]:
    found: list[list[Any]] = []
    after: int | None = 0
    mark = "&" if "?" in path else "?"
    while after is not None:
        page = server.get(f"{API}{path}{mark}limit={limit}&after={after}").json
        found.append(page[items])
        after = page["next"]
    return found


def test_attempts_come_in_pages_oldest_first(server: Served) -> None:
    workflow = Workflow(uuid=new_uuid(), name="w", created_at_us=NOON_US, user="ana")
    run = Run(uuid=new_uuid(), workflow_uuid=workflow.uuid, created_at_us=NOON_US, user="ana")
    server.apply(WorkflowCreated(workflow), RunCreated(run))
    for number in range(1, 6):
        link = RunLink(run.uuid, 0, attempt=number)
        server.apply(*whole_job(f"try{number}", at_us=NOON_US + number * SECOND, run=link))
    server.apply(*whole_job("other", run=RunLink(run.uuid, 1)), *whole_job("alone"))
    found = [[each["job"]["uuid"] for each in page] for page in pages(server, "/jobs/try3/attempts")]
    assert found == [["try1", "try2"], ["try3", "try4"], ["try5"]]
    whole = server.get(f"{API}/jobs/try3/attempts").json
    assert ([each["job"]["uuid"] for each in whole["items"]], whole["next"]) == (
        [uuid for page in found for uuid in page],
        None,
    )
    assert [len(page) for page in pages(server, "/jobs/alone/attempts")] == [1]
    assert server.get(f"{API}/jobs/alone/attempts?after=1").json == {"items": [], "next": None}
    for wrong in ("limit=0", "limit=1001", "after=-1", "after=x"):
        assert server.get(f"{API}/jobs/try3/attempts?{wrong}").status == 400


def test_advice_comes_in_pages_without_the_measurements_of_each_job(server: Served) -> None:
    for number in range(20):
        server.apply(*whole_job(name=f"n{number % 5}", at_us=NOON_US + number * SECOND))
    found = pages(server, "/advice?name=n*", "groups")
    assert [[each["group"]["name"] for each in page] for page in found] == [
        ["n0", "n1"],
        ["n2", "n3"],
        ["n4"],
    ]
    assert [(each["jobs"], each["group"]["observations"]) for page in found for each in page] == [(4, [])] * 5
    assert all(each["advice"] for page in found for each in page)
    with joblens.Client(f"http://127.0.0.1:{server.port}", server.token()) as client:
        advice = client.advice("n*")
    assert ([each.group.name for each in advice.groups], advice.jobs) == ([f"n{n}" for n in range(5)], 20)
