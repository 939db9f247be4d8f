from joblens.views.runs.diff import changed_options


def test_options_that_differ_are_reported_by_the_names_they_are_given_by() -> None:
    slurm: tuple[dict[str, object], dict[str, object]] = (
        {},
        {"packing": "allocations", "time_s": 600.0, "options": ["--exclusive", "--constraint=ib"]},
    )
    assert list(changed_options({"slurm": slurm, "most_jobs": (None, 4)})) == [
        ("packing", "-", "allocations"),
        ("walltime", "-", "10m00s"),
        ("sbatch", "-", "--exclusive, --constraint=ib"),
        ("jobs", "-", "4"),
    ]


def test_of_options_with_several_parts_only_those_that_differ_are_reported() -> None:
    parameters = ({"mesh": 64, "seed": 1}, {"mesh": 128, "seed": 1})
    assert list(changed_options({"parameters": parameters})) == [("parameter mesh", "64", "128")]
