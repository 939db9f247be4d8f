import pytest

from joblens.model.errors import InputError
from joblens.model.values.units import format_cpu_list, parse_cpu_list


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0", (0,)), ("0-3,8", (0, 1, 2, 3, 8)), (" 2 - 3 , 1", (1, 2, 3)), ("1,1,0-1", (0, 1)), ("7-7", (7,))],
)
def test_a_list_is_read_as_the_kernel_writes_it(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["", "a", "-1", "0-", "0,,1", "0-3-5", "1.5", "99999999", "²"])
def test_what_is_no_list_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match="is not a CPU") as refusal:
        parse_cpu_list(text)
    assert refusal.value.hint == "write it as 0-3,8"


def test_a_range_that_runs_backwards_is_reported_the_right_way_round() -> None:
    with pytest.raises(InputError, match="'3-1' runs backwards") as refusal:
        parse_cpu_list("0,3-1")
    assert refusal.value.hint == "1-3"


@pytest.mark.parametrize(
    ("cpus", "text"), [({0, 1, 2, 8}, "0-2,8"), ({3}, "3"), (set(), ""), ({0, 2, 4, 5}, "0,2,4-5")]
)
def test_a_list_is_written_as_the_kernel_does(cpus: set[int], text: str) -> None:
    assert format_cpu_list(cpus) == text
