"""Width, cutting and cleaning of text that comes from anyone."""

from hypothesis import given
from hypothesis import strategies as st

from joblens.model.jobs.job import Status
from joblens.views.text.style import (
    PLAIN,
    Palette,
    clean,
    clean_lines,
    fit,
    title_line,
    visible_width,
    wrap,
    wrap_beside,
)


def test_colour_is_put_on_only_where_wanted() -> None:
    assert PLAIN.status(Status.FAILED) == "failed"
    assert Palette(is_on=True).status(Status.FAILED) == "\x1b[31mfailed\x1b[0m"


def test_colour_has_no_width() -> None:
    assert visible_width(Palette(is_on=True).paint("four", "bold", "red")) == 4


def test_text_that_is_cut_says_so() -> None:
    assert fit("simulation", 6) == "simul…"
    assert fit("simulation", 10) == "simulation"


@given(st.text(), st.integers(min_value=0, max_value=40))
def test_cut_text_is_never_wider_than_its_room(text: str, width: int) -> None:
    assert visible_width(fit(clean(text), width)) <= width


def test_control_characters_are_replaced() -> None:
    assert clean("a\x1b]0;title\x07b\x9bc\u202e") == "a�]0;title�b�c�"


def test_a_command_of_several_lines_stays_readable() -> None:
    assert clean("for i in 1 2\ndo\r\n\techo $i\ndone") == "for i in 1 2⏎do⏎ echo $i⏎done"


def test_of_a_line_that_was_redrawn_the_last_state_is_shown() -> None:
    assert clean_lines("10%\r50%\r100%\ndone\r\n") == ["100%", "done", ""]


def test_colours_a_job_printed_are_taken_off() -> None:
    assert clean_lines("\x1b[31merror\x1b[0m: no") == ["error: no"]


@given(st.text(alphabet="ab ", max_size=200), st.integers(min_value=10, max_value=40))
def test_wrapped_text_has_the_same_words_in_lines_that_fit(text: str, width: int) -> None:
    lines = wrap(text, width, "  ")
    assert " ".join(lines).split() == text.split()
    assert all(visible_width(line) <= width or len(line.split()) == 1 for line in lines)


def test_text_beside_a_label_continues_below_its_first_word() -> None:
    assert wrap_beside("  name  ", "one two three", 16) == ["  name  one two", "        three"]
    assert wrap_beside("  name  ", "", 16) == ["  name"]
    assert wrap_beside("", "one two three", 9, "  ") == ["one two", "  three"]


def test_a_title_line_has_the_first_variant_that_fits() -> None:
    options = [("pipeline run 3", "12s left"), ("pipeline", "")]
    assert (
        title_line(options, "running 00:07", "cyan", 60, PLAIN) == "pipeline run 3  running 00:07  12s left"
    )
    assert title_line(options, "running 00:07", "cyan", 26, PLAIN) == "pipeline  running 00:07"
    assert title_line(options, "running 00:07", "cyan", 20, PLAIN) == "pipe…  running 00:07"
    assert title_line(options, "running 00:07", "cyan", 15, PLAIN) == "running 00:07"
