import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.analysis.advice import cpus_option, memory_option, timeout_option
from joblens.model.units import GIB, MIB, parse_duration, parse_size


@pytest.mark.parametrize(
    ("needed", "option"),
    [
        (1, "--memory 16m"),
        (600 * MIB, "--memory 640m"),
        (GIB, "--memory 1g"),
        (9.3 * GIB, "--memory 9728m"),
        (10 * GIB, "--memory 10g"),
    ],
)
def test_memory_is_rounded_up_to_a_number_people_write(needed: float, option: str) -> None:
    assert memory_option(needed) == option


@given(st.integers(1, 2**44))
def test_memory_advice_can_be_typed_and_is_enough_but_not_much_more(needed: int) -> None:
    size = parse_size(memory_option(needed).removeprefix("--memory "))
    assert needed <= size <= needed * 1.26 + 16 * MIB


@given(st.floats(0.1, 1e6))
def test_timeout_advice_can_be_typed_and_is_enough(needed_s: float) -> None:
    assert parse_duration(timeout_option(needed_s).removeprefix("--timeout ")) >= needed_s


def test_cpus_are_whole_and_at_least_one() -> None:
    assert (cpus_option(0.2), cpus_option(2.0), cpus_option(2.1)) == ("--cpus 1", "--cpus 2", "--cpus 3")
