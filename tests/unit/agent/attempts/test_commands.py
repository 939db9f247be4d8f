"""What of a planned job the kernel is given."""

import pytest

from joblens.agent.attempts.preparation import command_line, plain_words, safe_name, streams_of
from joblens.model.runs.plan import PlannedJob
from joblens.model.runs.workflow_spec import Stdio, StdioMode


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("python train.py --lr 0.1", ("python", "train.py", "--lr", "0.1")),
        ("./a/b-c  x=1", ("./a/b-c", "x=1")),
        ("grep 'two words' file", ("grep", "two words", "file")),
        ("echo a > b", ()),
        ("cd x", ()),
        ("LANG=C sort x", ()),
        ("echo $HOME", ()),
        ("a; b", ()),
        ("a | b", ()),
        ("ls *.txt", ()),
        ("echo it's", ()),
        ("", ()),
        ("a\nb", ()),
        ("exit 3", ()),
        ("echo ü", ()),
    ],
)
def test_a_plain_line_needs_no_shell(line: str, words: tuple[str, ...]) -> None:
    assert plain_words(line) == words


def test_an_invocation_script_gets_the_command_behind_it() -> None:
    planned = PlannedJob(name="j", command="run it", invocation_script="bash setup.sh")
    assert command_line(planned, {}, "/bin/bash") == (
        "bash setup.sh run it",
        True,
        ("/bin/bash", "-c", "bash setup.sh run it"),
    )


def test_names_become_folders_of_their_own() -> None:
    assert safe_name("train_lr0.1") == "train_lr0.1"
    assert "/" not in safe_name("a/b")
    assert safe_name("a/b") != safe_name("a_b")
    assert not safe_name("..").startswith(".")
    assert len(safe_name("x" * 5000)) < 255


def test_streams_are_what_the_mode_says() -> None:
    assert streams_of(Stdio()) == ""
    assert streams_of(Stdio(mode=StdioMode.NONE, delete_on_success=True)) == "oed"
