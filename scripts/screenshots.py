"""Takes pictures of every page of the dashboard and of a report: light and dark, desktop and phone.

python scripts/screenshots.py [--docs]    --docs also renews the pictures in docs/pictures"""

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parent.parent
MAIN = ROOT / "src/joblens/app/dashboard/static/main.js"
OUTPUT = ROOT / "output/screenshots"
PICTURES = ROOT / "docs/pictures"
JOBLENS = str(Path(sys.executable).with_name("joblens"))
SIZES = {"desktop": (1280, 860), "phone": (360, 740)}
PARAMETERS = {":job": "1", ":run": "1.1", ":workflow": "1", ":name": "sleep"}
QUERIES = {"/compare": "?ids=1,3"}
# name of a picture -> name in docs
IN_DOCS = {
    "overview": "dashboard",
    "jobs-job": "dashboard-job",
    "report": "report",
}
SETTLED_MS = 1500  # charts are drawn, numbers have arrived


def main() -> None:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="joblens-pictures-") as folder:
        work = Path(folder)
        running, recipe = fill(work)
        try:
            report = work / "report.html"
            joblens(work, "report", "ml_pipeline", "-o", str(report))
            with serving(work) as url, sync_playwright() as playwright:
                chromium = shutil.which("chromium") or shutil.which("google-chrome")
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                for scheme in ("light", "dark"):
                    for size in SIZES:
                        take(browser, url, recipe, report, scheme, size)
                browser.close()
        finally:
            joblens(work, "cancel", running)
            joblens(work, "wait", running)
    if "--docs" in sys.argv[1:]:
        for picture, name in IN_DOCS.items():
            shutil.copy(OUTPUT / f"{picture}-light-desktop.png", PICTURES / f"{name}.png")
    print(f"{len(list(OUTPUT.glob('*.png')))} pictures in {OUTPUT}")


def fill(work: Path) -> tuple[str, str]:
    """Runs jobs of every kind. Returns the numbers of one that still runs, and of a recipe's."""
    shutil.copy(ROOT / "scripts/demo_job.py", work)  # pictures show commands, and no path of this machine
    demo = ("run", "--name", "demo", "--interval", "200ms", "--", "python3", "demo_job.py")
    joblens(work, *demo)
    joblens(work, "run", "--name", "fails", "--", "sh", "-c", "echo no such file >&2; exit 3")
    joblens(work, *demo)
    shutil.copytree(ROOT / "examples", work, dirs_exist_ok=True)
    joblens(work, "run", "ml_pipeline.yaml")
    with open(work / "pages.jsonl", "w", encoding="utf-8") as pages:
        subprocess.run([sys.executable, "recipe/make_pages.py", "5000"], cwd=work, stdout=pages, check=True)
    joblens(work, "process", "recipe.yaml")
    (recipe,) = json.loads(joblens(work, "history", "--tool", "recipe", "--json"))
    joblens(work, "bench", "--name", "sleep", "--runs", "3", "--", "sleep", "0.1")
    busy = "while :; do head -c 3000000 /dev/zero | sha256sum; sleep 0.05; done"
    done = joblens(work, "submit", "--name", "busy", "--memory", "64m", "--json", "--", "sh", "-c", busy)
    return str(json.loads(done)["number"]), str(recipe["number"])


def joblens(work: Path, *arguments: str) -> str:
    """A failed job is part of the picture."""
    command = [JOBLENS, "--store", str(work / "joblens.db"), *arguments]
    return subprocess.run(command, cwd=work, stdout=subprocess.PIPE, text=True, check=False).stdout


@contextmanager
def serving(work: Path) -> Iterator[str]:
    command = [JOBLENS, "--store", str(work / "joblens.db"), "serve", "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        yield started["sign_in_url"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


SESSION: list[dict[str, object]] = []  # a sign-in URL works once


def take(browser: Browser, url: str, recipe: str, report: Path, scheme: str, size: str) -> None:
    width, height = SIZES[size]
    context = browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": height},
        locale="en-GB",
        timezone_id="Europe/Berlin",
    )
    page = context.new_page()
    base = url.partition("/sign-in")[0]
    if SESSION:
        context.add_cookies(SESSION)  # type: ignore[arg-type]  # as the browser gave them
    else:
        page.goto(url)
        page.wait_for_url(f"{base}/")
        SESSION.extend(context.cookies())  # type: ignore[arg-type]
    for path in re.findall(r'\{ path: "([^"]+)", page:', MAIN.read_text()):
        address = path
        for name, value in PARAMETERS.items():
            address = address.replace(name, value)
        if path.startswith("/recipes"):
            address = f"/recipes/{recipe}"
        name = path.strip("/").replace("/:", "-") or "overview"
        shoot(page, f"{base}{address}{QUERIES.get(path, '')}", f"{name}-{scheme}-{size}")
    shoot(page, report.as_uri(), f"report-{scheme}-{size}")
    context.close()


def shoot(page: Page, url: str, name: str) -> None:
    page.goto(url)
    page.locator("main h1").first.wait_for()
    page.wait_for_timeout(SETTLED_MS)
    page.screenshot(path=OUTPUT / f"{name}.png")


if __name__ == "__main__":
    main()
