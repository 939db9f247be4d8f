"""Seeds are found where people write them, and nothing else is taken for one."""

from typing import Any

import pytest

from joblens.model.redaction.names import is_seed_name, seeds_of


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (("fit", "--seed", "7"), {"seed": "7"}),
        (("fit", "--data-seed=12", "--random_state", "3"), {"data-seed": "12", "random_state": "3"}),
        (("fit", "seed=9", "out=seed.csv"), {"seed": "9"}),
        (("sh", "-c", "fit --seed 4 | tee log"), {"seed": "4"}),
        (("fit", "--seed", "--verbose"), {}),
        (("fit", "--seeded", "5", "seeds/apple.txt"), {}),
        (("fit", "--seed", "x" * 100), {}),
        (("true",), {}),
    ],
)
def test_words_of_a_command(argv: tuple[str, ...], found: dict[str, str]) -> None:
    assert seeds_of(argv) == found


def test_parameters_and_environment() -> None:
    params: dict[str, Any] = {"seed": 5, "rng_seed": "11", "seed_everything": True, "seeding": 3, "size": 9}
    env = {"PYTHONHASHSEED": "0", "SEED": "42", "HOME": "/root"}
    assert seeds_of((), params, env) == {"seed": "5", "rng_seed": "11", "PYTHONHASHSEED": "0", "SEED": "42"}


def test_what_was_taken_out_is_no_seed() -> None:
    assert seeds_of(("fit", "--seed=***"), {"rng_seed": "***"}, {"SECRET_SEED": "***", "SEED": "1"}) == {
        "SEED": "1"
    }


@pytest.mark.parametrize("name", ["seed", "--seed", "RandomState", "random-state", "np_seed", "RNG"])
def test_names_of_seeds(name: str) -> None:
    assert is_seed_name(name)


@pytest.mark.parametrize("name", ["seedling", "seed_path", "string", "reseed_often", "exceed"])
def test_names_of_other_things(name: str) -> None:
    assert not is_seed_name(name)
