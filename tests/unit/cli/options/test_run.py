"""What can be typed wrongly: each is refused with exit code 2 and words that help, before anything starts."""

from pathlib import Path
from typing import Any

import pytest

from joblens.__main__ import main
from joblens.app.jobs.preparation import parse_early_signal, parse_params
from joblens.cli.options.request import request_from
from joblens.cli.options.table import JOB_OPTIONS
from joblens.model.errors import InputError
from joblens.model.jobs.job import EarlySignal

WRONG: list[tuple[list[str], str]] = [
    ([], "no command was given"),
    (["--"], "no command was given"),
    (["--", ""], "no command was given"),
    (["--cpus", "0", "--", "true"], "--cpus 0: must be"),
    (["--cpus", "-1", "--", "true"], "--cpus -1: must be"),
    (["--cpus", "nan", "--", "true"], "cpus nan: must be"),
    (["--cpus", "inf", "--", "true"], "cpus inf: too large"),
    (["--cpus", "two", "--", "true"], "'two' is not a number"),
    (["--memory", "lots", "--", "true"], "--memory: 'lots' is not a size"),
    (["--memory", "0", "--", "true"], "--memory 0: must be more than 0"),
    (["--memory", "-5m", "--", "true"], "--memory: '-5m' is not a size"),
    (["--memory", "5 apples", "--", "true"], "is not a size"),
    (["--memory", "9" * 400 + "p", "--", "true"], "is larger than any memory"),
    (["--tag", "", "--", "true"], "a tag is empty"),
    (["--id", "", "--", "true"], "the id is empty"),
    (["--name", "", "--", "true"], "the name is empty"),
    (["--pids", "0", "--", "true"], "'--pids': 0 is less than 1"),
    (["--pids", "many", "--", "true"], "'many' is not a number"),
    (["--gpus", "-1", "--", "true"], "--gpus"),
    (["--timeout", "soon", "--", "true"], "--timeout: 'soon' is not a duration"),
    (["--timeout", "0", "--", "true"], "--timeout 0: must be more than 0"),
    (["--timeout", "-5", "--", "true"], "is not a duration"),
    (["--timeout", "nan", "--", "true"], "is not a duration"),
    (["--timeout", "inf", "--", "true"], "is not a duration"),
    (["--timeout", "1h x", "--", "true"], "is not a duration"),
    (["--grace", "x", "--", "true"], "--grace: 'x' is not a duration"),
    (["--interval", "0.01", "--", "true"], "--interval 0.01: at least 50ms"),
    (["--interval", "1ms", "--", "true"], "--interval 1ms: at least 50ms"),
    (["--shell", " "], "the shell line is empty"),
    (["--cpu-list", "0-x", "--", "true"], "CPU list '0-x': '0-x' is not a CPU"),
    (["--probes", "weather", "--", "true"], "probes: unknown name 'weather'"),
    (["--probes", "", "--", "true"], "no name"),
    (["--interval", "0", "--", "true"], "--interval 0: must be more than 0"),
    (["--interval", "often", "--", "true"], "--interval: 'often' is not a duration"),
    (["--signal", "USR1@5", "--", "true"], "--signal needs --timeout"),
    (["--timeout", "9", "--signal", "USR1", "--", "true"], "--signal USR1: expected NAME@TIME"),
    (["--timeout", "9", "--signal", "NOPE@5", "--", "true"], "--signal NOPE@5: there is no signal 'NOPE'"),
    (["--timeout", "9", "--signal", "_UNBLOCK@5", "--", "true"], "there is no signal"),
    (["--timeout", "9", "--signal", "²@5", "--", "true"], "there is no signal"),
    (["--timeout", "9", "--signal", "99@5", "--", "true"], "there is no signal"),
    (["--timeout", "9", "--signal", "0@5", "--", "true"], "there is no signal"),
    (
        ["--timeout", "9", "--signal", "USR1@soon", "--", "true"],
        "--signal USR1@soon: 'soon' is not a duration",
    ),
    (["--param", "novalue", "--", "true"], "--param novalue: expected NAME=VALUE"),
    (["--param", "=x", "--", "true"], "--param =x: expected NAME=VALUE"),
    (["--env", "=x", "--", "true"], "--env =x: expected NAME=VALUE"),
    (["--env", "NOT_SET_ANYWHERE", "--", "true"], "--env NOT_SET_ANYWHERE: not set in the environment"),
    (["--cwd", "/no/such/directory", "--", "true"], "--cwd /no/such/directory: there is no such directory"),
    (["--cwd", "", "--", "true"], "--cwd"),
    (["--cpu-list", "", "--", "true"], "CPU list '': '' is not a CPU"),
    (["--probes", "all,none", "--", "true"], "'none' cannot be combined with other names"),
    (["--granularity", "daily", "--", "true"], "'daily' is not one of"),
    (["--accounting", "guess", "--", "true"], "'guess' is not one of"),
    (["--shell", "true", "--", "true"], "both --shell and a command were given"),
    (["--notify", "'unfinished", "--", "true"], "--notify 'unfinished:"),
    (["--report", "/no/such/dir/report.json", "--", "true"], "there is no directory /no/such/dir"),
    (["--report", "/tmp", "--", "true"], "--report /tmp: is a directory"),
    (["--quiet", "--verbose", "--", "true"], "cannot be combined"),
    (["--no-such-option", "--", "true"], "no such option: --no-such-option"),
    (["--name"], "requires an argument"),
]


