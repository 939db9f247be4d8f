"""Progress lines of slow commands."""

from joblens.cli.terminal import progress_line


def test_a_progress_line_has_a_bar_the_count_and_the_time() -> None:
    assert progress_line("jobs", 25, 100, 67.9) == f"jobs [{'#' * 10}{'.' * 30}] 25/100 0:01:07"


def test_without_a_total_there_is_no_bar() -> None:
    assert progress_line("jobs read", 1200, None, 3725) == "jobs read 1200 1:02:05"


def test_the_bar_never_grows_beyond_its_end() -> None:
    assert progress_line("jobs", 150, 100, 0).count("#") == 40
