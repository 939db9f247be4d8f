"""Questions of `joblens recover` on a terminal: for each cause retry, change the multiplier, or skip."""

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from joblens.analysis.findings.failure_causes import Cause
from joblens.engine.life.recovery_plan import MOST_MULTIPLIED, Failure, RecoveryChoice
from joblens.model.errors import InputError
from joblens.views.text.numbers import counted

Ask = Callable[[str], str]  # shows the question, returns the line that was typed; raises EOFError at its end
Say = Callable[[str], None]
_RETRY, _ADJUST, _SKIP = "r", "a", "s"


def multiplier_of(option: str, text: str) -> float:
    """Raises InputError for what is no number from 1 to 1000."""
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 1.0 <= number <= MOST_MULTIPLIED:
        raise InputError(f"{option} {text}: expected a number from 1 to {MOST_MULTIPLIED:g}")
    return number


def ask_for_choice(failures: Sequence[Failure], usual: RecoveryChoice, ask: Ask, say: Say) -> RecoveryChoice:
    """One question for each cause that there is. An empty line takes what is offered first."""
    counts = Counter(one.diagnosis.cause for one in failures)
    choice = usual
    if counts[Cause.OUT_OF_MEMORY]:
        title = f"Out of memory ({counted(counts[Cause.OUT_OF_MEMORY], 'job')})"
        multiplier = _multiplier(title, "memory", usual.memory_multiplier or 1.0, ask, say)
        choice = replace(choice, memory_multiplier=multiplier)
    if counts[Cause.TIMEOUT]:
        title = f"Timed out ({counted(counts[Cause.TIMEOUT], 'job')})"
        multiplier = _multiplier(title, "runtime", usual.runtime_multiplier or 1.0, ask, say)
        choice = replace(choice, runtime_multiplier=multiplier)
    if counts[Cause.UNKNOWN]:
        title = f"Unknown cause ({counted(counts[Cause.UNKNOWN], 'job')})"
        first, second = (_RETRY, _SKIP) if usual.retry_unknown else (_SKIP, _RETRY)
        options = {_RETRY: "[r]etry as they are", _SKIP: "[s]kip"}
        answer = _one_of(
            f"{title}: {options[first]} / {options[second]} [{first}]: ", (first, second), ask, say
        )
        choice = replace(choice, retry_unknown=answer == _RETRY)
    return choice


def _multiplier(title: str, what: str, usual: float, ask: Ask, say: Say) -> float | None:
    question = f"{title}: [r]etry with {usual:g}x {what} / [a]djust the multiplier / [s]kip [r]: "
    answer = _one_of(question, (_RETRY, _ADJUST, _SKIP), ask, say)
    if answer == _SKIP:
        return None
    if answer == _RETRY:
        return usual
    while True:
        text = ask(f"  Multiplier of {what} [{usual:g}]: ").strip()
        if not text:
            return usual
        try:
            return multiplier_of("the multiplier", text)
        except InputError as error:
            say(f"  {error}")


def _one_of(question: str, letters: tuple[str, ...], ask: Ask, say: Say) -> str:
    """By its first letter."""
    while True:
        answer = ask(question).strip().lower()
        if not answer:
            return letters[0]
        if answer[0] in letters:
            return answer[0]
        say(f"  Type one of {', '.join(letters)}, or Enter for {letters[0]}.")


def confirm(question: str, ask: Ask) -> bool:
    """Only a yes counts."""
    return ask(f"{question} (y/N): ").strip().lower() in ("y", "yes")
