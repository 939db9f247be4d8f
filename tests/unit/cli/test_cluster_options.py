import pytest

from joblens.cli.cluster_options import ENGINE_OPTIONS_OF_RUNS, engine_options
from joblens.model.errors import InputError


def test_allocations_for_jobs_that_each_have_a_place_of_their_own_are_refused() -> None:
    given = {"engine": "slurm", "packing": "jobs", "allocations": 2}
    with pytest.raises(InputError, match="--allocations means nothing"):
        engine_options(given)
    with pytest.raises(InputError, match="--nodes means nothing"):
        engine_options({"engine": "slurm", "packing": "jobs", "nodes": 2})
    assert engine_options({**given, "packing": "allocations"})["slurm"].allocations == 2


def test_names_keep_their_capitals_where_an_option_is_told_without_its_file() -> None:
    helps = " ".join(row.help for row in ENGINE_OPTIONS_OF_RUNS)
    assert "Slurm" in helps
    assert "slurm's" not in helps
