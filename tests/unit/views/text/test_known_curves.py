"""Curves of running jobs, looked at again and again."""

from joblens.model.jobs.sample import Sample
from joblens.views.text.charts import KnownCurves, points


def _sample(at_s: int) -> Sample:
    return Sample(at_us=at_s * 1_000_000, elapsed_us=at_s * 1_000_000, cpu_total_usec=at_s * 500_000)


def test_a_curve_is_that_of_all_samples_also_after_more_have_come() -> None:
    curves, taken = KnownCurves(), [_sample(1), _sample(2)]
    assert curves.of({"a": taken})["a"] == points(taken)
    taken.append(_sample(3))
    assert curves.of({"a": taken})["a"] == points(taken)


def test_without_a_new_sample_nothing_is_worked_out_again() -> None:
    curves, taken = KnownCurves(), [_sample(1), _sample(2)]
    assert curves.of({"a": taken})["a"] is curves.of({"a": taken})["a"]


def test_jobs_without_samples_and_those_that_are_gone_have_no_curve() -> None:
    curves = KnownCurves()
    assert curves.of({"a": [_sample(1)], "b": []}).keys() == {"a"}
    assert curves.of({}) == {}
