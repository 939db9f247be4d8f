"""Job groups on this machine's real hierarchies."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from joblens.agent.cgroups.groups import GroupFactory, JobGroups
from joblens.agent.cgroups.placement import GroupPlacement, find_placement
from joblens.agent.cgroups.systemd_scope import enter_leaf
from joblens.model.errors import AccountingUnavailable, ProbeError
from joblens.model.values.ids import new_uuid
from joblens.probes.cgroup.layout import UNIFIED, CgroupLayout, read_layout
from joblens.probes.proc.kernel_files import read_words
from tests.integration.cgroup_jobs import factory_or_skip, make_groups, start_in, start_python_in

pytestmark = pytest.mark.cgroup

MIB = 1 << 20


@pytest.fixture
def groups() -> Iterator[JobGroups]:
    yield from make_groups()


@pytest.fixture
def own_places() -> Iterator[GroupPlacement]:
    """Places of this test alone, so that what other joblens processes do there does not show."""
    factory_or_skip()
    places = find_placement(read_layout())
    bases = {key: f"{base}/joblens-test-{os.getpid()}" for key, base in places.bases.items()}
    for base in bases.values():
        os.mkdir(base)
    yield GroupPlacement(kind=places.kind, bases=bases)
    for base in bases.values():
        os.rmdir(base)


def v1_factory() -> GroupFactory:
    """What a machine without cgroup v2 has, made of the v1 half of a hybrid one."""
    layout = read_layout()
    v1 = {key: value for key, value in layout.hierarchies.items() if value.version == 1}
    if "cpuacct" not in v1:
        pytest.skip("no cgroup v1 here")
    try:
        return GroupFactory.detect(layout=CgroupLayout(kind="cgroup-v1", hierarchies=v1))
    except AccountingUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def v1_groups() -> Iterator[JobGroups]:
    yield from make_groups(v1_factory())


def test_a_job_that_joins_is_listed_with_everything_it_starts(
    groups: JobGroups, wait_until: Callable[..., Any]
) -> None:
    job = start_in(groups, "sh", "-c", "sleep 60 & sleep 60 & wait")
    wait_until(lambda: len(groups.pids()) == 3, what="the shell and two sleeps")
    assert job.pid in groups.pids()
    assert groups.kill()
    job.wait()


def test_a_daemonised_child_is_killed_with_the_job(groups: JobGroups, wait_until: Callable[..., Any]) -> None:
    start_in(groups, "sh", "-c", "(setsid sleep 60 >/dev/null 2>&1 &) ; true").wait()
    daemon = wait_until(groups.pids, what="the daemon")[0]
    assert groups.kill()
    assert groups.is_empty()
    wait_until(lambda: not is_running(daemon), what="the end of the daemon")


def test_signal_reaches_every_process_but_the_spared(
    groups: JobGroups, wait_until: Callable[..., Any]
) -> None:
    first = start_in(groups, "sleep", "60")
    second = start_in(groups, "sleep", "60")
    wait_until(lambda: len(groups.pids()) == 2, what="two sleeps")
    assert groups.signal(signal.SIGTERM, spare=[first.pid]) == 1
    assert second.wait() == -signal.SIGTERM
    assert first.poll() is None
    assert groups.kill(spare=[first.pid])
    assert first.poll() is None
    assert groups.is_empty(spare=[first.pid])
    assert not groups.is_empty()
    first.kill()
    first.wait()


def test_zombies_do_not_keep_a_group_from_being_empty(
    groups: JobGroups, wait_until: Callable[..., Any]
) -> None:
    job = start_in(groups, "true")
    wait_until(groups.is_empty, what="a group without living processes")
    assert Path(f"/proc/{job.pid}/stat").exists()  # nobody has waited for it yet
    assert groups.remove() == []
    job.wait()


def test_without_cgroup_kill_a_fork_bomb_is_ended_all_the_same(
    v1_groups: JobGroups, wait_until: Callable[..., Any]
) -> None:
    v1_groups.set_limits(pids=40)
    bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n"
    job = start_python_in(v1_groups, bomb)
    wait_until(lambda: len(v1_groups.pids()) > 20, what="the bomb to spread")
    assert v1_groups.kill()
    assert v1_groups.is_empty()
    job.wait()


def test_a_job_over_its_memory_limit_is_killed_by_the_kernel(groups: JobGroups) -> None:
    if groups.set_limits(memory_bytes=64 * MIB) == {}:
        pytest.skip(groups.limit_gaps["memory"])
    job = start_python_in(groups, "x = bytearray(b'x') * (200 << 20)")
    assert job.wait() == -signal.SIGKILL


def test_a_job_over_its_process_limit_cannot_fork(groups: JobGroups) -> None:
    if groups.set_limits(pids=5) == {}:
        pytest.skip(groups.limit_gaps["pids"])
    code = """
