"""The frame around all pages: sign-in, navigation, few requests, themes."""

import re
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.conftest import OpenPage, Watched
from tests.browser.synthetic import SyntheticJob
from tests.integration.served import Served


def test_the_sign_in_url_leads_to_the_overview(dashboard: Watched) -> None:
    expect(dashboard.page).to_have_title("Overview · joblens")
    expect(dashboard.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()


def test_the_sign_in_url_works_as_a_link_of_another_site(open_page: OpenPage) -> None:
    visitor = open_page()
    code = visitor.server.serving.application.sign_in_code()
    url = f"{visitor.server.started.url}/sign-in?code={code}"
    visitor.page.route(
        "http://terminal.test/",
        lambda route: route.fulfill(content_type="text/html", body=f'<a href="{url}">x</a>'),
    )
    visitor.page.goto("http://terminal.test/")
    visitor.problems.clear()  # the request to the other site
    visitor.page.get_by_role("link").click()
    expect(visitor.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()


def test_the_sign_in_url_leads_to_the_overview_again_while_the_session_lasts(
    dashboard: Watched, open_page: OpenPage
) -> None:
    code = dashboard.server.serving.application.sign_in_code()
    for _ in range(2):
        dashboard.open(f"/sign-in?code={code}")
        expect(dashboard.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    stranger = open_page()
    stranger.may_lose_requests = True  # the browser reports the status 401
    stranger.open(f"/sign-in?code={code}")
    expect(stranger.page.get_by_text("was used before")).to_be_visible()


def test_a_reader_without_a_session_is_asked_for_a_token(open_page: OpenPage) -> None:
    visitor = open_page()
    visitor.open("/jobs?status=failed")
    expect(visitor.page).to_have_url(re.compile("/sign-in"))
    visitor.check_accessibility()
    visitor.page.get_by_label("Token").fill(visitor.server.token())
    visitor.page.get_by_role("button", name="Sign in").click()
    expect(visitor.page).to_have_url(re.compile(r"/jobs\?status=failed$"))  # the page that was asked for
    expect(visitor.page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()


def test_the_first_view_takes_at_most_five_requests_and_200_kb(dashboard: Watched) -> None:
    session = dashboard.page.context.new_cdp_session(dashboard.page)
    sizes: list[float] = []
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    dashboard.requests.clear()
    dashboard.open("/")
    dashboard.page.wait_for_load_state("networkidle")
    asked = [url for url in dashboard.requests if not url.startswith("data:")]
    assert len(asked) <= 5, asked
    assert sum(sizes) < 200_000


def test_navigation_changes_page_and_address_without_loading_the_document_again(dashboard: Watched) -> None:
    dashboard.page.evaluate("window.isSameDocument = true")
    dashboard.page.get_by_role("link", name="Jobs", exact=True).click()
    expect(dashboard.page).to_have_url(re.compile("/jobs$"))
    expect(dashboard.page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    dashboard.page.go_back()
    expect(dashboard.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    assert dashboard.page.evaluate("window.isSameDocument")


def test_an_address_without_a_page_says_so_and_leads_to_the_overview(dashboard: Watched) -> None:
    dashboard.may_lose_requests = True  # the browser reports the status 404
    answer = dashboard.page.goto(f"{dashboard.server.started.url}/nowhere")
    assert answer is not None
    assert answer.status == 404
    expect(dashboard.page.get_by_role("heading", name="There is no such page")).to_be_visible()
    dashboard.page.get_by_role("main").get_by_role("link", name="Overview").click()
    expect(dashboard.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    assert dashboard.server.get("/nowhere").json["status"] == 404  # for programs


def test_signing_out_ends_the_session(dashboard: Watched) -> None:
    dashboard.page.get_by_role("button", name="Sign out").click()
    expect(dashboard.page.get_by_label("Token")).to_be_visible()
    dashboard.open("/")
    expect(dashboard.page.get_by_label("Token")).to_be_visible()


def test_meters_and_swatches_keep_their_colour_where_the_reader_chooses_all_others(
    open_page: OpenPage,
) -> None:
    visitor = open_page(forced_colors="active")
    visitor.sign_in()
    filling = visitor.page.locator(".meter > span").first
    expect(filling).to_be_attached()
    colour, ground = filling.evaluate(
        "node => [node, document.body].map(each => getComputedStyle(each).backgroundColor)"
    )
    assert colour != ground


def test_after_a_restart_of_the_server_the_reader_signs_in_and_comes_back(
    browser: Browser, tmp_path: Path
) -> None:
    context = browser.new_context()
    with Served(tmp_path) as first:
        port = first.port
        job = SyntheticJob(first, age_s=60, name="outlives the server")
        job.take(5)
        visitor = Watched(context.new_page(), first)
        visitor.may_lose_requests = True
        visitor.sign_in()
        visitor.open(f"/jobs/{job.uuid}")
        expect(visitor.page.locator(".connection")).to_have_text("Live")
    expect(visitor.page.locator(".connection")).to_have_text("Reconnecting…", timeout=20_000)
    with Served(tmp_path, options={"port": port}) as second:
        expect(visitor.page.get_by_label("Token")).to_be_visible(timeout=20_000)
        visitor.page.get_by_label("Token").fill(second.token())
        visitor.page.get_by_role("button", name="Sign in").click()
        expect(visitor.page.get_by_role("heading", level=1)).to_contain_text("outlives the server")
        expect(visitor.page.locator(".connection")).to_have_text("Live")
    context.close()
    assert visitor.problems == []
