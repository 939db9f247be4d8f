"""What runs differ by when nothing was changed."""

import math

import pytest

from joblens.analysis.comparing.job_differences import Noise, has_changed, noise_of, noises
from joblens.model.values.units import MIB


def test_too_few_runs_say_nothing() -> None:
    assert noise_of([[1.0, 1.1, 0.9]]) is None
    assert noise_of([[1.0], [2.0], [3.0], [4.0]]) is None


def test_groups_that_do_different_things_make_no_noise() -> None:
    noise = noise_of([[10.0, 10.0, 10.0], [100.0, 100.0, 100.0]])
    assert noise is not None
    assert (noise.sigma, noise.runs) == (0.0, 6)


def test_a_few_runs_are_judged_by_their_mean_square() -> None:
    noise = noise_of([[9.0, 10.0, 10.0, 11.0]])
    assert noise is not None
    assert noise.sigma == pytest.approx(math.sqrt(0.02 / 3))


def test_one_outlier_among_many_does_not_widen_what_is_usual() -> None:
    steady = [9.9, 10.0, 10.1, 9.95, 10.05, 10.0, 9.9, 10.1, 10.0]
    alone, beside = noise_of([steady]), noise_of([[*steady, 90.0]])
    assert alone is not None
    assert beside is not None
    assert beside.sigma < 2 * alone.sigma


def test_what_two_runs_differ_by_is_three_deviations_of_a_difference() -> None:
    noise = noise_of([[9.0, 10.0, 10.0, 11.0]])
    assert noise is not None
    assert noise.between_two == pytest.approx(math.exp(3 * math.sqrt(2) * noise.sigma) - 1)


def test_numbers_that_some_runs_lack_are_judged_by_the_others() -> None:
    runs: list[dict[str, float | None]] = [
        {"a": 1.0, "b": None},
        {"a": 1.0, "b": 2.0},
        {"a": 1.0, "b": 2.0},
        {"a": 1.0, "b": None},
    ]
    found = noises([runs])
    assert set(found) == {"a"}


@pytest.mark.parametrize(
    ("before", "after", "unit", "noise", "expected"),
    [
        (10.0, 11.0, "s", None, True),  # 10 % of what it was
        (10.0, 9.0, "s", None, True),
        (10.0, 10.96, "s", None, True),  # shown as +10%
        (10.0, 10.9, "s", None, False),
        (0.2, 0.29, "s", None, False),  # too short to tell
        (6 * MIB, 2.7 * MIB, "bytes", None, False),
        (60 * MIB, 27 * MIB, "bytes", None, True),
        (0.0, 20 * MIB, "bytes", None, True),
        (10.0, 10.3, "s", Noise(0.01, 9), False),
        (10.0, 10.5, "s", Noise(0.01, 9), True),
        (10.0, 9.5, "s", Noise(0.01, 9), True),
        (0.10, 0.11, "s", Noise(0.01, 9), False),
    ],
)
def test_one_rule_says_what_has_changed(
    before: float, after: float, unit: str, noise: Noise | None, expected: bool
) -> None:
    assert has_changed(before, after, unit, noise) is expected
