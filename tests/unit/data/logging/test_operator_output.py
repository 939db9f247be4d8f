"""What operators print, kept in a file of bounded size."""

import os
from pathlib import Path

import pytest

from joblens.data.logging.operator_output import captured_output


def test_a_file_has_its_size_at_most_over_all_tries(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "out.log"
    for _ in range(3):
        with captured_output(str(path), most_bytes=1000):
            os.write(1, b"x" * 700)
    text = path.read_text()
    assert text.startswith("x" * 1000 + "\n(400 more bytes dropped)\n")
    assert len(text) < 1200


def test_nothing_printed_leaves_no_file(tmp_path: Path) -> None:
    with captured_output(str(tmp_path / "logs" / "out.log")):
        pass
    assert not (tmp_path / "logs").exists()


def test_a_place_that_cannot_be_written_costs_the_text_only(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with captured_output(str(tmp_path / "logs" / "out.log")):
        os.write(1, b"lost\n" * 100_000)


def test_an_error_comes_through_and_the_streams_are_what_they_were(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        os.write(2, "half a character: \u00e9".encode()[:-1])
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"), captured_output(str(tmp_path / "out.log")):
        fail()
    os.write(1, b"outside\n")
    assert (tmp_path / "out.log").read_text() == "half a character: \\xc3"
    assert capfd.readouterr().out == "outside\n"


def test_zeros_in_what_is_printed_are_kept(tmp_path: Path) -> None:
    with captured_output(str(tmp_path / "out.log")):
        os.write(1, b"a\x00b\x00" * 3)
    assert (tmp_path / "out.log").read_text() == "a\\x00b\\x00" * 3
