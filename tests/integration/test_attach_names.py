"""What a word for `attach`, `cancel` and `rerun` may stand for."""

import os

import pytest

from joblens.agent.attach.attachment import find_target
from joblens.model.errors import InputError
from joblens.probes.cgroup.layout import read_layout
from tests.conftest import RunJoblens


def test_a_number_that_is_no_process_may_be_a_container(joblens: RunJoblens) -> None:
    refused = joblens("attach", "4194303", code=2)
    assert "container:4194303" in refused.stderr


def test_a_word_that_is_no_container_may_be_a_group(tmp_path: object) -> None:
    mounts = [hierarchy.mount_point for hierarchy in read_layout().hierarchies.values()]
    groups = [name for mount in mounts for name in os.listdir(mount) if os.path.isdir(f"{mount}/{name}")]
    if not groups:
        pytest.skip("there is no control group below the topmost one")
    with pytest.raises(InputError) as refusal:
        find_target(groups[0], "docker", f"{tmp_path}/none.sock")
    assert f"cgroup:{groups[0]}" in refusal.value.hint


def test_a_jobs_name_stands_for_its_newest(joblens: RunJoblens) -> None:
    joblens("run", "--name", "greeting", "--", "echo", "good day", code=0)
    again = joblens("rerun", "greeting", code=0)
    assert again.stdout == "good day\n"
    assert "is job" not in again.stderr  # there is no other
    over = joblens("cancel", "greeting", code=0)
    assert "had already ended" in over.stdout
    assert "'greeting' is job 2, the newest of that name" in over.stderr
