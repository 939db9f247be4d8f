"""Pages in a real Chromium, served by a real server. A page fails its test for a console error, an uncaught
exception, a request to another host, or a violation of the content policy."""

import contextlib
import os
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uplot")
pytest.importorskip("playwright")

from playwright.sync_api import Browser, Page, sync_playwright

from joblens.model.jobs.job import Record
from tests.conftest import python_path, wait_until
from tests.integration.served import Served

AXE = Path(__file__).parents[2] / ".venv/web/node_modules/axe-core/axe.min.js"
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.server)  # a browser, as a database, is not everywhere


# Per module: Playwright runs an event loop and a child process, which tests of other folders must not see.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("Chromium is not installed")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, headless=True, args=list(_ARGUMENTS))
        yield found
        found.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as found:
        yield found


class Watched:
    """A page of one server, and everything that went wrong in it."""

    def __init__(self, page: Page, server: Served) -> None:
        self.page = page
        self.server = server
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.may_lose_requests = False  # a lost one is no problem of the page
        host = urllib.parse.urlsplit(server.started.url).netloc
        page.on("console", lambda message: self._console(message.type, message.text))
        page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        page.on("request", lambda request: self._request(request.url, host))
        page.set_default_timeout(15_000)
        page.add_init_script(
            "document.addEventListener('securitypolicyviolation',"
            " e => console.error('policy violated: ' + e.violatedDirective + ' ' + e.blockedURI))"
        )

    def _console(self, kind: str, text: str) -> None:
        is_break = self.may_lose_requests and text.startswith("Failed to load resource")
        if kind in ("error", "warning") and not is_break:
            self.problems.append(f"{kind}: {text}")

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """Without a connection to the server."""
        self.may_lose_requests = True
        self.page.context.set_offline(True)
        yield
        self.page.context.set_offline(False)

    def _request(self, url: str, host: str) -> None:
        self.requests.append(url)
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("data", "blob", "about") and parts.netloc != host:
            self.problems.append(f"request to another host: {url}")

    def sign_in(self) -> None:
        """As the owner, with the URL that the server prints."""
        code = self.server.serving.application.sign_in_code()
        self.page.goto(f"{self.server.started.url}/sign-in?code={code}")
        self.page.wait_for_url(f"{self.server.started.url}/")

    def sign_in_with(self, token: str) -> None:
        self.page.goto(f"{self.server.started.url}/sign-in")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()

    def open(self, path: str) -> None:
        self.page.goto(self.server.started.url + path)

    def check_accessibility(self) -> None:
        """Fails with every violation of WCAG 2.2 A and AA that axe finds."""
        if not AXE.exists():
            pytest.skip("axe-core is not installed: scripts/check-web .venv --install")
        # evaluate runs in the page as the debugger does: the content policy does not apply to it.
        self.page.evaluate(AXE.read_text())
        found: dict[str, Any] = self.page.evaluate(
            "axe.run(document, {runOnly: "
            "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})"
        )
        assert [
            (each["id"], each["help"], [node["html"][:160] for node in each["nodes"]][:3])
            for each in found["violations"]
        ] == []


OpenPage = Callable[..., Watched]
StartJob = Callable[..., Record]


@pytest.fixture
def start_job(server: Served) -> Iterator[StartJob]:
    """Returns a function that starts a real job in the server's store (`start_job("--", "sleep", "9")`) and
    returns its record once it runs. At the end, jobs that still run are ended."""
    started: list[subprocess.Popen[bytes]] = []
    store = server.settings.store.url
    assert store is not None
    environment = {**os.environ, "JOBLENS_STORE": store, "PYTHONPATH": python_path()}

    def start(*words: str) -> Record:
        known = {each.job.uuid for each in _running(server)}
        command = [sys.executable, "-m", "joblens", "run", *words]
        started.append(
            subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        found = wait_until(
            lambda: [each for each in _running(server) if each.job.uuid not in known], what="the job to run"
        )
        return found[0]

    yield start
    for process in started:
        process.terminate()
    for process in started:
        process.wait(20)


def _running(server: Served) -> list[Record]:
    with server.store() as store:
        return [each for each in store.running() if each.attempt is not None and each.attempt.pid]


@pytest.fixture
def open_page(browser: Browser, server: Served) -> Iterator[OpenPage]:
    """Returns a function that opens a fresh browser session (`viewport=`, `color_scheme=`, …)."""
    watched: list[Watched] = []
    with contextlib.ExitStack() as stack:

        def fresh(**options: Any) -> Watched:
            context = browser.new_context(**{"timezone_id": "Europe/Berlin", "locale": "en-GB", **options})
            stack.callback(context.close)
            found = Watched(context.new_page(), server)
            watched.append(found)
            return found

        yield fresh
    for each in watched:
        assert each.problems == []


@pytest.fixture
def dashboard(open_page: OpenPage) -> Watched:
    """The Overview, signed in as the owner."""
    found = open_page()
    found.sign_in()
    return found
