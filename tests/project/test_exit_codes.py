"""One place turns errors into a message and an exit code."""

import os
import subprocess
import sys

import click
import pytest

from joblens import __main__ as entry
from joblens.model.errors import ConfigError, JoblensError, StoreError, UnknownJob
from tests.conftest import RunJoblens


def main_with(command: click.Command, monkeypatch: pytest.MonkeyPatch) -> int:
    import joblens.cli.main

    monkeypatch.setattr(joblens.cli.main, "cli", command)
    return entry.main(["anything"])


def raising(error: BaseException) -> click.Command:
    def fail(arguments: tuple[str, ...]) -> None:
        raise error

    return click.Command("joblens", callback=fail, params=[click.Argument(["arguments"], nargs=-1)])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownJob("no job"), 2),
        (ConfigError("bad key"), 2),
        (StoreError("no store"), 125),
        (JoblensError(), 125),
    ],
)
def test_an_error_becomes_its_message_and_its_exit_code(
    error: JoblensError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_with(raising(error), monkeypatch) == code
    assert capsys.readouterr().err == f"joblens: error: {error}\n"


def test_a_hint_stands_on_its_own_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main_with(raising(StoreError("disk is full", hint="free some space")), monkeypatch)
    assert capsys.readouterr().err == "joblens: error: disk is full\n  free some space\n"


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main_with(raising(KeyboardInterrupt()), monkeypatch) == 130


def test_the_number_a_command_returns_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    command = click.Command(
        "joblens", callback=lambda arguments: 42, params=[click.Argument(["arguments"], nargs=-1)]
    )
    assert main_with(command, monkeypatch) == 42


def test_an_unknown_command_is_bad_input_without_a_traceback(joblens: RunJoblens) -> None:
    done = joblens("no-such-command", code=2)
    assert "no-such-command" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_a_reader_that_has_gone_is_no_error(option: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "joblens", option],
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_a_closed_standard_output_is_no_error(option: str) -> None:
    script = f"exec '{sys.executable}' -m joblens {option} >&-"
    done = subprocess.run(["sh", "-c", script], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
