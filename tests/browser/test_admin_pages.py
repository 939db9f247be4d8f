"""Queue, Nodes, Benchmarks, Settings, Tokens and Audit log in Chromium."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import expect

import joblens
from joblens.app.bench.files import default_results_dir, save
from joblens.model.access import Role
from joblens.model.jobs.job import Status
from tests.browser.conftest import OpenPage, Watched
from tests.builders.tickets import LEASE_S, ticketed, worker
from tests.integration.served import Served
from tests.unit.analysis.comparing.test_bench_history import FAST, SLOW, result

HOSTILE = "<script>alert(1)</script>"
PAGES = ("/queue", "/nodes", "/benchmarks", "/benchmarks/sort", "/settings", "/tokens", "/audit")


@pytest.fixture
def busy(server: Served) -> Served:
    """A queue with a worker, waiting and held jobs, a queue without one, and two results of a benchmark."""
    server.apply(*(write for number in range(5) for write in ticketed(f"a{number}", user=HOSTILE)))
    server.apply(*ticketed("g1", queue=HOSTILE), *ticketed("z1", after="a1", user=HOSTILE))
    with server.store() as store:
        taking = replace(worker("w1", any_user=True), running=2)
        store.claim(taking, ["a0"], LEASE_S)
        store.renew(taking, {"a0": 1}, LEASE_S)
    folder = default_results_dir(server.settings)
    quick = result(3, 0.0527, title="quick")
    for document in (result(1, *FAST), result(2, *SLOW, disturbances=[HOSTILE]), quick):
        save(document, folder)
    return server


def test_waiting_jobs_show_position_and_reason_and_can_be_cancelled(busy: Served, dashboard: Watched) -> None:
    page = dashboard.page
    dashboard.open("/queue")
    waiting = page.get_by_role("grid", name="Waiting jobs")
    expect(waiting.get_by_role("row").filter(has_text="1 before it; all 2 slots of 1 worker")).to_have_count(
        1
    )
    expect(waiting).to_contain_text("starts when the job before it has succeeded")
    expect(page.get_by_role("alert").filter(has_text="no worker serves the queue")).to_contain_text(HOSTILE)
    expect(page.get_by_role("grid", name="Jobs on workers").get_by_role("row")).to_have_count(2)
    page.get_by_label("Select 2", exact=True).check()
    page.get_by_label("Select 3", exact=True).check()
    page.get_by_role("button", name="Cancel 2 jobs").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel 2 jobs").click()
    expect(waiting.get_by_label("Select 2", exact=True)).to_have_count(0)
    with busy.store() as store:
        assert store.states(["a1", "a2"]) == {"a1": Status.CANCELLED, "a2": Status.CANCELLED}


def test_a_phone_shows_which_job_waits(busy: Served, open_page: OpenPage) -> None:
    phone = open_page(viewport={"width": 320, "height": 700})
    phone.sign_in()
    phone.open("/queue")
    job = phone.page.get_by_role("grid", name="Waiting jobs").locator("td[data-column=name]").first
    box = job.bounding_box()
    assert box is not None
    assert box["width"] > 90
    assert box["x"] + box["width"] < 320


@pytest.mark.parametrize("path", ["/queue", "/nodes"])
def test_on_a_phone_tables_scroll_by_themselves_and_with_the_keyboard(
    busy: Served, open_page: OpenPage, path: str
) -> None:
    phone = open_page(viewport={"width": 320, "height": 700})
    phone.sign_in()
    phone.open(path)
    page = phone.page
    expect(page.locator("main td").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    boxes = page.locator("main .table, main .scroll-x")
    wide = [box for box in boxes.all() if box.evaluate("node => node.scrollWidth > node.clientWidth")]
    assert wide
    for box in wide:
        box.focus()
        expect(box).to_be_focused()
        assert box.get_attribute("aria-label")
    inner = page.locator("main td, main th").evaluate_all(
        "nodes => nodes.filter(node => node.checkVisibility() && !node.closest('.table, .scroll-x')).length"
    )
    assert inner == 0


def test_new_jobs_appear_and_one_queue_can_be_shown_alone(busy: Served, dashboard: Watched) -> None:
    page = dashboard.page
    dashboard.open("/queue")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    busy.apply(*ticketed("late"))
    expect(page.get_by_role("grid", name="Waiting jobs")).to_contain_text("4 before it")
    page.get_by_role("button", name=HOSTILE).click()
    expect(page).to_have_url(re.compile("queue="))
    expect(page.get_by_role("grid", name="Waiting jobs").get_by_role("row")).to_have_count(2)


def test_nodes_show_workers_and_what_is_measured(busy: Served, tmp_path: Path, dashboard: Watched) -> None:
    joblens.run(["true"], store=str(tmp_path / "joblens.db"))
    page = dashboard.page
    dashboard.open("/nodes")
    expect(page.get_by_text("this server")).to_be_visible()
    far = page.get_by_role("region", name="host", exact=True)
    expect(far).to_contain_text("2 of 2")
    here = page.locator(".node-card").first
    expect(here.get_by_role("meter", name=re.compile("^CPU of"))).to_be_visible()
    here.get_by_text("Measured here").click()
    expect(here.get_by_role("table", name="Measured", exact=True)).to_contain_text("cpu")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


def test_benchmarks_show_noise_and_change(busy: Served, dashboard: Watched) -> None:
    page = dashboard.page
    dashboard.open("/benchmarks")
    row = page.get_by_role("row").filter(has_text="sort")
    expect(row).to_contain_text("▲ 100% more")
    expect(row).to_contain_text(re.compile(r"±\d"))
    expect(page.get_by_role("row").filter(has_text="quick")).to_contain_text("52.7ms")
    row.get_by_role("link", name="sort").click()
    expect(page.get_by_role("heading", name="sort", level=1)).to_be_visible()
    expect(page.locator("svg.dots circle")).to_have_count(len(FAST) + len(SLOW))
    expect(page.get_by_text(HOSTILE)).to_be_visible()
    dashboard.open("/benchmarks/nothing")
    expect(page.get_by_role("alert")).to_contain_text("no benchmark 'nothing'")
    dashboard.problems[:] = [each for each in dashboard.problems if "404" not in each]  # asked for above


def test_settings_are_searched_and_read_only(busy: Served, dashboard: Watched) -> None:
    page = dashboard.page
    dashboard.open("/settings")
    expect(page.get_by_text("JOBLENS_STORE_URL")).to_be_visible()
    page.get_by_label("Search settings").fill("lease")
    expect(page.get_by_text("queue.lease")).to_be_visible()
    expect(page.get_by_text("JOBLENS_STORE_URL")).to_have_count(0)
    page.get_by_label("Search settings").fill("")
    page.get_by_label("only those that are set").check()
    expect(page.get_by_text("store.url")).to_be_visible()
    expect(page.get_by_text("queue.lease")).to_have_count(0)


def test_a_token_is_shown_once_works_is_rotated_and_revoked(busy: Served, dashboard: Watched) -> None:
    page = dashboard.page
    dashboard.open("/tokens")
    page.get_by_label("Name", exact=True).fill("ci")
    page.get_by_label("Acts as user").fill("ana")
    page.get_by_label("Sees jobs of").select_option("all")
    page.get_by_role("button", name="Create token").click()
    secret = page.locator(".new-secret code").inner_text()
    assert busy.get("/api/v1/version", secret).status == 200
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_text(secret)).to_have_count(0)
    page.get_by_role("button", name="Rotate ci").click()
    page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
    expect(page.locator(".new-secret code")).not_to_have_text(secret)
    newer = page.locator(".new-secret code").inner_text()
    dashboard.open("/tokens")
    expect(page.get_by_text(newer)).to_have_count(0)
    page.get_by_role("button", name="Revoke ci").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("status").filter(has_text="ci is revoked")).to_be_visible()
    statuses = {busy.get("/api/v1/version", each).status for each in (secret, newer)}
    assert statuses == {200, 401}
    page.get_by_label("with expired and revoked ones").check()
    expect(page.get_by_role("table", name="Tokens")).to_contain_text("revoked")
    dashboard.open("/audit")
    expect(page.get_by_role("table", name="Audit log")).to_contain_text("token-rotate")
    page.get_by_label("action").fill("token-revoke")
    expect(page.get_by_role("status").filter(has_text="1 entry")).to_be_visible()
    expect(page).to_have_url(re.compile("action=token-revoke"))


def test_a_reader_sees_no_tokens_and_no_audit_log(busy: Served, open_page: OpenPage) -> None:
    reader = open_page()
    reader.sign_in_with(busy.token(Role.READER))
    page = reader.page
    expect(page.get_by_role("link", name="Queue", exact=True)).to_be_visible()
    for name in ("Tokens", "Audit log"):
        expect(page.get_by_role("link", name=name)).to_have_count(0)
    reader.open("/tokens")
    expect(page.get_by_role("alert")).to_contain_text("administrators")
    reader.open("/audit")
    expect(page.get_by_role("alert")).to_contain_text("administrators")
    reader.open("/queue")
    expect(
        page.get_by_role("table", name="Waiting jobs").or_(page.get_by_role("grid", name="Waiting jobs"))
    ).to_be_visible()
    expect(page.get_by_label("Select 2", exact=True)).to_have_count(0)
    assert busy.get("/api/v1/tokens", busy.token(Role.READER)).status == 403
    assert busy.get("/api/v1/audit", busy.token(Role.OPERATOR)).status == 403


@pytest.mark.parametrize(
    "options",
    [{}, {"color_scheme": "dark", "viewport": {"width": 320, "height": 700}}],
    ids=["light", "dark-and-narrow"],
)
def test_the_pages_are_accessible(busy: Served, open_page: OpenPage, options: dict[str, object]) -> None:
    found = open_page(**options)
    found.sign_in()
    for path in PAGES:
        found.open(path)
        expect(found.page.get_by_role("heading", level=1)).to_be_visible()
        found.page.wait_for_load_state("networkidle")
        found.check_accessibility()
        assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
