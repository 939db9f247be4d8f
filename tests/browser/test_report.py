"""Reports opened from a file: no server, no request, pages that work."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.conftest import AXE
from tests.conftest import RunJoblens

HOSTILE = "<img src=x onerror=alert(1)></script>"
WORKFLOW = """name: pair
jobs:
  - name: first
    command: echo one
  - name: second
    command: sh -c 'echo two; exit 5'
    depends_on: [first]
"""


class Opened:
    """A report in a browser without a network, and everything that went wrong in it."""

    def __init__(self, context: BrowserContext, path: Path) -> None:
        self.page: Page = context.new_page()
        self.problems: list[str] = []
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        self.page.on("request", lambda request: self._request(request.url))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.set_default_timeout(15_000)
        self.page.add_init_script(
            "document.addEventListener('securitypolicyviolation',"
            " e => console.error('policy violated: ' + e.violatedDirective + ' ' + e.blockedURI))"
        )
        self.url = path.as_uri()

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.problems.append(f"{kind}: {text}")

    def _request(self, url: str) -> None:
        if not url.startswith((self.url, "data:", "blob:")):
            self.problems.append(f"request: {url}")

    def open(self, place: str = "/") -> Page:
        self.page.goto(f"{self.url}#{place}")
        return self.page

    def check_accessibility(self) -> None:
        if not AXE.exists():
            pytest.skip("axe-core is not installed: scripts/check-web .venv --install")
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate(
            "axe.run(document, {runOnly: "
            "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})"
        )
        assert [
            (each["id"], [node["html"][:160] for node in each["nodes"]]) for each in found["violations"]
        ] == []


@pytest.fixture
def opened(browser: Browser, joblens: RunJoblens, tmp_path: Path) -> Iterator[Opened]:
    """Three jobs with hostile text and a run of two, in one report."""
    joblens("run", "--name", "train", "--interval", "50ms", "--", "sh", "-c", "seq 600; sleep 0.4", code=0)
    joblens("run", "--name", "train", "--", "sh", "-c", "echo again; sleep 0.2", code=0)
    joblens(
        "run", "--name", HOSTILE, "--tag", HOSTILE, "--", "sh", "-c", f"echo '{HOSTILE}' >&2; exit 3", code=3
    )
    (tmp_path / "w.yaml").write_text(WORKFLOW)
    joblens("run", "w.yaml")
    joblens("report", "--since", "1h", "-o", "r.html", "--title", HOSTILE, code=0)
    context = browser.new_context(timezone_id="Europe/Berlin", locale="en-GB", offline=True)
    found = Opened(context, tmp_path / "r.html")
    yield found
    context.close()
    assert found.problems == []


def test_a_report_is_read_from_its_summary_to_a_job_and_back(opened: Opened) -> None:
    page = opened.open()
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    expect(page.locator(".failure")).to_have_count(2)
    expect(page.locator(".failure").filter(has_text="onerror")).to_contain_text("exit code 3")
    opened.check_accessibility()
    page.locator(".tile.has-failures").click()
    expect(page.locator(".jobs-table tbody tr[data-key]")).to_have_count(2)
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect(page.locator(".jobs-table tbody tr[data-key]")).to_have_count(5)
    page.get_by_label("Search names").fill("train")
    expect(page.locator(".jobs-table tbody tr[data-key]")).to_have_count(2)
    page.get_by_role("button", name="Duration").click()
    expect(page.locator(".jobs-table tbody tr[data-key]").first).to_have_attribute("data-key", "1")
    page.locator(".jobs-table tbody a").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("train")
    expect(page.locator(".chart canvas").first).to_be_visible()
    expect(page.locator(".log-body, .log").first).to_contain_text("600")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    opened.check_accessibility()
    page.go_back()
    expect(page.locator(".jobs-table tbody tr[data-key]")).to_have_count(2)
    expect(page.get_by_label("Search names")).to_have_value("train")
    page.go_forward()
    expect(page.get_by_role("heading", level=1)).to_contain_text("train")


def test_a_run_in_a_report_has_its_graph_and_links_to_its_jobs(opened: Opened) -> None:
    page = opened.open()
    page.get_by_role("navigation").get_by_role("link", name=re.compile("^Run ")).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("pair")
    expect(page.locator("svg text", has_text="first").first).to_be_visible()
    # Its workflow has no page here: no link leads nowhere.
    expect(page.get_by_role("heading", level=1).get_by_role("link")).to_have_count(0)
    page.locator(".run-table tbody a").filter(has_text="second").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("second")
    page.get_by_role("link", name="its run").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("pair")
    page.get_by_role("link", name="Jobs", exact=True).click()
    for number in ("1", "2"):
        page.get_by_label(f"Select {number}", exact=True).check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 2 jobs")
    expect(
        page.get_by_role("rowheader", name="wall time").or_(page.get_by_role("cell", name="wall time")).first
    ).to_be_visible()
    opened.open("/jobs/77")
    expect(page.get_by_role("alert")).to_contain_text("this report does not have job 77")
    opened.check_accessibility()


def test_compare_begins_with_all_jobs(opened: Opened) -> None:
    page = opened.open()
    navigation = page.get_by_role("navigation")
    navigation.get_by_role("link", name="Compare").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 5 jobs")
    expect(navigation.locator("[aria-current=page]")).to_have_text("Compare")
    navigation.get_by_role("link", name="Run 1.1").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("pair")
    expect(navigation.locator("[aria-current=page]")).to_have_text("Run 1.1")


def test_a_report_of_one_job_opens_with_its_page(opened: Opened, joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("run", "--name", " ", "--", "echo", "alone", code=0)
    joblens("report", "6", "-o", "one.html", code=0)
    opened.url = (tmp_path / "one.html").as_uri()
    page = opened.page
    page.goto(opened.url)
    expect(page.get_by_role("heading", level=1)).to_contain_text("echo alone")  # a blank name is none
    expect(page.locator(".log")).to_contain_text("alone")
    page.get_by_role("link", name="Summary").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Job 6")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_contain_text("echo alone")


def test_a_report_fits_a_phone_in_the_dark(browser: Browser, opened: Opened) -> None:
    context = browser.new_context(
        viewport={"width": 320, "height": 700}, color_scheme="dark", offline=True, has_touch=True
    )
    try:
        phone = Opened(context, Path(opened.url.removeprefix("file://")))
        for place in ("/", "/jobs", "/jobs/3"):
            page = phone.open(place)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= 320
            phone.check_accessibility()
        assert phone.problems == []
    finally:
        context.close()
