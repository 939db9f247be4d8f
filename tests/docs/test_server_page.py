"""docs/server.md names a test for each promise, docs/api.md every path, docs/grpc.md methods and statuses."""

import re

import pytest

pytest.importorskip("starlette")

from joblens.web.application import all_endpoints
from joblens.web.stream_api import STREAMS
from tests.conftest import REPOSITORY


def test_every_promise_of_the_threat_model_has_a_test_that_exists() -> None:
    page = (REPOSITORY / "docs" / "server.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    folder = REPOSITORY / "tests" / "integration"
    files = [*folder.glob("test_server_*.py"), *folder.glob("test_grpc*.py")]
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


def test_every_method_and_status_is_on_the_page_of_grpc() -> None:
    pytest.importorskip("grpc")
    from joblens.web.rpc import proto_text
    from joblens.web.rpc.access import STATUSES

    page = (REPOSITORY / "docs" / "grpc.md").read_text(encoding="utf-8")
    methods = set(re.findall(r"rpc (\w+)\(", proto_text()))
    assert methods == set(re.findall(r"^\| `(\w+)` \| .* \| (?:reader|operator) \|$", page, re.MULTILINE))
    rows = re.findall(r"^\| (\d{3}) \| `(\w+)` \|", page, re.MULTILINE)
    assert {int(number): name for number, name in rows} == {
        number: status.name for number, status in STATUSES.items()
    }
