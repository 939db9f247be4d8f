"""The pages in a real browser, where there is one: they draw themselves without network or complaint."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from joblens.app.reports.plots import plot_run
from joblens.stores.sqlite import SqliteStore
from tests.integration.plot_material import fan_plan, fill_run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.needs("plotly", "matplotlib"),
    pytest.mark.skipif(BROWSER is None, reason="no browser is installed"),
]


def opened(page: Path, profile: Path) -> tuple[str, str]:
    """-> the document after its scripts have run, and what the browser logged."""
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={profile}",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--window-size=1300,900",
            "--virtual-time-budget=2000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr


@pytest.mark.slow
def test_every_kind_of_page_draws_itself_without_a_complaint(store_path: Path, tmp_path: Path) -> None:
    store = SqliteStore(str(store_path))
    plan = fan_plan(3)
    run = fill_run(store, plan)
    done = plot_run(store, run, str(tmp_path / "plots"), plan=plan)
    store.close()
    pages = [path for path in done.files if "_job_" not in path or path.endswith("_job_2.html")]
    assert len(pages) == 5
    for path in pages:
        document, log = opened(Path(path), tmp_path / "profile")
        assert [line for line in log.splitlines() if "CONSOLE" in line] == []
        drawn = re.sub(r"<script>.*?</script>", "", document, flags=re.DOTALL)
        assert 'class="main-svg"' in drawn, path
        assert len(re.findall(r'<g class="(?:trace|points|point)\b', drawn)) >= 3, path
        assert "Download as SVG" in drawn
        assert "Share" not in drawn  # plotly.js would offer to upload it
        assert "train_000" in drawn or "CPU" in drawn


@pytest.mark.slow
def test_a_page_that_complains_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text("<script>console.error('it does not work'); nothing.here</script>")
    _, log = opened(page, tmp_path / "profile")
    assert "CONSOLE" in log
    assert "it does not work" in log