@pytest.mark.parametrize(
    ("typed", "words"), WRONG, ids=[" ".join(typed)[:40] or "nothing" for typed, _ in WRONG]
)
def test_it_is_refused_with_words_that_help(
    typed: list[str], words: str, capsys: pytest.CaptureFixture[str], store_path: Path
) -> None:
    assert main(["run", *typed]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in " ".join(printed.err.split())
    assert not store_path.exists()  # nothing was begun


def given(**changes: Any) -> dict[str, Any]:
    """What nobody says, and what is said here."""
    nothing = {
        row.name: False if row.kind == "flag" else () if row.kind == "many" else row.default
        for row in JOB_OPTIONS
    }
    return {**nothing, "command_line": ("true",), **changes}


def test_values_are_read_in_the_units_people_write() -> None:
    request = request_from(
        given(memory="1.5g", timeout="1h30m", grace="0", interval="50ms"), background=False
    )
    assert request.requirements.memory_bytes == 3 << 29
    assert request.requirements.timeout_s == 5400
    assert request.grace_s == 0
    assert request.interval_s == 0.05


def test_what_is_not_said_is_left_to_the_settings() -> None:
    request = request_from(given(), background=False)
    assert (request.enforce, request.monitor, request.accounting, request.interval_s) == (None,) * 4


def test_flags_win_over_the_settings() -> None:
    request = request_from(given(no_enforce=True, no_monitor=True), background=False)
    assert (request.enforce, request.monitor) == (False, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("USR1@60", EarlySignal(10, 60.0)),
        ("SIGUSR1@60", EarlySignal(10, 60.0)),
        ("usr2@2m", EarlySignal(12, 120.0)),
        ("15@0.5", EarlySignal(15, 0.5)),
    ],
)
def test_early_signals_by_name_or_number(text: str, expected: EarlySignal) -> None:
    assert parse_early_signal(text) == expected


def test_parameters_are_json_where_they_are_json_and_text_elsewhere() -> None:
    pairs = ["n=3", "x=1.5", "on=true", "list=[1, 2]", "text=hello", "empty=", "path=a=b", "odd=\udcff"]
    assert parse_params(pairs) == {
        "n": 3,
        "x": 1.5,
        "on": True,
        "list": [1, 2],
        "text": "hello",
        "empty": "",
        "path": "a=b",
        "odd": "\\xff",
    }


def test_an_error_is_an_input_error() -> None:
    with pytest.raises(InputError):
        request_from(given(memory="x"), background=False)