import os, signal, sys
started = 0
try:
    for _ in range(20):
        if os.fork() == 0:
            signal.pause()
        started += 1
except BlockingIOError:
    sys.exit(started)
"""
    assert start_python_in(groups, code).wait() == 4
    assert groups.kill()


def test_limits_name_their_mechanism(groups: JobGroups) -> None:
    enforced = groups.set_limits(cpus=0.5, memory_bytes=100 * MIB, pids=10)
    assert set(enforced) | set(groups.limit_gaps) >= {"cpus", "memory", "pids"}
    assert all(mechanism.startswith("cgroup ") for mechanism in enforced.values())


def test_no_limits_asked_for_none_set(groups: JobGroups) -> None:
    assert groups.set_limits() == {}


def test_groups_are_found_again_by_their_paths(wait_until: Callable[..., Any]) -> None:
    groups = factory_or_skip().create(new_uuid())
    job = start_in(groups, "sleep", "60")
    found = JobGroups.open(groups.kind, groups.paths)
    assert found.exists()
    wait_until(lambda: found.pids() == [job.pid], what="the job")
    assert found.kill()
    job.wait()
    assert found.remove() == []
    assert not found.exists()


OURS = f"joblens-{os.geteuid()}"
UUID = "3f8a21b2-c4d5-4e6f-a7b8-c9d0e1f2a3b4"


@pytest.mark.parametrize(
    "path",
    [
        "{mount}",
        "{mount}/x/y",
        f"{{mount}}/joblens-x/{UUID}",
        f"{{mount}}/joblens-{os.geteuid() + 1}/{UUID}",
        f"{{mount}}/{OURS}/y",
        f"{{mount}}/{OURS}/{UUID}-x",
        f"{{mount}}/{OURS}/../{OURS}/{UUID}",
        f"{{mount}}-not/{OURS}/{UUID}",
        f"{{folder}}/{OURS}/{UUID}",
        f"{{link}}/{OURS}/{UUID}",
    ],
)
def test_directories_that_joblens_did_not_make_are_never_opened(path: str, tmp_path: Path) -> None:
    factory_or_skip()
    mount = next(iter(read_layout().hierarchies.values())).mount_point
    (tmp_path / "link").symlink_to(mount)
    with pytest.raises(ProbeError, match="not a job group"):
        JobGroups.open(
            "cgroup-v2", {UNIFIED: path.format(mount=mount, folder=tmp_path, link=tmp_path / "link")}
        )


@pytest.mark.parametrize("name", [UUID, f"{UUID}-1", f"slot-{UUID}"])
def test_what_joblens_makes_can_be_opened(name: str) -> None:
    groups = factory_or_skip().create(name)
    try:
        assert JobGroups.open(groups.kind, groups.paths).exists()
    finally:
        groups.remove()


def test_removal_takes_groups_along_that_the_job_left_below(groups: JobGroups) -> None:
    below = f"{groups.paths[next(iter(groups.paths))]}/made-by-the-job/deeper"
    os.makedirs(below)
    assert groups.remove() == []
    assert not groups.exists()


def test_processes_in_groups_made_by_the_job_are_the_jobs(
    groups: JobGroups, wait_until: Callable[..., Any]
) -> None:
    main = next(iter(groups.paths.values()))
    os.mkdir(f"{main}/below")
    job = start_in(groups, "sh", "-c", f"echo 0 > {main}/below/cgroup.procs && exec sleep 60")
    wait_until(lambda: own_pids(f"{main}/below"), what="the move")
    assert own_pids(main) == ""
    assert groups.pids() == [job.pid]
    assert groups.kill()
    job.wait()


def test_a_group_with_a_process_in_it_is_not_removed_but_named(
    groups: JobGroups, wait_until: Callable[..., Any]
) -> None:
    job = start_in(groups, "sleep", "60")
    wait_until(lambda: groups.pids() == [job.pid], what="the job")
    assert groups.remove() == list(dict.fromkeys(groups.paths.values()))
    job.kill()
    job.wait()


def test_a_name_that_is_taken_gets_a_number(own_places: GroupPlacement) -> None:
    factory = GroupFactory(own_places)
    first, second = factory.create("same"), factory.create("same")
    assert set(first.paths.values()).isdisjoint(second.paths.values())
    assert first.remove() == second.remove() == []


def test_many_at_once_make_and_remove_groups_in_the_same_place(own_places: GroupPlacement) -> None:
    factory = GroupFactory(own_places)

    def make_and_remove(worker: int) -> None:
        for turn in range(40):
            made = factory.create(f"worker-{worker}-{turn}")
            assert all(os.path.isdir(path) for path in made.paths.values())
            assert made.remove() == []

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make_and_remove, range(8)))
    left = [name for base in own_places.bases.values() for name in os.listdir(base) if "joblens" in name]
    assert left == []


def test_nothing_is_left_when_a_group_cannot_be_made_everywhere(own_places: GroupPlacement) -> None:
    bases = {**own_places.bases, "memory": "/sys/fs/cgroup/there/is/no/such/place"}
    with pytest.raises(AccountingUnavailable, match="cannot create a group"):
        GroupFactory(GroupPlacement(kind=own_places.kind, bases=bases)).create("half")


def test_page_cache_of_an_earlier_job_can_be_given_back(groups: JobGroups, tmp_path: Path) -> None:
    usage = memory_usage_file(groups)
    file = tmp_path / "big"
    code = (
        f"import os\nwith open({str(file)!r}, 'wb') as f:\n f.write(b'x' * (30 << 20))\n os.fsync(f.fileno())"
    )
    assert start_python_in(groups, code).wait() == 0
    cached = int(usage.read_text())
    if cached < 20 * MIB:
        pytest.skip("this file system's cache is not charged to the group")
    assert groups.reclaim()
    assert int(usage.read_text()) < cached / 4


def test_on_v1_the_peak_can_starts_over(v1_groups: JobGroups) -> None:
    assert start_python_in(v1_groups, "x = bytearray(b'x') * (50 << 20)").wait() == 0
    peak = Path(v1_groups.paths["memory"], "memory.max_usage_in_bytes")
    assert int(peak.read_text()) > 50 * MIB
    v1_groups.reclaim()
    peak.write_text("0")
    assert int(peak.read_text()) < 25 * MIB


def test_an_explicit_parent_that_does_not_exist_is_refused_with_its_name() -> None:
    factory_or_skip()
    with pytest.raises(AccountingUnavailable, match=r"no group .*there/is/none") as refused:
        GroupFactory.detect("there/is/none")
    assert "joblens doctor" in refused.value.hint


@pytest.mark.root
def test_someone_without_rights_learns_so() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become someone else")
    code = """
