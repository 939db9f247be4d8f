"""Groups of jobs whose store is gone, on this machine's real hierarchies."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from joblens.agent.cgroups.groups import ForgottenGroups, GroupFactory, JobGroups, shared_parents
from joblens.agent.cgroups.placement import GroupPlacement, find_placement, owner_mark, shared_parent
from joblens.agent.runtime.ownership import this_process
from joblens.model.jobs.job import Owner
from joblens.model.values.ids import new_uuid
from joblens.probes.cgroup.layout import read_layout
from joblens.probes.host.machine_load import read_host
from tests.integration.cgroup_jobs import factory_or_skip, start_in

pytestmark = pytest.mark.cgroup

LIVING = this_process(read_host())
DEAD = structs.replace(LIVING, start_ticks=1)  # another process had that number
ELSEWHERE = structs.replace(DEAD, pid_namespace=1)
DAY_S = 86_400.0


class Place:
    """Of this test alone: what is taken away here is nobody else's."""

    def __init__(self, places: GroupPlacement, spool: Path) -> None:
        self.spool = spool
        self._factory = GroupFactory(places)
        self._parents = [shared_parent(base) for base in places.bases.values()]
        self.made: list[JobGroups] = []

    def make(self, name: str, owner: Owner | None = None, spool: Path | None = None) -> JobGroups:
        mark = owner_mark(owner, str(spool or self.spool)) if owner is not None else ""
        self.made.append(self._factory.create(name + mark))
        return self.made[-1]

    def sweep(self, unfinished: str = "", later_s: float = 8 * DAY_S) -> None:
        now_us = round((time.time() + later_s) * 1e6)
        forgotten = ForgottenGroups(str(self.spool), lambda name, _paths: name.uuid == unfinished, now_us)
        forgotten.remove(self._parents, read_layout())

    def left(self) -> list[bool]:
        return [any(map(os.path.exists, groups.paths.values())) for groups in self.made]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    factory_or_skip()
    found = find_placement(read_layout())
    bases = {key: f"{base}/joblens-forgotten-{os.getpid()}" for key, base in found.bases.items()}
    for base in dict.fromkeys(bases.values()):
        os.mkdir(base)
    place = Place(GroupPlacement(kind=found.kind, bases=bases), tmp_path / "mine")
    yield place
    for groups in place.made:
        groups.kill()
        groups.remove()
    for base in dict.fromkeys(bases.values()):
        os.rmdir(base)


def test_empty_groups_of_unknown_jobs_go_in_every_hierarchy(place: Place) -> None:
    uuid = new_uuid()
    place.make(uuid)
    place.make(uuid)  # with a number
    place.sweep()
    assert place.left() == [False, False]


def test_what_was_made_a_moment_ago_stays(place: Place) -> None:
    place.make(new_uuid())
    place.sweep(later_s=60.0)
    assert place.left() == [True]


def test_groups_of_a_job_that_is_not_over_stay(place: Place) -> None:
    uuid = new_uuid()
    place.make(uuid)
    place.sweep(unfinished=uuid)
    assert place.left() == [True]


def test_groups_that_someone_is_in_stay(place: Place, wait_until: Callable[..., Any]) -> None:
    groups = place.make(new_uuid())
    job = start_in(groups, "sleep", "60")
    try:
        wait_until(lambda: groups.pids() == [job.pid], what="the job")
        place.sweep()
        assert place.left() == [True]
        assert job.poll() is None
    finally:
        job.kill()
        job.wait()


def test_slots_and_what_is_not_joblens_stay(place: Place) -> None:
    place.make(f"slot-{new_uuid()}")
    place.make("mine")
    place.sweep()
    assert place.left() == [True, True]


def test_groups_of_a_dead_process_of_this_store_go_at_once(place: Place) -> None:
    place.make(new_uuid(), DEAD)
    place.make(new_uuid(), DEAD)
    place.make(f"slot-{new_uuid()}", DEAD)
    place.sweep(later_s=0.0)
    assert place.left() == [False, False, False]


@pytest.mark.parametrize("prefix", ["", "slot-"])
def test_groups_stay_while_their_process_may_be_alive_or_a_job_needs_them(place: Place, prefix: str) -> None:
    wanted = new_uuid()
    for owner in (LIVING, ELSEWHERE):
        place.make(prefix + new_uuid(), owner)
    place.make(prefix + wanted, DEAD)
    place.sweep(unfinished=wanted, later_s=0.0)
    assert place.left() == [True, True, True]


def test_groups_of_other_stores_stay_but_for_slots_whose_spool_directory_is_gone(place: Place) -> None:
    other, gone = place.spool.with_name("other"), place.spool.with_name("gone")
    other.mkdir()
    far_away = Path("/no/such/spool")
    for spool in (other, gone, far_away):
        place.make(new_uuid(), DEAD, spool)
        place.make(f"slot-{new_uuid()}", DEAD, spool)
    place.make(f"slot-{new_uuid()}", LIVING, gone)
    place.sweep(later_s=0.0)
    assert place.left() == [True, True, True, False, True, True, True]


def test_where_jobs_get_their_groups_is_looked_at() -> None:
    groups = factory_or_skip().create(new_uuid())
    try:
        found = set(shared_parents(read_layout()))
        assert {os.path.dirname(path) for path in groups.paths.values()} <= found
    finally:
        groups.remove()
