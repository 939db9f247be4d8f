"""Where groups can be made, on trees that look like the machines they stand for."""

import os
from pathlib import Path

import pytest

from joblens.agent.cgroups.placement import GroupPlacement, enclosing_job_group, find_placement, slurm_step
from joblens.model.errors import AccountingUnavailable
from joblens.probes.cgroup.layout import CgroupLayout, parse_layout

FOUR = "cpu io memory pids"
JOB = "joblens-1000/0190a3c5-7f3e-7000-8000-0123456789ab.12-34-56-00000000_00000000"
SLOT = "joblens-0/slot-0190a3c5-7f3e-7000-8000-0123456789ab"


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
    places = find_placement(v2_machine(tmp_path, "/job.scope"))
    assert places.kind == "cgroup-v2"
    assert places.bases == {"unified": f"{tmp_path}/job.scope"}
    assert places.gaps == {}


def test_a_controller_that_was_not_handed_down_is_a_gap_with_its_reason(tmp_path: Path) -> None:
    make_v2_group(tmp_path, "cpu memory", "cpu memory")
    places = find_placement(v2_machine(tmp_path, "/"))
    assert places.gaps == {
        "pids": f"{tmp_path} does not delegate the pids controller",
        "io": f"{tmp_path} does not delegate the io controller",
    }


def test_a_group_that_joblens_did_not_make_is_never_changed(tmp_path: Path) -> None:
    """As system.slice often is: it offers more than it hands down."""
    make_v2_group(tmp_path / "system.slice", FOUR, "memory pids")
    make_v2_group(tmp_path / "system.slice" / "cron.service", "memory pids")
    places = find_placement(v2_machine(tmp_path, "/system.slice/cron.service"))
    assert places.bases == {"unified": f"{tmp_path}/system.slice"}
    assert set(places.gaps) == {"cpu", "io"}
    assert (tmp_path / "system.slice" / "cgroup.subtree_control").read_text() == "memory pids"


def test_where_the_own_group_hands_nothing_down_the_nearest_ancestor_that_does_is_taken(
    tmp_path: Path,
) -> None:
    make_v2_group(tmp_path, "cpu io memory pids", "cpu io memory pids")
    make_v2_group(tmp_path / "user", "cpu io memory pids", "memory")
    make_v2_group(tmp_path / "user" / "session", "memory")
    places = find_placement(v2_machine(tmp_path, "/user/session"))
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
    places = find_placement(v2_machine(tmp_path, "/user/session"))
    assert places.bases == {"unified": f"{tmp_path}/user"}


def test_a_memory_limit_of_more_than_the_machine_has_limits_nothing(tmp_path: Path) -> None:
    make_v2_group(tmp_path, "cpu io memory pids", "cpu io memory pids")
    make_v2_group(tmp_path / "user", "memory")
    (tmp_path / "user" / "memory.max").write_text(str(1 << 60))
    assert find_placement(v2_machine(tmp_path, "/user")).bases == {"unified": str(tmp_path)}


def test_a_named_parent_is_taken_instead_of_the_own_group(tmp_path: Path) -> None:
    make_v2_group(tmp_path / "mine", "memory", "memory")
    make_v2_group(tmp_path / "given", "memory", "memory")
    (tmp_path / "cgroup.procs").write_text("")
    places = find_placement(v2_machine(tmp_path, "/mine"), "/given")
    assert places.bases == {"unified": f"{tmp_path}/given"}


def test_a_read_only_mount_is_said_to_be_one(tmp_path: Path) -> None:
    make_v2_group(tmp_path, "memory")
    with pytest.raises(AccountingUnavailable, match="mounted read-only") as refused:
        find_placement(v2_machine(tmp_path, "/", options="ro"))
    assert "joblens doctor" in refused.value.hint


@pytest.mark.parametrize("kind", ["threaded", "domain threaded", "domain invalid"])
def test_a_threaded_group_cannot_hold_jobs(tmp_path: Path, kind: str) -> None:
    make_v2_group(tmp_path, "memory pids", "memory pids")
    (tmp_path / "cgroup.type").write_text(f"{kind}\n")
    with pytest.raises(AccountingUnavailable, match=f"is a {kind} group"):
        find_placement(v2_machine(tmp_path, "/"))


# ---- the own group holds processes, and nothing above it can be used --------------------------------------


def populated(directory: Path, pid: int | str, controllers: str = FOUR) -> None:
    make_v2_group(directory, controllers)
    (directory / "cgroup.type").write_text("domain\n")
    (directory / "cgroup.procs").write_text(f"{pid}\n")


