"""Addresses and tokens of the exporter."""

from pathlib import Path

import pytest

from joblens.app.metrics.exporter import Address, parse_address, read_token
from joblens.model.errors import InputError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:80", Address("127.0.0.1", 80)),
        ("8080", Address("127.0.0.1", 8080)),
        ("[::1]:80", Address("::1", 80)),
        ("0.0.0.0", Address("0.0.0.0", 9750)),
        ("unix:/run/x.sock", Address(path="/run/x.sock")),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "host:", "host:http", "host:70000", ":80", "unix:", "unix:" + "x" * 200]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--listen"):
        parse_address(text)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
    ],
)
def test_only_loopback_is_loopback(host: str, is_loopback: bool) -> None:
    assert Address(host).is_loopback is is_loopback


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef\n")
    path.chmod(0o644)
    with pytest.raises(InputError, match="other users can read it"):
        read_token(str(path))
    path.chmod(0o600)
    assert read_token(str(path)) == "0123456789abcdef"


@pytest.mark.parametrize("text", ["", "short", "with space in the middle", "\n0123456789abcdef"])
def test_a_weak_token_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InputError, match="printable"):
        read_token(str(path))
