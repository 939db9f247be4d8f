"""What operators print, kept in a file of bounded size."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from joblens.data.logging.operator_output import kept_output


def test_a_file_has_its_size_at_most_over_all_tries(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "out.log"
    for _ in range(3):
        with kept_output(str(path), most_bytes=1000):
            os.write(1, b"x" * 700)
    said = path.read_text()
    assert said.startswith("x" * 1000 + "\n(400 more bytes dropped)\n")
    assert len(said) < 1200


def test_nothing_printed_leaves_no_file(tmp_path: Path) -> None:
    with kept_output(str(tmp_path / "logs" / "out.log")):
        pass
    assert not (tmp_path / "logs").exists()


def test_a_place_that_cannot_be_written_costs_the_text_only(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with kept_output(str(tmp_path / "logs" / "out.log")):
        os.write(1, b"lost\n" * 100_000)


def test_an_error_comes_through_and_the_streams_are_what_they_were(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        os.write(2, "half a character: \u00e9".encode()[:-1])
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"), kept_output(str(tmp_path / "out.log")):
        fail()
    os.write(1, b"outside\n")
    assert (tmp_path / "out.log").read_text() == "half a character: \\xc3"
    assert capfd.readouterr().out == "outside\n"


def test_a_program_in_the_background_is_not_waited_for_and_can_still_write(tmp_path: Path) -> None:
    said = [tmp_path / "first.log", tmp_path / "second.log"]
    script = "echo here; while [ ! -e go ]; do sleep 0.01; done; yes | head -c 300000; echo there"
    with kept_output(str(said[0])):
        program = subprocess.Popen(["sh", "-c", script], cwd=tmp_path)
        while not said[0].exists():
            time.sleep(0.01)
    with kept_output(str(said[1])):
        (tmp_path / "go").touch()
        assert program.wait() == 0
    assert said[0].read_text() == "here\n"
    assert said[1].read_text().endswith("y\nthere\n")


def test_zeros_in_what_is_printed_are_kept(tmp_path: Path) -> None:
    with kept_output(str(tmp_path / "out.log")):
        os.write(1, b"a\x00b\x00" * 3)
    assert (tmp_path / "out.log").read_text() == "a\\x00b\\x00" * 3
