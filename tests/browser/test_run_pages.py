"""Pages of runs, workflows and recipes in Chromium, with real running workflows and recipes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from joblens.model.access import Role
from joblens.model.jobs.job import Owner, RunLink
from joblens.model.values.ids import new_uuid
from joblens.model.writes import Write
from tests.browser.conftest import OpenPage, Watched
from tests.browser.synthetic import SyntheticJob
from tests.builders import past_runs
from tests.builders.large_runs import fill_large_run
from tests.builders.runs import begun, over, run, workflow
from tests.conftest import wait_until
from tests.integration.served import Served

API = "/api/v1"
expect.set_options(timeout=15_000)
AFAR = Owner("elsewhere", 7, 8, "boot")  # whose driver this machine cannot miss
HOSTILE = "<img src=x onerror=alert(1)>"
WIDTHS = (ViewportSize(width=1280, height=900), ViewportSize(width=320, height=640))


def start_run(server: Served, folder: Path, jobs: list[dict[str, Any]], name: str = "flow") -> str:
    answer = server.post(f"{API}/runs", {"workflow": {"name": name, "jobs": jobs}, "cwd": str(folder)})
    assert answer.status == 201, answer.text
    return str(answer.json["uuid"])


def wait_for_end(server: Served, uuid: str) -> None:
    ended = ("completed", "failed", "stopped")
    wait_until(lambda: server.get(f"{API}/runs/{uuid}").json.get("status") in ended, timeout=30)


def row(page: Page, name: str) -> Any:
    cell = page.locator('td[data-column="name"]', has_text=re.compile(f"^{re.escape(name)}$"))
    return page.get_by_role("grid", name="Jobs of the run").get_by_role("row").filter(has=cell)


def processes_of(marker: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if marker.encode() in words:
            found.append(path.parent.name)
    return found


def test_a_run_is_followed_cancelled_and_resumed(dashboard: Watched, tmp_path: Path) -> None:
    server, page = dashboard.server, dashboard.page
    marker = "61.5"  # of its process
    uuid = start_run(
        server,
        tmp_path,
        [
            {"name": "first", "command": "sleep 0.5"},
            {"name": "long", "command": f"test -e go || sleep {marker}", "depends_on": ["first"]},
            {"name": "last", "command": "true", "depends_on": ["long"]},
        ],
    )
    dashboard.open(f"/runs/{uuid}")
    expect(row(page, "long")).to_contain_text("running")
    expect(row(page, "first")).to_contain_text("completed")
    expect(row(page, "last")).to_contain_text("blocked")
    expect(page.get_by_role("link", name=re.compile("^long, running"))).to_be_visible()  # in the graph
    wait_until(lambda: bool(processes_of(marker)), timeout=10)
    page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 running job")
    dialog.get_by_role("button", name="Cancel run").click()
    expect(page.locator(".page-head .state")).to_have_text("stopped")
    wait_until(lambda: not processes_of(marker), timeout=10)
    (tmp_path / "go").touch()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume run").click()
    expect(row(page, "last")).to_contain_text("completed")
    expect(page.locator(".page-head .state")).to_have_text("completed")
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)


def test_running_jobs_of_a_run_have_their_numbers_so_far(dashboard: Watched) -> None:
    server, page = dashboard.server, dashboard.page
    flow, uuid = new_uuid(), new_uuid()
    spec = "name: flow\njobs: [{name: 'train_{i}', command: x, parameters: {i: '1:3'}}]"
    server.apply(workflow(flow), run(uuid, flow, spec_text=spec, jobs=3), begun(uuid, owner=AFAR))
    job = SyntheticJob(server, age_s=60, name="train_1", run=RunLink(uuid, 0, 1))
    job.take(3)
    dashboard.open(f"/runs/{uuid}")
    cells = row(page, "train_1")
    expect(cells.locator("td[data-column=cpu]")).to_have_text("1.5s so far")
    expect(cells.locator("td[data-column=memory]")).to_have_text("24.0 MiB in use now")
    job.take(2)
    expect(cells.locator("td[data-column=cpu]")).to_have_text("2.5s so far")


def test_failed_jobs_are_rerun_in_a_new_run(dashboard: Watched, tmp_path: Path) -> None:
    server, page = dashboard.server, dashboard.page
    uuid = start_run(
        server,
        tmp_path,
        [
            {"name": "good", "command": "true"},
            {"name": "bad", "command": "test -e made || (echo no file >&2; false)"},
        ],
    )
    wait_for_end(server, uuid)
    (tmp_path / "made").touch()
    dashboard.open(f"/runs/{uuid}")
    expect(row(page, "bad")).to_contain_text("no file")
    page.get_by_role("button", name="Rerun failed").click()
    dialog = page.get_by_role("dialog", name="Rerun 1 failed job?")
    dialog.get_by_role("button", name="Rerun failed jobs").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("flow run 1.2")
    expect(row(page, "bad")).to_contain_text("completed")
    expect(page.get_by_text("repeats part of run 1.1")).to_be_visible()


def test_a_run_catches_up_after_a_broken_connection(dashboard: Watched, tmp_path: Path) -> None:
    server, page = dashboard.server, dashboard.page
    uuid = start_run(
        server,
        tmp_path,
        [
            {"name": "waits", "command": "until test -e go; do sleep 0.05; done"},
            {"name": "after", "command": "true", "depends_on": ["waits"]},
        ],
    )
    dashboard.open(f"/runs/{uuid}")
    expect(row(page, "waits")).to_contain_text("running")
    page.context.set_offline(True)
    expect(page.locator(".connection")).to_have_text("Reconnecting…")
    (tmp_path / "go").touch()
    wait_for_end(server, uuid)
    page.context.set_offline(False)
    expect(row(page, "after")).to_contain_text("completed")
    expect(page.locator(".page-head .state")).to_have_text("completed")
    dashboard.problems[:] = [each for each in dashboard.problems if "ERR_INTERNET_DISCONNECTED" not in each]


def test_a_reader_sees_no_buttons_that_change_a_run(open_page: OpenPage) -> None:
    visitor = open_page()
    visitor.server.apply(*past_runs.first_run())
    visitor.sign_in_with(visitor.server.token(Role.READER))
    visitor.open("/runs/1.1")
    expect(row(visitor.page, "train")).to_contain_text("out of memory")
    expect(visitor.page.get_by_role("button", name="Rerun failed")).to_have_count(0)
    visitor.page.get_by_role("link", name=re.compile("^evaluate, blocked")).click()  # it has no page yet
    expect(visitor.page.get_by_role("searchbox", name="Search jobs of this run")).to_have_value("evaluate")
    expect(row(visitor.page, "train")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible_and_names_are_text(open_page: OpenPage, scheme: str) -> None:
    reader = open_page(color_scheme=scheme)
    server, page = reader.server, reader.page
    spec = past_runs.SPEC.replace("name: notes", f"name: '{HOSTILE}'")
    flow = "aaaa2222-0000-4000-8000-000000000000"
    uuid = "bbbb2222-0000-4000-8000-000000000000"
    server.apply(
        *past_runs.first_run(),
        workflow(flow, HOSTILE, description=HOSTILE),
        run(uuid, flow, spec_text=spec, jobs=4),
        begun(uuid),
        *past_runs.attempt(uuid, past_runs.NOTES, HOSTILE),
        over(uuid),
    )
    reader.sign_in()
    for size in WIDTHS:
        page.set_viewport_size(size)
        reader.open("/runs/2.1")
        expect(row(page, HOSTILE)).to_contain_text("completed")
        expect(page.get_by_role("link", name=re.compile(re.escape(HOSTILE) + ", completed"))).to_be_visible()
        page.get_by_text("Critical path: ").scroll_into_view_if_needed()
        reader.check_accessibility()
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        for path, text in (("/runs", "1.1"), ("/workflows", HOSTILE), ("/workflows/1", "1.1")):
            reader.open(path)
            expect(page.get_by_text(text).first).to_be_visible()
            reader.check_accessibility()
            assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), path


def test_a_graph_above_500_jobs_is_grouped_and_opens_with_the_keyboard(dashboard: Watched) -> None:
    server, page = dashboard.server, dashboard.page
    with server.store() as store:
        fill_large_run(store, 600, failed=frozenset({7, 300}))
    dashboard.open("/runs/1.1")
    group = page.get_by_role("button", name=re.compile("^work_.*598 jobs: 2 failed, 596 completed"))
    group.focus()
    assert page.locator("svg.graph g.node").count() == 3
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name=re.compile("^work_300, failed"))).to_be_attached()
    expect(page).to_have_url(re.compile("open=1"))
    page.keyboard.press("ArrowLeft")
    expect(page.locator("svg.graph g.node:focus")).to_have_attribute("aria-label", re.compile("^prepare"))
    page.get_by_role("button", name="Close group work_*").click()
    expect(page.locator("svg.graph g.node")).to_have_count(3)
    timeline = page.locator(".gantt-scroll")
    timeline.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")  # opens the lane of the sweep
    expect(page.locator(".gantt-space")).to_have_attribute("style", re.compile(r"height: 1\d{4}px"))
    page.keyboard.press("+")
    expect(page).to_have_url(re.compile(r"from=\d+&to=\d+"))
    dashboard.check_accessibility()


def test_a_table_of_20_000_jobs_scrolls_and_is_searched(dashboard: Watched) -> None:
    server, page = dashboard.server, dashboard.page
    with server.store() as store:
        fill_large_run(store, 20_000, failed=frozenset({12_345}))
    dashboard.open("/runs/1.1")
    expect(row(page, "work_12345")).to_contain_text("failed")  # first, before the plan was read
    expect(page.get_by_text("20,000 jobs", exact=True)).to_be_visible(timeout=30_000)
    table = page.locator(".run-table")
    table.evaluate("node => { node.scrollTop = node.scrollHeight; }")
    expect(row(page, "prepare")).to_be_visible()
    assert table.locator("tbody tr[data-key]").count() < 100
    page.get_by_role("searchbox", name="Search jobs of this run").fill("work_777")
    expect(table.locator("table")).to_have_attribute("aria-rowcount", "11")
    page.get_by_role("button", name="Duration").click()
    expect(page).to_have_url(re.compile("sort=duration"))


def test_a_workflow_shows_runs_over_time_and_advice_as_a_diff(dashboard: Watched) -> None:
    server, page = dashboard.server, dashboard.page
    spec = "name: sized\njobs:\n  - name: a\n    command: 'true'\n    memory: 4g\n"
    flow = "ffff1111-0000-4000-8000-000000000000"
    writes: list[Write] = [workflow(flow, "sized", source="/home/ann/sized.yaml")]
    for number in range(12):
        uuid = f"{number:08d}-0000-4000-8000-000000000000"
        writes += [run(uuid, flow, spec_text=spec, jobs=1), begun(uuid), *past_runs.attempt(uuid, 0, "a")]
        writes += [over(uuid)]
    server.apply(*writes)
    dashboard.open("/workflows/1")
    expect(page.get_by_role("link", name=re.compile("^Run 1.12, completed"))).to_be_visible()
    expect(page.locator(".diff-remove")).to_have_text(re.compile("memory: 4g"))
    expect(page.locator(".diff-add").first).to_be_visible()
    expect(page.get_by_text("joblens rightsize 1 --write")).to_be_visible()
    page.get_by_role("link", name=re.compile("^Run 1.12, completed")).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("sized run 1.12")


SLOW = """
import time
import joblens