import json
import os
from joblens.agent.cgroups.groups import GroupFactory
from joblens.model.errors import AccountingUnavailable
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    GroupFactory.detect()
except AccountingUnavailable as refusal:
    print(refusal, "|", refusal.hint)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "may not be written by uid 65534" in answer
    assert "--accounting process_tree" in answer


def test_a_process_alone_in_its_group_moves_into_a_leaf_and_no_other(groups: JobGroups) -> None:
    if UNIFIED not in groups.paths:
        pytest.skip("no cgroup v2 here")
    code = "from joblens.agent.cgroups.systemd_scope import enter_leaf; print(enter_leaf())"
    alone = start_in(groups, sys.executable, "-c", code, stdout=subprocess.PIPE)
    answer = alone.communicate()[0].decode().strip()
    unified = read_layout().unified
    assert unified is not None
    assert unified.mount_point + answer == groups.paths[UNIFIED]
    assert os.path.isdir(f"{groups.paths[UNIFIED]}/joblens-self")


def test_a_process_that_is_not_alone_stays_where_it_is() -> None:
    if read_layout().unified is None:
        pytest.skip("no cgroup v2 here")
    with pytest.raises(AccountingUnavailable, match="other processes"):
        enter_leaf()  # pytest and whoever started it share a group


def own_pids(directory: str) -> str:
    return Path(directory, "cgroup.procs").read_text()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def memory_usage_file(groups: JobGroups) -> Path:
    for key, name in (("memory", "memory.usage_in_bytes"), (UNIFIED, "memory.current")):
        path = Path(groups.paths.get(key, "/nowhere"), name)
        if path.exists():
            return path
    pytest.skip("no memory controller")


