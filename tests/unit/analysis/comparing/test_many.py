"""Numbers of many subjects beside one of them."""

from joblens.analysis.comparing.job_differences import Noise
from joblens.analysis.comparing.many import compared_with, number_row


def test_another_baseline_gives_what_a_comparison_that_begins_with_it_gives() -> None:
    values = [10.0, 20.0, None, 10.2]
    for noise in (None, Noise(0.02, 12)):
        row = number_row("wall_s", "wall time", "s", values, noise)
        swapped = number_row("wall_s", "wall time", "s", [20.0, 10.0, None, 10.2], noise)
        found = compared_with(row, 1)
        assert found.values == row.values
        assert [found.verdicts[place] for place in (1, 0, 2, 3)] == list(swapped.verdicts)
        assert [found.percents[place] for place in (1, 0, 2, 3)] == list(swapped.percents)
        assert compared_with(row, 0) == row
