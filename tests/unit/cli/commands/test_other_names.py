"""Names from other tools are answered with the joblens command or option to use."""

import pytest

from joblens.__main__ import main
from joblens.cli.commands.other_names import INSTEAD, SUGGESTED, SUGGESTED_OPTIONS
from joblens.cli.main import COMMANDS


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    return capsys.readouterr().err.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ps", "list"),
        ("ls", "list"),
        ("kill", "cancel"),
        ("stop", "cancel"),
        ("log", "logs"),
        ("stat", "stats"),
        ("info", "show"),
        ("server", "serve"),
        ("summary", "reports summary"),
    ],
)
def test_a_habit_of_another_tool_is_answered_with_the_command(
    capsys: pytest.CaptureFixture[str], name: str, meant: str
) -> None:
    expected = f"joblens: error: joblens has no '{name}'; did you mean 'joblens {meant}'?"
    assert error_of(capsys, name, "3") == expected


@pytest.mark.parametrize("name", ["rm", "remove", "clean"])
def test_deleting_is_answered_with_what_can_be_deleted(capsys: pytest.CaptureFixture[str], name: str) -> None:
    error = error_of(capsys, name, "3")
    assert "'joblens delete ID'" in error
    assert "'joblens prune' deletes old samples" in error


def test_an_empty_name_is_answered_with_the_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert error_of(capsys, "").endswith("joblens has no command ''; 'joblens help' lists all commands")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("run", "--mem", "1g", "--", "true"), "--memory"),
        (("run", "--cpu", "2", "--", "true"), "--cpus"),
        (("run", "-t", "2", "--", "true"), "--timeout"),
        (("run", "-n", "2", "--", "true"), "--nodes"),
        (("resume", "--timeout", "2", "x"), "--time"),
        (("history", "-n", "2"), "--limit"),
        (("history", "--revers"), "--reverse"),
        (("history", "--limt", "2"), "--limit"),
        (("run", "--memry", "1g", "--", "true"), "--memory"),
    ],
)
def test_an_option_of_another_tool_is_answered_with_the_option(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], meant: str
) -> None:
    typed = arguments[1]
    expected = f"joblens: error: no such option: {typed}; did you mean {meant}?"
    assert error_of(capsys, *arguments) == expected


def test_the_time_of_a_workflow_on_a_command_is_answered_with_its_time_limit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--time", "5", "--", "true"]) == 2
    assert "--timeout TIME" in capsys.readouterr().err


def test_an_unknown_subcommand_is_answered_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    error = error_of(capsys, "store", "zap")
    assert "joblens has no 'store zap'; its commands are backup, check, copy, path, vacuum" in error


@pytest.mark.parametrize(
    ("group", "sentence"),
    [
        ("store", "Copy everything from SOURCE to TARGET; each is a file or a PostgreSQL URL."),
        ("workflows", "Delete workflows with all their runs and jobs, like 'joblens delete'."),
        ("bench", "Compare a later result with an earlier one: IDs, parts of IDs, files, or 'latest'."),
    ],
)
def test_the_help_of_a_group_shows_whole_sentences(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, group: str, sentence: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([group, "--help"]) == 0
    assert sentence in " ".join(capsys.readouterr().out.split())


def test_hints_name_commands_that_exist() -> None:
    assert {meant.split()[0] for meant in SUGGESTED.values()} <= {*COMMANDS, "--version"}


def test_a_name_that_joblens_has_needs_no_hint() -> None:
    assert not {*SUGGESTED, *INSTEAD[""]} & set(COMMANDS)
    assert not set(SUGGESTED) & set(INSTEAD[""])
    assert all(flag not in meant for flag, meant in SUGGESTED_OPTIONS.items())


@pytest.mark.parametrize("words", [["help"], ["help", "run"], ["help", "store", "check"]])
def test_help_is_the_option_of_that_name(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main([*words[1:], "--help"]) == 0
    expected = capsys.readouterr().out
    assert main(words) == 0
    assert capsys.readouterr().out == expected
    assert expected.startswith("Usage: joblens")


def test_help_of_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert "joblens has no command 'nosuch'" in error_of(capsys, "help", "nosuch")


@pytest.mark.parametrize("words", [["help", "run", "true"], ["help", "store", "path", "x"]])
def test_help_of_a_command_with_further_words_runs_nothing(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert f"unexpected '{words[-1]}'" in error_of(capsys, *words)


def test_choices_and_numbers_are_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Choose from: history, samples" in error_of(capsys, "import")
    assert "'x' is not a number." in error_of(capsys, "history", "--limit", "x")
