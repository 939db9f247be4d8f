"""Where groups can be made, on trees that look like the machines they stand for."""

import os
from pathlib import Path

import pytest

from joblens.agent.group_places import find_places
from joblens.model.errors import AccountingUnavailable
from joblens.probes.cgroup_layout import CgroupLayout, parse_layout


def v2_machine(mount: Path, own: str, options: str = "rw") -> CgroupLayout:
    mountinfo = f"30 23 0:26 / {mount} {options} - cgroup2 cgroup2 rw\n"
    return parse_layout(f"0::{own}\n", mountinfo)


def make_v2_group(directory: Path, controllers: str, enabled: str = "") -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cgroup.controllers").write_text(controllers)
    (directory / "cgroup.subtree_control").write_text(enabled)
    (directory / "cgroup.procs").write_text("")


def v1_machine(mount: Path, *controllers: str) -> CgroupLayout:
    lines = [
        f"3{n} 23 0:3{n} / {mount}/{name} rw - cgroup cgroup rw,{name}\n"
        for n, name in enumerate(controllers)
    ]
    own = [f"{n}:{name}:/\n" for n, name in enumerate(controllers)]
    for name in controllers:
        (mount / name).mkdir(parents=True)
    return parse_layout("".join(own), "".join(lines))


def test_on_pure_v2_the_own_group_is_the_place(tmp_path: Path) -> None:
    make_v2_group(tmp_path / "job.scope", "cpu io memory pids", "cpu io memory pids")
    places = find_places(v2_machine(tmp_path, "/job.scope"))
    assert places.kind == "cgroup-v2"
    assert places.bases == {"unified": f"{tmp_path}/job.scope"}
    assert places.gaps == {}


def test_a_controller_that_was_not_handed_down_is_a_gap_with_its_reason(tmp_path: Path) -> None:
    make_v2_group(tmp_path, "cpu memory", "cpu memory")
    places = find_places(v2_machine(tmp_path, "/"))
    assert set(places.gaps) == {"pids", "io"}
    assert "not handed down" in places.gaps["pids"]


def test_where_the_own_group_hands_nothing_down_the_nearest_ancestor_that_does_is_taken(
    tmp_path: Path,
) -> None:
    make_v2_group(tmp_path, "cpu io memory pids", "cpu io memory pids")
    make_v2_group(tmp_path / "user", "cpu io memory pids", "memory")
    make_v2_group(tmp_path / "user" / "session", "memory")
    places = find_places(v2_machine(tmp_path, "/user/session"))
    assert places.bases == {"unified": str(tmp_path)}
    assert places.gaps == {}


@pytest.mark.parametrize(
    ("file", "limit"), [("memory.max", "1048576"), ("pids.max", "100"), ("cpu.max", "50000 100000")]
)
def test_no_job_is_put_where_it_would_get_away_from_a_limit(tmp_path: Path, file: str, limit: str) -> None:
    make_v2_group(tmp_path, "cpu io memory pids", "cpu io memory pids")
    make_v2_group(tmp_path / "user", "cpu io memory pids", "memory pids")
    make_v2_group(tmp_path / "user" / "session", "memory")
    (tmp_path / "user" / file).write_text(limit)
    places = find_places(v2_machine(tmp_path, "/user/session"))
    assert places.bases == {"unified": f"{tmp_path}/user"}


def test_a_memory_limit_of_more_than_the_machine_has_limits_nothing(tmp_path: Path) -> None:
    make_v2_group(tmp_path, "cpu io memory pids", "cpu io memory pids")
    make_v2_group(tmp_path / "user", "memory")
    (tmp_path / "user" / "memory.max").write_text(str(1 << 60))
    assert find_places(v2_machine(tmp_path, "/user")).bases == {"unified": str(tmp_path)}


def test_a_named_parent_is_taken_instead_of_the_own_group(tmp_path: Path) -> None:
    make_v2_group(tmp_path / "mine", "memory", "memory")
    make_v2_group(tmp_path / "given", "memory", "memory")
    (tmp_path / "cgroup.procs").write_text("")
    places = find_places(v2_machine(tmp_path, "/mine"), "/given")
    assert places.bases == {"unified": f"{tmp_path}/given"}


def test_a_read_only_mount_is_said_to_be_one(tmp_path: Path) -> None:
    make_v2_group(tmp_path, "memory")
    with pytest.raises(AccountingUnavailable, match="mounted read-only") as refused:
        find_places(v2_machine(tmp_path, "/", options="ro"))
    assert "systemd-run --user --scope" in refused.value.hint


def test_a_threaded_group_cannot_hold_jobs(tmp_path: Path) -> None:
    make_v2_group(tmp_path, "memory")
    (tmp_path / "cgroup.type").write_text("threaded\n")
    with pytest.raises(AccountingUnavailable, match="is a threaded group"):
        find_places(v2_machine(tmp_path, "/"))


def test_a_group_that_no_mount_shows_is_said_to_be_hidden(tmp_path: Path) -> None:
    with pytest.raises(AccountingUnavailable, match=r"does not show the group /\.\./outside"):
        find_places(v2_machine(tmp_path, "/../outside"))


def test_a_machine_without_cgroups_is_told_to_use_the_process_tree() -> None:
    with pytest.raises(AccountingUnavailable, match="no cgroup hierarchy") as refused:
        find_places(CgroupLayout(kind="none"))
    assert "process_tree" in refused.value.hint


def test_v1_needs_cpuacct_and_takes_the_rest_where_it_is(tmp_path: Path) -> None:
    places = find_places(v1_machine(tmp_path, "cpuacct", "memory", "cpu"))
    assert places.kind == "cgroup-v1"
    assert set(places.bases) == {"cpuacct", "memory"}
    assert set(places.spare) == {"cpu"}
    assert places.gaps == {"pids": "no pids hierarchy is mounted"}
    with pytest.raises(AccountingUnavailable, match="no cpuacct"):
        find_places(v1_machine(tmp_path / "other", "memory"))


def test_v1_controllers_mounted_together_are_joined_together(tmp_path: Path) -> None:
    (tmp_path / "both").mkdir()
    mountinfo = f"30 23 0:26 / {tmp_path}/both rw - cgroup cgroup rw,cpu,cpuacct\n"
    places = find_places(parse_layout("1:cpu,cpuacct:/\n", mountinfo))
    assert places.bases == {"cpuacct": f"{tmp_path}/both", "cpu": f"{tmp_path}/both"}
    assert places.spare == {}


def test_a_hybrid_machine_whose_v2_half_is_closed_falls_back_to_v1(tmp_path: Path) -> None:
    v1 = v1_machine(tmp_path / "v1", "cpuacct", "memory", "pids")
    closed = v2_machine(tmp_path / "v2", "/", options="ro")
    layout = CgroupLayout(kind="cgroup-hybrid", hierarchies={**v1.hierarchies, **closed.hierarchies})
    assert find_places(layout).kind == "cgroup-v1"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_group_of_someone_else_is_refused(tmp_path: Path) -> None:
    make_v2_group(tmp_path, "memory")
    tmp_path.chmod(0o555)
    with pytest.raises(AccountingUnavailable, match="may not be written"):
        find_places(v2_machine(tmp_path, "/"))
