"""docs/server.md names a test for each promise, and docs/api.md every path; both exist."""

import re

import pytest

pytest.importorskip("starlette")

from joblens.web.application import all_endpoints
from joblens.web.stream_api import STREAMS
from tests.conftest import REPOSITORY


def test_every_promise_of_the_threat_model_has_a_test_that_exists() -> None:
    page = (REPOSITORY / "docs" / "server.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    files = (REPOSITORY / "tests" / "integration").glob("test_server_*.py")
    defined = {
        name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    assert len(named) > 15
    assert not named - defined


def test_every_path_is_on_the_page_of_the_api() -> None:
    page = (REPOSITORY / "docs" / "api.md").read_text(encoding="utf-8")
    paths = {each.path for each in all_endpoints()} | {each.path for each in STREAMS}
    missing = {path for path in paths if path not in page and f"`/{path.rpartition('/')[2]}`" not in page}
    assert not missing
