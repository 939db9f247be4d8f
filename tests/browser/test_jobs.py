"""The list of jobs: filters and columns in the address, keyboard, bulk changes with confirmation."""

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from joblens.model.access import Role
from joblens.model.jobs.job import Finding, Severity, Status
from tests.browser.conftest import OpenPage, StartJob, Watched
from tests.browser.synthetic import HOSTILE, SyntheticJob
from tests.builders.writes import NOON_US, SECOND, whole_job
from tests.conftest import wait_until
from tests.integration.served import Served


def names(page: Page) -> list[str]:
    return page.locator(".jobs-table td[data-column=name]").all_inner_texts()


def select(page: Page, *numbers: int | None) -> None:
    for number in numbers:
        page.get_by_role("checkbox", name=f"Select {number}", exact=True).check()


def test_filters_columns_and_order_are_in_the_address(dashboard: Watched) -> None:
    server, page = dashboard.server, dashboard.page
    for number, name in enumerate(("train", "train", "clean", "score")):
        status = Status.FAILED if number == 1 else Status.SUCCESS
        memory = (number + 1) << 20
        server.apply(
            *whole_job(
                name=name,
                status=status,
                at_us=NOON_US + number * SECOND,
                memory_bytes=memory,
                tags=("night",),
            )
        )
    dashboard.open("/jobs")
    expect(page.locator(".jobs-table td[data-column=name]")).to_have_text(
        ["score", "clean", "train", "train"]
    )
    page.keyboard.press("/")
    page.keyboard.type("tra")
    expect(page.locator(".jobs-table td[data-column=name]")).to_have_text(["train", "train"])
    page.get_by_role("button", name="failed").click()
    expect(page.get_by_text("1 job", exact=True)).to_be_visible()
    expect(page).to_have_url(re.compile(r"name_contains=tra&status=failed$"))
    page.get_by_text("Columns").click()
    page.get_by_label("Tags").check()
    page.get_by_label("Host").uncheck()
    expect(page.locator(".jobs-table .chip")).to_have_text("night")
    expect(page).to_have_url(re.compile("columns="))
    page.reload()
    expect(page.locator(".jobs-table td[data-column=tags]")).to_have_text("night")
    expect(page.locator(".jobs-table th", has_text="Host")).to_have_count(0)
    expect(page.get_by_role("button", name="failed")).to_have_attribute("aria-pressed", "true")
    assert names(page) == ["train"]
    dashboard.open("/jobs?sort=memory&ascending=true&tag=night")
    expect(page.locator(".jobs-table td[data-column=name]")).to_have_text(
        ["train", "train", "clean", "score"]
    )
    page.get_by_role("button", name="Memory peak").click()
    expect(page.locator(".jobs-table td[data-column=name]")).to_have_text(
        ["score", "clean", "train", "train"]
    )
    page.get_by_role("button", name="Remove the filter tag").click()
    expect(page).not_to_have_url(re.compile("tag="))


def test_the_keyboard_alone_opens_and_selects(dashboard: Watched) -> None:
    page = dashboard.page
    for number in range(300):
        dashboard.server.apply(*whole_job(name=f"job {number}", at_us=NOON_US + number * SECOND))
    dashboard.open("/jobs")
    expect(page.get_by_text("300 jobs")).to_be_visible()
    assert page.locator(".jobs-table tbody tr[data-key]").count() < 80  # only what is in view
    page.locator(".jobs-table tr[tabindex='0']").focus()
    page.keyboard.press("End")
    page.keyboard.press("End")
    expect(page.locator(".jobs-table tr:focus")).to_contain_text(re.compile(r"job \d+"))
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press(" ")
    expect(page.get_by_role("toolbar", name="Selected jobs")).to_contain_text("1 selected")
    expect(page.locator(".jobs-table tr[aria-selected=true]")).to_contain_text("job 298")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/jobs/299$"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("job 298")
    page.go_back()
    expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()


def test_bulk_changes_name_their_number_and_happen(dashboard: Watched, start_job: StartJob) -> None:
    page, server = dashboard.page, dashboard.server
    running = [start_job("--name", f"sleeper {number}", "--", "sleep", "300") for number in range(2)]
    SyntheticJob(server, age_s=5, name="stays")
    dashboard.open("/jobs")
    expect(page.locator(".jobs-table td[data-column=name]")).to_have_count(3)
    select(page, *(each.number for each in running))
    page.get_by_role("button", name="Tag…").click()
    page.get_by_role("textbox", name="Tags").fill("doomed <b>x</b>")
    page.get_by_role("button", name="Tag 2 jobs").click()
    expect(page.locator(".toast")).to_contain_text("Tag: 2 jobs")
    select(page, *(each.number for each in running))
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("Cancel 2 jobs?")
    page.get_by_role("button", name="Keep as it is").click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel 2 jobs").click()
    pids = [each.attempt.pid for each in running if each.attempt is not None]
    assert len(pids) == 2
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), what="both processes to end")
    expect(page.locator(".jobs-table .state", has_text="cancelled")).to_have_count(2)
    expect(page.locator(".jobs-table .state", has_text="running")).to_have_count(1)
    select(page, *(each.number for each in running))
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("cannot be undone")
    page.get_by_role("button", name="Delete 2 jobs").click()
    expect(page.locator(".jobs-table td[data-column=name]")).to_have_text(["stays"])
    with server.store() as store:
        assert len(store.tombstones([str(each.number) for each in running])) == 2


