"""Where cgroups are, from the texts of /proc/self/cgroup and /proc/self/mountinfo."""

from pathlib import Path

import pytest

from joblens.probes.cgroup.layout import CgroupLayout, parse_layout, read_layout

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
UNIFIED_MOUNT = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


def v1_mount(controllers: str, root: str = "/") -> str:
    return f"32 31 0:32 {root} /sys/fs/cgroup/{controllers} rw - cgroup cgroup rw,{controllers}\n"


def directories(layout: CgroupLayout) -> dict[str, str | None]:
    return {key: hierarchy.directory for key, hierarchy in layout.hierarchies.items()}


def test_pure_v2() -> None:
    layout = parse_layout("0::/user.slice/session-3.scope\n", V2_MOUNT)
    assert layout.kind == "cgroup-v2"
    assert directories(layout) == {"unified": "/sys/fs/cgroup/user.slice/session-3.scope"}


def test_hybrid_has_a_place_in_every_hierarchy() -> None:
    text = "4:memory:/service\n3:pids:/\n1:cpu,cpuacct:/x\n0::/\n"
    mounts = UNIFIED_MOUNT + v1_mount("memory") + v1_mount("pids") + v1_mount("cpu,cpuacct")
    layout = parse_layout(text, mounts)
    assert layout.kind == "cgroup-hybrid"
    assert directories(layout) == {
        "memory": "/sys/fs/cgroup/memory/service",
        "pids": "/sys/fs/cgroup/pids",
        "cpu": "/sys/fs/cgroup/cpu,cpuacct/x",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct/x",
        "unified": "/sys/fs/cgroup/unified",
    }
    assert layout.hierarchies["cpu"] == layout.hierarchies["cpuacct"]


def test_v1_without_a_v2_mount_is_v1_although_the_kernel_names_a_v2_group() -> None:
    layout = parse_layout("2:memory:/a\n0::/\n", v1_mount("memory"))
    assert layout.kind == "cgroup-v1"
    assert layout.unified is None


def test_a_named_v1_hierarchy_beside_v2_does_not_make_it_hybrid() -> None:
    layout = parse_layout("1:name=systemd:/\n0::/\n", v1_mount("name=systemd") + UNIFIED_MOUNT)
    assert layout.kind == "cgroup-v2"


@pytest.mark.parametrize("mounts", ["", "22 1 0:20 / /proc rw - proc proc rw\n", "torn line"])
def test_no_cgroup_mount_is_none(mounts: str) -> None:
    assert parse_layout("0::/\n", mounts).kind == "none"


def test_a_bind_mount_of_the_own_group_shows_it_at_its_top() -> None:
    mount = v1_mount("memory", root="/docker/abc")
    assert directories(parse_layout("4:memory:/docker/abc/job\n", mount)) == {
        "memory": "/sys/fs/cgroup/memory/job"
    }
    assert directories(parse_layout("4:memory:/docker/abc\n", mount)) == {"memory": "/sys/fs/cgroup/memory"}


def test_a_group_outside_what_is_mounted_has_no_directory() -> None:
    mount = v1_mount("memory", root="/docker/abc")
    assert directories(parse_layout("4:memory:/docker/abcdef\n", mount)) == {"memory": None}


def test_in_a_cgroup_namespace_a_mount_from_outside_does_not_show_the_own_group() -> None:
    mount = V2_MOUNT.replace(" / ", " /.. ", 1)
    assert directories(parse_layout("0::/\n", mount)) == {"unified": None}
    assert directories(parse_layout("0::/../neighbour\n", mount)) == {"unified": "/sys/fs/cgroup/neighbour"}


def test_a_group_above_the_namespace_cannot_be_reached_through_a_mount_inside() -> None:
    assert directories(parse_layout("0::/../elsewhere\n", V2_MOUNT)) == {"unified": None}


def test_of_several_mounts_the_one_that_shows_the_group_and_can_be_written_is_taken() -> None:
    read_only = "50 31 0:32 / /ro rw - cgroup cgroup rw,memory\n".replace(" rw -", " ro -")
    narrow = "51 31 0:32 /other /narrow rw - cgroup cgroup rw,memory\n"
    layout = parse_layout("4:memory:/mine\n", read_only + narrow + v1_mount("memory"))
    assert directories(layout) == {"memory": "/sys/fs/cgroup/memory/mine"}
    layout = parse_layout("4:memory:/mine\n", read_only + narrow)
    assert directories(layout) == {"memory": "/ro/mine"}
    assert not layout.hierarchies["memory"].is_writable


def test_a_later_mount_hides_the_earlier_one_at_the_same_place() -> None:
    above = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    assert parse_layout("0::/\n", V2_MOUNT + above).kind == "none"


def test_mount_points_with_blanks_are_read() -> None:
    mount = V2_MOUNT.replace("/sys/fs/cgroup", "/mnt/my\\040groups")
    assert directories(parse_layout("0::/a\n", mount)) == {"unified": "/mnt/my groups/a"}


def test_group_names_with_colons_are_read() -> None:
    assert directories(parse_layout("0::/a:b/c\n", V2_MOUNT)) == {"unified": "/sys/fs/cgroup/a:b/c"}


def test_a_removed_group_is_named_without_the_kernels_remark() -> None:
    layout = parse_layout("0::/gone (deleted)\n", V2_MOUNT)
    assert directories(layout) == {"unified": "/sys/fs/cgroup/gone"}


def test_reading_takes_any_proc(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text("0::/x\n")
    (tmp_path / "7" / "mountinfo").write_text(V2_MOUNT)
    assert read_layout(str(tmp_path), 7).kind == "cgroup-v2"
    assert read_layout(str(tmp_path), 8).kind == "none"
