from pathlib import Path

import pytest

from joblens.agent.measuring.accounting import are_step_launchers


@pytest.mark.parametrize(
    ("names", "only_those"),
    [
        (["srun", "srun"], True),
        (["srun", "orted"], True),
        (["srun", "sleep"], False),  # the job forgot to wait for it
        (["python3"], False),
        ([None, "srun"], True),  # the first has just gone
    ],
)
def test_only_what_holds_a_step_on_other_nodes_is_waited_for(
    tmp_path: Path, names: list[str | None], only_those: bool
) -> None:
    for pid, name in enumerate(names):
        if name is not None:
            (tmp_path / str(pid)).mkdir()
            (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
    assert are_step_launchers(range(len(names)), str(tmp_path)) is only_those
