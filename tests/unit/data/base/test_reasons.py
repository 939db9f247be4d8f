"""Where an error of somebody's own operator comes from."""

import json

from joblens.data.base.reasons import reason_with_line


def _raised(text: str) -> BaseException:
    try:
        json.loads(text)
        assert text == "{}"
    except (ValueError, AssertionError) as error:
        return error
    raise RuntimeError


def test_the_line_is_that_of_the_operators_file_not_of_what_it_calls() -> None:
    error = _raised("{")
    assert error.__traceback__ is not None
    line = error.__traceback__.tb_lineno
    assert reason_with_line(error).startswith("JSONDecodeError: Expecting ")
    assert reason_with_line(error).endswith(f" (test_reasons.py, line {line})")


def test_an_error_without_words_has_its_line() -> None:
    error = AssertionError()
    try:
        raise error
    except AssertionError:
        pass
    assert reason_with_line(error).startswith("AssertionError: (test_reasons.py, line ")


def test_an_error_that_was_never_raised_has_no_line() -> None:
    assert reason_with_line(KeyError("n")) == "KeyError: 'n'"
