import pytest

from joblens.cli.options.request import (
    ENGINE_OPTIONS_OF_RUNS,
    OPTION_NEEDS,
    check_engine_options,
    engine_options,
)
from joblens.cli.options.table import ENGINE_OPTIONS, SLURM_OPTIONS
from joblens.model.errors import InputError

VALUES = {"packing": "allocations", "nodes": 2, "allocations": 2, "walltime": "1h", "sbatch": ("--nice=1",)}


@pytest.mark.parametrize(
    "name", [row.name for row in (*ENGINE_OPTIONS, *SLURM_OPTIONS) if row.name != "engine"]
)
def test_every_option_of_an_engine_says_what_it_needs(name: str) -> None:
    assert name in OPTION_NEEDS


@pytest.mark.parametrize("name", OPTION_NEEDS)
@pytest.mark.parametrize("engine", ["local", "celery", "ray", "slurm"])
def test_options_of_another_engine_are_refused(name: str, engine: str) -> None:
    given = {"engine": engine, name: VALUES.get(name, "text")}
    if OPTION_NEEDS[name].engine == engine:
        check_engine_options(engine, given)
        return
    with pytest.raises(InputError, match=f"--{name} has no effect with --engine {engine}") as caught:
        check_engine_options(engine, given)
    assert f"--engine {OPTION_NEEDS[name].engine}" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["allocations", "nodes"])
def test_allocations_for_jobs_that_each_have_a_place_of_their_own_are_refused(name: str) -> None:
    given = {"engine": "slurm", "packing": "jobs", name: 2}
    with pytest.raises(InputError, match=f"--{name} has no effect with --packing jobs"):
        engine_options(given)
    assert getattr(engine_options({**given, "packing": "allocations"})["slurm"], name) == 2


def test_names_keep_their_capitals_where_an_option_is_reported_without_its_file() -> None:
    helps = " ".join(row.help for row in ENGINE_OPTIONS_OF_RUNS)
    assert "Slurm" in helps
    assert "slurm's" not in helps
