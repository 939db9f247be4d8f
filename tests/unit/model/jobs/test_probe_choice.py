"""What is measured beside the groups, as people choose it."""

import pytest

from joblens.model.errors import InputError
from joblens.model.jobs.probe_choice import ALL_PROBES, DEFAULT_PROBES, chosen_probes


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("all", ALL_PROBES),
        ("none", ()),
        ("default", DEFAULT_PROBES),
        ("gpu", ("gpu",)),
        ("GPU,+Network", ("network", "gpu")),
        ("None", ()),
        ("threads, network", ("network", "threads")),
        ("+memory", ALL_PROBES),
        ("-network", tuple(name for name in DEFAULT_PROBES if name != "network")),
        ("all,-gpu", tuple(name for name in ALL_PROBES if name != "gpu")),
        ("-all,+gpu", ("gpu",)),
        ("+memory,-memory", DEFAULT_PROBES),
    ],
)
def test_a_choice_is_sets_names_and_changes_of_the_default(text: str, chosen: tuple[str, ...]) -> None:
    assert chosen_probes(text) == chosen


def test_changes_go_by_the_default_that_is_in_force() -> None:
    assert chosen_probes("+gpu", default=("network",)) == ("network", "gpu")
    assert chosen_probes("gpu", default=("network",)) == ("gpu",)


@pytest.mark.parametrize("text", ["", " , ", "weather", "+weather", "gpu,,weather", "--gpu x"])
def test_what_is_no_probe_is_refused_with_the_ones_there_are(text: str) -> None:
    with pytest.raises(InputError) as refusal:
        chosen_probes(text)
    assert "network" in refusal.value.hint
