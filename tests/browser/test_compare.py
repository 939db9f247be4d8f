"""Compare with real jobs of a sweep, in Chromium."""

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from joblens import run, run_workflow
from tests.browser.conftest import OpenPage, Watched
from tests.conftest import RunJoblens
from tests.integration.served import Served

HOSTILE = "<img src=x onerror=alert(1)>"
WORK = """
import sys, time
held = bytearray(int(sys.argv[1]) << 20)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end: pass
"""
SWEEP = ((8, 0.3, "adam"), (64, 0.3, HOSTILE), (16, 0.9, "adam"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Three jobs, of which the second takes more memory and the third more time than the first; two runs."""
    folder = tmp_path_factory.mktemp("sweep")
    store = str(folder / "joblens.db")
    for number, (size, seconds, optimizer) in enumerate(SWEEP):
        run(
            [sys.executable, "-c", WORK, str(size), str(seconds)],
            name=HOSTILE if number == 1 else f"train-{number}",
            params={"size": size, "optimizer": optimizer, "seed": (1, 4, 10)[number], "layers": 2 + number},
            interval=0.1,
            store=store,
        )
    with contextlib.chdir(folder):
        for _ in range(2):
            run_workflow({"name": "two", "jobs": [{"name": "a", "command": "sleep 0.2"}]}, store=store)
    with Served(folder) as found:
        yield found


def cell(page: Watched, row: str, column: int) -> Locator:
    table = page.page.get_by_role("table", name="Numbers", exact=True)
    return table.get_by_role("row").filter(has_text=re.compile(f"^{row}")).get_by_role("cell").nth(column)


def test_selected_jobs_are_compared_with_significant_differences(dashboard: Watched) -> None:
    page = dashboard.page
    dashboard.open("/jobs")
    for number in (1, 2, 3):
        page.get_by_label(f"Select {number}", exact=True).check()
    page.get_by_role("button", name="Compare").click()
    expect(page).to_have_url(re.compile("/compare[?]ids="))
    dashboard.open("/compare?ids=1,2,3")
    expect(page.get_by_role("heading", name="Compare 3 jobs")).to_be_visible()
    expect(cell(dashboard, "peak memory", 1)).to_contain_text("significantly more")
    expect(cell(dashboard, "wall time", 2)).to_contain_text("significantly more")
    expect(cell(dashboard, "peak memory", 0)).to_contain_text("baseline")
    expect(page.get_by_role("link", name=HOSTILE).first).to_be_visible()
    assert page.locator("main img").count() == 0
    page.get_by_label("only significant differences").check()
    expect(page).to_have_url(re.compile("only=1"))
    expect(page.get_by_role("row").filter(has_text=re.compile("^processes seen at once"))).to_have_count(0)
    facts = page.get_by_role("table", name="Provenance", exact=True)
    expect(facts.get_by_role("row").filter(has_text="optimizer")).to_contain_text(HOSTILE)
    page.get_by_role("heading", name="Curves").scroll_into_view_if_needed()
    memory = page.locator("figure", has=page.get_by_text("Memory", exact=True))
    expect(memory.locator("canvas")).to_be_visible()
    expect(memory).to_contain_text(f"2 {HOSTILE} ")


def test_ticks_of_an_axis_are_whole_where_its_numbers_are_and_never_repeat(dashboard: Watched) -> None:
    dashboard.open("/compare?ids=1,2,3")
    page = dashboard.page
    expect(page.locator(".axis").first).to_be_visible()
    ticks: dict[str, list[str]] = page.evaluate(
        "() => Object.fromEntries([...document.querySelectorAll('.axis')].map((axis) => "
        "[axis.querySelector('.axis-title').firstChild.nodeValue, "
        "[...axis.querySelectorAll('.tick-text')].map((text) => text.textContent)]))"
    )
    assert all(len(set(words)) == len(words) for words in ticks.values())
    assert ticks["layers"] == ["2", "3", "4"]
    for name, ends in (("size", ("8", "64")), ("seed", ("1", "10"))):
        assert all(word.isdigit() for word in ticks[name]), name
        assert (ticks[name][0], ticks[name][-1]) == ends
        assert len(ticks[name]) > 2


def test_brushes_select_jobs_with_the_keyboard_and_the_pointer(dashboard: Watched) -> None:
    page = dashboard.page
    dashboard.open("/compare?ids=1,2,3")
    low = page.get_by_role("slider", name="size, lowest selected")
    low.focus()
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    expect(page.locator(".parallel-said")).to_contain_text("1 of 3 jobs selected")
    assert low.get_attribute("aria-valuenow") == "40"
    expect(cell(dashboard, "peak memory", 0)).to_have_class(re.compile("faint"))
    expect(cell(dashboard, "peak memory", 1)).not_to_have_class(re.compile("faint"))
    page.keyboard.press("Escape")
    expect(page.locator(".parallel-said")).to_contain_text("3 jobs. Drag")
    axis = page.locator(".axis", has_text="wall time").locator(".hit")
    box = axis.bounding_box()
    assert box is not None
    x = box["x"] + box["width"] / 2
    page.mouse.move(x, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(x, box["y"] + box["height"] / 3)
    page.mouse.up()
    expect(page.locator(".parallel-said")).to_contain_text("1 of 3 jobs selected")
    expect(cell(dashboard, "wall time", 2)).not_to_have_class(re.compile("faint"))
    page.get_by_role("button", name="Clear selection").click()
    expect(page.locator(".parallel-said")).to_contain_text("3 jobs. Drag")


def test_the_baseline_can_be_chosen_and_a_job_left_out(dashboard: Watched) -> None:
    page = dashboard.page
    dashboard.open("/compare?ids=1,2,3")
    page.get_by_role("button", name="Make 3 train-2 the baseline").click()
    expect(page).to_have_url(re.compile("ids=3%2C1%2C2"))
    expect(page.get_by_text("Changes are against 3 train-2.")).to_be_visible()
    expect(cell(dashboard, "wall time", 1)).to_contain_text("significantly less")
    page.get_by_role("button", name=f"Remove 2 {HOSTILE}").click()
    expect(page.get_by_role("heading", name="Compare 2 jobs")).to_be_visible()


def test_runs_are_compared_by_their_ids(dashboard: Watched) -> None:
    page = dashboard.page
    dashboard.open("/compare")
    page.get_by_label("Jobs or runs", exact=True).select_option("run")
    page.get_by_label("IDs").fill("1.1 1.2")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("heading", name="Compare 2 runs")).to_be_visible()
    expect(cell(dashboard, "jobs that succeeded", 0)).to_contain_text("1")


def test_a_report_compares_its_jobs_without_a_server(
    server: Served, joblens: RunJoblens, browser: Browser, tmp_path: Path
) -> None:
    joblens(
        "report",
        "job:1",
        "job:2",
        "job:3",
        "--store",
        server.started.store,
        "-o",
        str(tmp_path / "r.html"),
        code=0,
    )
    context = browser.new_context(offline=True)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{(tmp_path / 'r.html').as_uri()}#/compare?ids=1,2,3")
    expect(page.get_by_role("heading", name="Compare 3 jobs")).to_be_visible()
    expect(page.get_by_role("slider").first).to_be_visible()
    page.get_by_role("button", name="Make 3 train-2 the baseline").click()
    expect(page.get_by_text("Changes are against 3 train-2.")).to_be_visible()
    context.close()
    assert problems == []


@pytest.mark.parametrize(
    "options",
    [{}, {"color_scheme": "dark", "viewport": {"width": 320, "height": 700}}],
    ids=["light", "dark-and-narrow"],
)
def test_compare_is_accessible(open_page: OpenPage, options: dict[str, object]) -> None:
    found = open_page(**options)
    found.sign_in()
    found.open("/compare?ids=1,2,3")
    expect(found.page.get_by_role("slider").first).to_be_visible()
    found.check_accessibility()
    assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