def test_new_jobs_and_states_appear_by_themselves(dashboard: Watched) -> None:
    page = dashboard.page
    dashboard.open("/jobs")
    expect(page.get_by_text("No job matches these filters.")).to_be_visible()
    job = SyntheticJob(dashboard.server, name="fresh")
    expect(page.locator(".jobs-table .state")).to_have_text("running")
    job.end(Status.FAILED, findings=(Finding("exit-code", Severity.PROBLEM, "exit code 3"),))
    expect(page.locator(".jobs-table .state")).to_have_text("failed")
    expect(page.locator(".jobs-table td[data-column=why]")).to_have_text("exit code 3")


def test_running_jobs_have_their_numbers_so_far(dashboard: Watched) -> None:
    page, server = dashboard.page, dashboard.server
    jobs = SyntheticJob.many(server, 60, age_s=100)
    server.apply(*(job.samples(2) for job in jobs))
    jobs[0].take(1)
    dashboard.open("/jobs?sort=name&ascending=true")
    row = page.locator(".jobs-table tbody tr[data-key]").first
    expect(row.locator("td[data-column=cpu]")).to_have_text("1.5s so far")
    expect(row.locator("td[data-column=memory]")).to_have_text("24.0 MiB in use now")
    dashboard.requests.clear()
    jobs[0].take(2)
    expect(row.locator("td[data-column=cpu]")).to_have_text("2.5s so far")
    asked = [each for each in dashboard.requests if "/api/" in each]
    assert all("/summaries?" in each for each in asked)
    assert len(asked) < 10  # not one per row
    jobs[0].end()
    expect(row.locator("td[data-column=cpu]")).to_have_text("500ms")


def test_readers_cannot_change_jobs(open_page: OpenPage, server: Served) -> None:
    SyntheticJob(server, name="one")
    SyntheticJob(server, name="two")
    visitor = open_page()
    visitor.sign_in_with(server.token(Role.READER))
    expect(visitor.page.get_by_role("heading", name="Overview", level=1)).to_be_attached()
    visitor.open("/jobs")
    select(visitor.page, 1, 2)
    bar = visitor.page.get_by_role("toolbar", name="Selected jobs")
    expect(bar.get_by_role("button")).to_have_text(["Compare", "Clear"])


def test_a_phone_shows_names_and_whole_states(open_page: OpenPage, server: Served) -> None:
    SyntheticJob(server, name="train on all data of the year").end(Status.CANCELLED)
    phone = open_page(viewport={"width": 320, "height": 700})
    phone.sign_in()
    phone.open("/jobs")
    row = phone.page.locator(".jobs-table tbody tr[data-key]")
    name = row.locator("td[data-column=name]").bounding_box()
    state = row.locator("td[data-column=status] .state").bounding_box()
    table = phone.page.locator(".jobs-table").bounding_box()
    assert name is not None
    assert state is not None
    assert table is not None
    assert name["width"] > 110
    assert state["x"] + state["width"] < table["x"] + table["width"]
    assert row.locator("td[data-column=status]").evaluate("node => node.scrollWidth <= node.clientWidth")


@pytest.mark.parametrize("width", [1265, 1920])  # 1280 with a scroll bar
def test_filters_are_one_line_on_a_desktop(open_page: OpenPage, width: int) -> None:
    visitor = open_page(viewport={"width": width, "height": 800})
    visitor.sign_in()
    visitor.open("/jobs")
    tops = visitor.page.locator(".filters > :not(.more-filters)").evaluate_all(
        "nodes => nodes.map(node => node.getBoundingClientRect().top)"
    )
    assert len(tops) == 5
    assert max(tops) - min(tops) < 10


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (320, "light")])
def test_it_is_accessible_and_takes_hostile_text(
    open_page: OpenPage, server: Served, tmp_path: Path, width: int, scheme: str
) -> None:
    job = SyntheticJob(server, name=HOSTILE, tags=("<script>window.hacked=1</script>",), tool=HOSTILE)
    job.end(Status.FAILED, findings=(Finding("exit-code", Severity.PROBLEM, HOSTILE),))
    SyntheticJob(server, name="plain")
    visitor = open_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    visitor.sign_in()
    visitor.open("/jobs?columns=number,name,status,why,tags,tool,findings")
    page = visitor.page
    expect(page.locator(".jobs-table td[data-column=name]").nth(1)).to_contain_text("<img src=x")
    select(page, 1)
    page.get_by_text("Columns").click()
    visitor.check_accessibility()
    assert page.locator("img").count() == 0
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= width
