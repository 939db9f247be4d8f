import pytest

from joblens.agent.doctor.capabilities import fix_for_number
from joblens.probes.proc.processes import FIELD_GROUPS


@pytest.mark.parametrize("kind", ["cgroup-v2", "cgroup-hybrid", "cgroup-v1"])
@pytest.mark.parametrize("group", FIELD_GROUPS)
def test_every_number_has_a_fix_on_every_kind_of_machine(group: str, kind: str) -> None:
    assert fix_for_number(group, kind)


@pytest.mark.parametrize(
    ("group", "controller", "advice"),
    [
        ("memory_parts", "memory", "delegate"),
        ("pids_limit_events", "pids", "delegate"),
        ("io_ops", "io", "hand on io"),
    ],
)
def test_a_missing_controller_comes_by_delegation(group: str, controller: str, advice: str) -> None:
    fix = fix_for_number(
        group, "cgroup-v2", missing=[controller], group_advice="delegate", io_advice="hand on io"
    )
    assert fix == advice


def test_delegation_does_not_bring_what_only_v2_counts() -> None:
    assert "cgroup v2 alone" in fix_for_number("io_ops", "cgroup-hybrid", missing=["io"])


def test_pressure_needs_a_boot_option_where_the_tree_has_it_and_another_tree_where_not() -> None:
    assert "psi=1" in fix_for_number("cpu_pressure", "cgroup-hybrid")
    assert "cgroup v2 alone" in fix_for_number("cpu_pressure", "cgroup-v1")
