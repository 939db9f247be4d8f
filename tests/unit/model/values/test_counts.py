import pytest

from joblens.model.values.units import counted, listed


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "job", "1 job"),
        (2000, "job", "2,000 jobs"),
        (0, "process", "0 processes"),
        (0.5, "CPU", "0.5 CPUs"),
    ],
)
def test_a_noun_has_its_plural(number: float, noun: str, text: str) -> None:
    assert counted(number, noun) == text


def test_a_long_list_ends_with_the_number_of_the_others() -> None:
    assert listed(["a", "b", "c", "d"], 2) == "a, b and 2 more"
    assert listed(["a", "b"], 2) == "a, b"