DETECT_INSIDE = """
import json, sys
from joblens.agent.cgroups.groups import GroupFactory
from joblens.agent.cgroups.systemd_scope import enter_leaf
from joblens.model.errors import AccountingUnavailable
from joblens.probes.cgroup.probe import CgroupProbe
parent = enter_leaf() if sys.argv[1] == "leaf" else None
try:
    factory = GroupFactory.detect(parent)
except AccountingUnavailable as error:
    print(json.dumps([{"memory": str(error)}, [], {}]))
    sys.exit()
groups = factory.create("inside")
probe = CgroupProbe(groups.paths, groups.kind)
print(json.dumps([factory.gaps, sorted(probe.sources), groups.set_limits(memory_bytes=1 << 30)]))
probe.close()
groups.remove()
"""


@pytest.fixture
def pure_v2_groups(groups: JobGroups) -> JobGroups:
    if groups.kind != "cgroup-v2" or not Path(groups.paths[UNIFIED], "memory.current").exists():
        pytest.skip("needs cgroup v2 with the memory controller")
    return groups


def detect_inside(groups: JobGroups, how: str) -> tuple[dict[str, str], list[str], dict[str, str]]:
    joblens = start_in(groups, sys.executable, "-c", DETECT_INSIDE, how, stdout=subprocess.PIPE)
    gaps, sources, enforced = json.loads(joblens.communicate()[0])
    return gaps, sources, enforced


def test_a_limited_v2_group_with_other_processes_is_neither_left_nor_changed(
    pure_v2_groups: JobGroups, wait_until: Callable[..., Any]
) -> None:
    pure_v2_groups.set_limits(memory_bytes=512 * MIB, pids=100)  # jobs must not escape them
    other = start_in(pure_v2_groups, "sleep", "60")
    wait_until(lambda: pure_v2_groups.pids() == [other.pid], what="the other process")
    gaps, sources, _ = detect_inside(pure_v2_groups, "as it is")
    assert "holds processes" in gaps["memory"]
    assert sources == []
    assert pure_v2_groups.pids() == [other.pid]  # it was not moved
    group = Path(pure_v2_groups.paths[UNIFIED])
    assert (group / "cgroup.type").read_text() == "domain\n"
    assert (group / "cgroup.subtree_control").read_text().split() == []
    assert [path for path in group.iterdir() if path.is_dir()] == []
    other.kill()
    other.wait()


def not_offered(groups: JobGroups) -> set[str]:
    """Controllers that the groups above do not hand down."""
    return {"memory", "pids", "cpu", "io"} - read_words(f"{groups.paths[UNIFIED]}/cgroup.controllers")


def test_below_an_unlimited_v2_group_with_other_processes_jobs_go_beside_it(
    pure_v2_groups: JobGroups, wait_until: Callable[..., Any]
) -> None:
    other = start_in(pure_v2_groups, "sleep", "60")
    wait_until(lambda: pure_v2_groups.pids() == [other.pid], what="the other process")
    gaps, sources, _ = detect_inside(pure_v2_groups, "as it is")
    assert set(gaps) == not_offered(pure_v2_groups)
    assert {"cpu", "memory", "memory_kernel_peak"} <= set(sources)
    assert ("io" in gaps) == ("io" not in sources)
    assert pure_v2_groups.pids() == [other.pid]
    other.kill()
    other.wait()


def test_in_a_v2_group_of_its_own_joblens_gets_all_controllers_from_a_leaf(pure_v2_groups: JobGroups) -> None:
    gaps, sources, enforced = detect_inside(pure_v2_groups, "leaf")
    assert set(gaps) == not_offered(pure_v2_groups)
    assert {"cpu", "memory", "memory_kernel_peak", "threads"} <= set(sources)
    assert ("io" in gaps) == ("io" not in sources)
    assert enforced == {"memory": "cgroup memory.max"}