def alone_in_a_unit(
    mount: Path, monkeypatch: pytest.MonkeyPatch, *, is_delegated: bool = True
) -> CgroupLayout:
    populated(mount / "work.service", os.getpid())
    monkeypatch.setattr("joblens.agent.cgroups.placement.is_delegated", lambda *_: is_delegated)
    return v2_machine(mount, "/work.service")


def test_alone_in_a_delegated_unit_joblens_divides_it_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = alone_in_a_unit(tmp_path, monkeypatch)
    places = find_placement(layout)
    assert places == GroupPlacement(
        kind="cgroup-v2",
        bases={"unified": f"{tmp_path}/work.service"},
        divided=f"{tmp_path}/work.service",
        is_borrowed=True,
    )
    with pytest.raises(AccountingUnavailable, match="holds processes"):
        find_placement(layout, may_borrow=False)


def test_a_unit_that_is_not_delegated_is_not_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = alone_in_a_unit(tmp_path, monkeypatch, is_delegated=False)
    with pytest.raises(AccountingUnavailable, match="holds processes and does not delegate the memory"):
        find_placement(layout)


def test_a_delegated_unit_with_foreign_processes_is_not_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = alone_in_a_unit(tmp_path, monkeypatch)
    (tmp_path / "work.service" / "cgroup.procs").write_text(f"{os.getpid()}\n{os.getppid()}\n")
    with pytest.raises(AccountingUnavailable, match="holds processes"):
        find_placement(layout)


# ---- inside a job of joblens -----------------------------------------------------------------------------


@pytest.mark.parametrize("job", [JOB, SLOT])
@pytest.mark.parametrize("leaf", ["", "/joblens-self"])
def test_jobs_of_a_job_lie_inside_it_though_a_group_above_hands_more_down(
    tmp_path: Path, job: str, leaf: str
) -> None:
    make_v2_group(tmp_path, FOUR, FOUR)
    make_v2_group((tmp_path / job).parent, FOUR, FOUR)
    populated(tmp_path / job, "" if leaf else os.getpid(), "cpu memory pids")
    populated(tmp_path / f"{job}{leaf}", os.getpid(), "cpu memory pids")
    places = find_placement(v2_machine(tmp_path, f"/{job}{leaf}"))
    assert places.bases == {"unified": f"{tmp_path}/{job}"}
    assert (places.divided, places.is_borrowed) == (f"{tmp_path}/{job}", False)
    assert set(places.gaps) == {"io"}


def test_a_job_that_made_groups_itself_is_not_divided_and_not_left(tmp_path: Path) -> None:
    make_v2_group(tmp_path, FOUR, FOUR)
    make_v2_group(tmp_path / JOB, FOUR)
    populated(tmp_path / JOB / "own", os.getpid())
    with pytest.raises(AccountingUnavailable, match="own holds processes"):
        find_placement(v2_machine(tmp_path, f"/{JOB}/own"))


def test_a_job_without_the_memory_controller_is_not_divided_and_not_left(tmp_path: Path) -> None:
    make_v2_group(tmp_path, FOUR, FOUR)
    populated(tmp_path / JOB, os.getpid(), "cpu pids")
    with pytest.raises(AccountingUnavailable, match="does not delegate the memory controller"):
        find_placement(v2_machine(tmp_path, f"/{JOB}"))


def test_the_innermost_job_counts(tmp_path: Path) -> None:
    inner = f"{tmp_path}/{JOB}/{SLOT}"
    assert enclosing_job_group(f"{inner}/joblens-self", str(tmp_path)) == inner
    assert enclosing_job_group(inner, str(tmp_path)) == inner
    assert enclosing_job_group(f"{tmp_path}/{JOB}", str(tmp_path)) == f"{tmp_path}/{JOB}"
    for other in ("", "/joblens-1000", "/joblens-1000/job", f"/other/{os.path.basename(JOB)}"):
        assert enclosing_job_group(f"{tmp_path}{other}", str(tmp_path)) == ""


def test_a_group_that_no_mount_shows_is_said_to_be_hidden(tmp_path: Path) -> None:
    with pytest.raises(AccountingUnavailable, match=r"does not show the group /\.\./outside"):
        find_placement(v2_machine(tmp_path, "/../outside"))


def test_a_machine_without_cgroups_is_asked_to_use_the_process_tree() -> None:
    with pytest.raises(AccountingUnavailable, match="no cgroup hierarchy") as refused:
        find_placement(CgroupLayout(kind="none"))
    assert "process_tree" in refused.value.hint


