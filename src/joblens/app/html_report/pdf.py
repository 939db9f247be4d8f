"""A report on paper, printed by a Chromium of this machine."""

import os
import shutil
import subprocess
import tempfile
from urllib.parse import quote

from joblens.files.atomic import output_path
from joblens.model.errors import InputError, PrintError

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
_TIMEOUT_S = 120
# The window is as wide as the paper in the style sheet, so that charts keep their size.
_OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--window-size=1004,1400",
    "--force-device-scale-factor=2",
    "--no-pdf-header-footer",
)


def find_chromium() -> str:
    """Raises InputError with a hint if there is none."""
    for name in _NAMES:
        found = shutil.which(name)
        if found is not None:
            return found
    raise InputError(
        "a PDF needs Chromium or Chrome, and none is on the PATH",
        hint="install chromium, or open the HTML report in a browser and print it",
    )


def print_pdf(chromium: str, report: str, output: str) -> None:
    """Raises PrintError."""
    url = f"file://{quote(os.path.abspath(report))}#/print"
    # A sandbox is not possible for root. The page cannot load anything: its content policy forbids it.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="joblens-pdf-") as folder:
        part = os.path.join(folder, "report.pdf")
        command = [chromium, *_OPTIONS, *sandbox, f"--user-data-dir={folder}", f"--print-to-pdf={part}", url]
        try:
            process = subprocess.run(
                command, capture_output=True, timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired as error:
            raise PrintError(f"Chromium did not print the report within {_TIMEOUT_S}s") from error
        except OSError as error:
            raise PrintError(f"{chromium} cannot be started: {error.strerror}") from error
        if process.returncode or not os.path.exists(part):
            last = process.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            why = "".join(last)[:300] or f"exit code {process.returncode}"
            raise PrintError(
                f"Chromium could not print the report: {why}",
                hint="open the HTML report in a browser and print it",
            )
        try:
            with output_path(output) as target:
                shutil.copyfile(part, target)
        except OSError as error:
            raise InputError(f"{output}: cannot be written: {error.strerror or error}") from error