@joblens.operator
def slow_mapper(row):
    time.sleep(0.01)
"""
RECIPE = f"""
project_name: '{HOSTILE}'
dataset_path: pages.jsonl
export_path: out.jsonl
work_dir: work
np: 1
custom_operator_paths: [slow.py]
partition: {{mode: manual, num_of_partitions: 4}}
checkpoint: {{strategy: every_op}}
process:
  - text_length_filter: {{min_len: 10}}
  - slow_mapper:
"""


@pytest.fixture
def running_recipe(server: Served, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    rows = [json.dumps({"text": f"some words of page {number} " * 3}) for number in range(300)]
    rows[50] = "{<b>broken"
    (tmp_path / "pages.jsonl").write_text("\n".join(rows))
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    process = subprocess.Popen(
        [sys.executable, "-m", "joblens", "process", "recipe.yaml"],
        cwd=tmp_path,
        env={**os.environ, "JOBLENS_STORE": str(server.settings.store.url)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield process
    process.terminate()
    process.wait(20)


def test_a_running_recipe_is_followed(dashboard: Watched, running_recipe: subprocess.Popen[bytes]) -> None:
    server, page = dashboard.server, dashboard.page
    wait_until(lambda: server.get(f"{API}/jobs/1/recipe").status == 200, timeout=30)
    dashboard.open("/recipes/1")
    expect(page.locator(".page-head .state")).to_have_text("in progress", timeout=20_000)
    expect(page.locator(".page-head .state")).to_have_text("completed", timeout=30_000)
    assert running_recipe.wait(20) == 0
    expect(page.get_by_role("img", name="4 saved")).to_have_count(2)
    expect(page.get_by_role("row", name=re.compile("slow_mapper"))).to_contain_text("4 of 4")
    page.get_by_text("Example", exact=True).click()
    expect(page.locator(".reject code")).to_contain_text("{<b>broken")
    dashboard.check_accessibility()
    page.set_viewport_size(WIDTHS[1])
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    dashboard.check_accessibility()