def test_v1_needs_cpuacct_and_takes_the_rest_where_it_is(tmp_path: Path) -> None:
    places = find_placement(v1_machine(tmp_path, "cpuacct", "memory", "cpu"))
    assert places.kind == "cgroup-v1"
    assert set(places.bases) == {"cpuacct", "memory"}
    assert set(places.spare) == {"cpu"}
    assert places.gaps == {"pids": "no pids hierarchy is mounted"}
    with pytest.raises(AccountingUnavailable, match="no cpuacct"):
        find_placement(v1_machine(tmp_path / "other", "memory"))


def test_v1_controllers_mounted_together_are_joined_together(tmp_path: Path) -> None:
    (tmp_path / "both").mkdir()
    mountinfo = f"30 23 0:26 / {tmp_path}/both rw - cgroup cgroup rw,cpu,cpuacct\n"
    places = find_placement(parse_layout("1:cpu,cpuacct:/\n", mountinfo))
    assert places.bases == {"cpuacct": f"{tmp_path}/both", "cpu": f"{tmp_path}/both"}
    assert places.spare == {}


def test_a_hybrid_machine_whose_v2_half_is_closed_falls_back_to_v1(tmp_path: Path) -> None:
    v1 = v1_machine(tmp_path / "v1", "cpuacct", "memory", "pids")
    closed = v2_machine(tmp_path / "v2", "/", options="ro")
    layout = CgroupLayout(kind="cgroup-hybrid", hierarchies={**v1.hierarchies, **closed.hierarchies})
    assert find_placement(layout).kind == "cgroup-v1"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_group_of_someone_else_is_refused(tmp_path: Path) -> None:
    make_v2_group(tmp_path, "memory")
    tmp_path.chmod(0o555)
    with pytest.raises(AccountingUnavailable, match="may not be written"):
        find_placement(v2_machine(tmp_path, "/"))


SCOPE = "system.slice/slurmstepd.scope"


def slurm_v2_job(mount: Path) -> str:
    """A batch step as Slurm's cgroup/v2 plugin leaves it: only what it was told to constrain goes down."""
    for above in (".", "system.slice", SCOPE):
        make_v2_group(mount / above, FOUR, FOUR)
    for below in ("job_42", "job_42/step_batch", "job_42/step_batch/user"):
        make_v2_group(mount / SCOPE / below, "cpu memory", "cpu memory")
    make_v2_group(mount / SCOPE / "job_42/step_batch/user/task_0", "cpu memory")
    return f"/{SCOPE}/job_42/step_batch/user/task_0"


def test_inside_a_slurm_job_groups_lie_in_its_step_beside_its_task(tmp_path: Path) -> None:
    places = find_placement(v2_machine(tmp_path, slurm_v2_job(tmp_path)))
    assert places.bases == {"unified": f"{tmp_path}/{SCOPE}/job_42/step_batch/user"}
    assert set(places.gaps) == {"pids", "io"}


def test_no_job_is_put_outside_of_its_slurm_job_though_more_could_be_had_there(tmp_path: Path) -> None:
    own = slurm_v2_job(tmp_path)
    for name in ("user", "user/task_0"):
        (tmp_path / SCOPE / "job_42/step_batch" / name / "cgroup.subtree_control").write_text("")
    with pytest.raises(AccountingUnavailable, match="task_0 does not delegate the memory controller"):
        find_placement(v2_machine(tmp_path, own))


def test_in_a_slurm_job_on_v1_groups_lie_below_what_slurm_gave_in_each_hierarchy(tmp_path: Path) -> None:
    step = "slurm_n1/uid_1000/job_42/step_batch"
    lines, own = [], []
    for number, (name, group) in enumerate({"cpuacct": step, "memory": f"{step}/task_0", "pids": ""}.items()):
        (tmp_path / name / group).mkdir(parents=True)
        lines.append(f"3{number} 23 0:3{number} / {tmp_path}/{name} rw - cgroup cgroup rw,{name}\n")
        own.append(f"{number}:{name}:/{group}\n")
    places = find_placement(parse_layout("".join(own), "".join(lines)))
    assert places.bases == {
        "cpuacct": f"{tmp_path}/cpuacct/{step}",
        "memory": f"{tmp_path}/memory/{step}/task_0",
        "pids": f"{tmp_path}/pids",
    }


@pytest.mark.parametrize(
    ("group", "step"),
    [
        ("/x/job_42/step_batch/user/task_0", "/x/job_42/step_batch/user"),
        ("/x/job_42/step_0/user", "/x/job_42/step_0/user"),
        ("/slurm/uid_0/job_7/step_extern/task_4", "/slurm/uid_0/job_7/step_extern"),
        ("/user.slice/job_42", ""),
        ("/", ""),
    ],
)
def test_a_step_of_slurm_is_known_by_its_path(group: str, step: str) -> None:
    assert slurm_step(group) == step
