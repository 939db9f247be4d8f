"""The questions of `joblens recover`, with scripted answers."""

import pytest

from joblens.analysis.findings.failure_causes import Cause, Diagnosis
from joblens.cli.commands.recover import ask_for_choice, confirm, multiplier_of
from joblens.engine.life.recovery_plan import Failure, RecoveryChoice
from joblens.model.errors import InputError


class Script:
    """Answers one line after the other; the input ends with the last."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)
        self.questions: list[str] = []
        self.messages: list[str] = []

    def ask(self, question: str) -> str:
        self.questions.append(question)
        if not self._answers:
            raise EOFError
        return self._answers.pop(0)

    def choose(self, *causes: Cause, usual: RecoveryChoice | None = None) -> RecoveryChoice:
        failures = [
            Failure(index, f"job{index}", 1, Diagnosis(cause=cause, evidence="why"))
            for index, cause in enumerate(causes)
        ]
        return ask_for_choice(failures, usual or RecoveryChoice(), self.ask, self.messages.append)


ALL = (Cause.OUT_OF_MEMORY, Cause.OUT_OF_MEMORY, Cause.TIMEOUT, Cause.UNKNOWN, Cause.LOST)


def test_enter_takes_what_is_offered() -> None:
    script = Script("", "", "")
    assert script.choose(*ALL) == RecoveryChoice()
    assert script.questions == [
        "Out of memory (2 jobs): [r]etry with 1.5x memory / [a]djust the multiplier / [s]kip [r]: ",
        "Timed out (1 job): [r]etry with 1.4x runtime / [a]djust the multiplier / [s]kip [r]: ",
        "Unknown cause (1 job): [s]kip / [r]etry as they are [s]: ",
    ]


def test_only_causes_that_there_are_are_asked_for() -> None:
    script = Script("")
    script.choose(Cause.TIMEOUT, Cause.LOST)
    assert len(script.questions) == 1
    assert Script().choose(Cause.LOST) == RecoveryChoice()


def test_multipliers_can_be_changed_and_causes_skipped() -> None:
    assert Script("a", "2.5", "s", "r").choose(*ALL) == RecoveryChoice(
        memory_multiplier=2.5, runtime_multiplier=None, retry_unknown=True
    )


def test_what_cannot_be_read_is_asked_for_again() -> None:
    script = Script("x", "adjust", "much", "0.1", "3", "", "")
    assert script.choose(*ALL).memory_multiplier == 3.0
    assert len(script.messages) == 3


def test_an_empty_multiplier_is_the_usual_one() -> None:
    assert Script("a", "", "", "").choose(*ALL).memory_multiplier == 1.5


def test_options_of_the_command_line_are_what_is_offered() -> None:
    script = Script("", "", "")
    usual = RecoveryChoice(memory_multiplier=4.0, retry_unknown=True)
    assert script.choose(*ALL, usual=usual) == usual
    assert "4x memory" in script.questions[0]
    assert script.questions[2].endswith("[r]: ")


@pytest.mark.parametrize(("answer", "is_yes"), [("y", True), ("YES", True), ("", False), ("n", False)])
def test_only_a_yes_confirms(answer: str, is_yes: bool) -> None:
    assert confirm("Run?", Script(answer).ask) is is_yes


def test_an_end_of_the_input_is_left_to_the_caller() -> None:
    with pytest.raises(EOFError):
        Script().choose(Cause.TIMEOUT)


@pytest.mark.parametrize("text", ["0", "0.99", "-2", "nan", "inf", "1e9", "two", ""])
def test_multipliers_have_bounds(text: str) -> None:
    with pytest.raises(InputError, match="from 1 to 1000"):
        multiplier_of("--memory-multiplier", text)
