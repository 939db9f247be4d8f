"""What waits for the supervisor in a file: private, whole, and byte for byte what was submitted."""

import os
from pathlib import Path

import pytest

from joblens.agent.runtime.payload import (
    Payload,
    payload_path,
    payloads,
    read_payload,
    remove_payload,
    write_payload,
)

PAYLOAD = Payload(
    argv=("printf", "%s", "a\udcffb"),
    env={"NAME": "ä", "ODD\udcfe": "\udcfd"},
    cwd="/tmp/\udcfa",
    logs_dir="/logs",
    output_max_bytes=7,
)


def test_what_is_read_is_what_was_written_bytes_that_are_no_text_included(tmp_path: Path) -> None:
    write_payload(str(tmp_path), "id", PAYLOAD)
    assert read_payload(str(tmp_path), "id") == PAYLOAD


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    write_payload(str(folder), "id", PAYLOAD)
    assert os.stat(payload_path(str(folder), "id")).st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_one_that_is_gone_or_torn_is_none(tmp_path: Path) -> None:
    write_payload(str(tmp_path), "id", PAYLOAD)
    path = Path(payload_path(str(tmp_path), "id"))
    path.write_bytes(path.read_bytes()[:-5])
    assert read_payload(str(tmp_path), "id") is None
    remove_payload(str(tmp_path), "id")
    assert read_payload(str(tmp_path), "id") is None
    remove_payload(str(tmp_path), "id")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_one_that_another_user_has_put_there_is_none(tmp_path: Path) -> None:
    write_payload(str(tmp_path), "id", PAYLOAD)
    os.chown(payload_path(str(tmp_path), "id"), 12345, 12345)
    assert read_payload(str(tmp_path), "id") is None


def test_those_that_wait_are_found(tmp_path: Path) -> None:
    write_payload(str(tmp_path), "one", PAYLOAD)
    write_payload(str(tmp_path), "two", PAYLOAD)
    (tmp_path / "supervisor.lock").write_text("")
    assert sorted(payloads(str(tmp_path))) == ["one", "two"]
    assert payloads(str(tmp_path / "nowhere")) == []
