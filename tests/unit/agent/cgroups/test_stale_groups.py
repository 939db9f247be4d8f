"""How much is asked about groups of others, and about those that are left."""

import os
from pathlib import Path

import pytest
from msgspec import structs

from joblens.agent.cgroups import groups
from joblens.agent.cgroups.groups import sweep_groups, sweep_own_groups
from joblens.agent.cgroups.placement import owner_mark, shared_parent
from joblens.agent.runtime.ownership import this_process
from joblens.model.jobs.job import Record
from joblens.model.values.ids import new_uuid
from joblens.probes.cgroup.layout import CgroupLayout, Hierarchy
from joblens.probes.host.machine_load import read_host

LIVING = this_process(read_host())
DEAD = structs.replace(LIVING, start_ticks=1)  # another process had that number


class CountingStore:
    def __init__(self) -> None:
        self.asked = 0

    def running(self) -> list[Record]:
        self.asked += 1
        return []


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    mount = str(tmp_path)
    hierarchy = Hierarchy(
        version=2, controllers=(), mount_point=mount, own_path="/", directory=mount, is_writable=True
    )
    layout = CgroupLayout(kind="cgroup-v2", hierarchies={"unified": hierarchy})
    monkeypatch.setattr(groups, "read_layout", lambda: layout)
    parent = Path(shared_parent(mount))
    parent.mkdir()
    return parent


def test_groups_of_other_stores_are_judged_by_their_names_when_a_process_ends(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (new_uuid(), f"slot-{new_uuid()}", f"{new_uuid()}{owner_mark(DEAD, '/other/spool')}"):
        (parent / name).mkdir()
    (parent / f"{new_uuid()}{owner_mark(LIVING, '/my/spool')}").mkdir()
    store = CountingStore()
    monkeypatch.setattr(groups, "read_layout", pytest.fail)
    monkeypatch.setattr(groups, "is_job_group", pytest.fail)
    monkeypatch.setattr(groups, "age_s", pytest.fail)
    sweep_own_groups("/my/spool", store, [str(parent)])  # type: ignore[arg-type]
    assert (store.asked, len(os.listdir(parent))) == (0, 4)


@pytest.mark.parametrize("sweeps_all", [True, False])
def test_the_store_is_asked_once_about_all_groups_that_are_left(parent: Path, *, sweeps_all: bool) -> None:
    for _ in range(5):
        (parent / f"{new_uuid()}{owner_mark(DEAD, '/my/spool')}").mkdir()
    store = CountingStore()
    if sweeps_all:
        sweep_groups("/my/spool", store, 0)  # type: ignore[arg-type]
    else:
        sweep_own_groups("/my/spool", store, [str(parent)])  # type: ignore[arg-type]
    assert store.asked == 1
    assert not parent.exists() or os.listdir(parent) == []
