"""When jobs may leave the unit joblens runs in for a scope of their own, on trees as systemd makes them."""

import os
from pathlib import Path

import pytest

from joblens.agent.cgroups.systemd_scope import ScopeTerms, scope_terms
from joblens.files.private import user_name
from joblens.probes.cgroup.layout import CgroupLayout, parse_layout

ALICE = 1000
HER_SLICE = "user.slice/user-1000.slice"
HER_MANAGER = f"{HER_SLICE}/user@1000.service"
CONTAINER = "5d" * 32


def machine(mount: Path, own: str) -> CgroupLayout:
    (mount / own).mkdir(parents=True, exist_ok=True)
    return parse_layout(f"0::/{own}\n", f"30 23 0:26 / {mount} rw - cgroup2 cgroup2 rw\n")


def limited(mount: Path, own: str, limits: dict[str, str]) -> CgroupLayout:
    layout = machine(mount, own)
    for path, text in limits.items():
        (mount / path).write_text(text)
    return layout


def linger_folder(folder: Path, uid: int) -> str:
    """In which this user lingers."""
    (folder / "linger").mkdir(exist_ok=True)
    (folder / "linger" / user_name(uid)).touch()
    return str(folder / "linger")


@pytest.fixture
def proc(tmp_path: Path) -> str:
    """As systemd sees processes, too."""
    folder = tmp_path / "proc"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "comm").write_text("systemd\n")
    (folder / "self").symlink_to(str(os.getpid()))
    return str(folder)


@pytest.mark.parametrize(
    ("uid", "own", "slice_name"),
    [
        pytest.param(ALICE, f"{HER_SLICE}/session-3.scope", "", id="user over ssh"),
        pytest.param(ALICE, f"{HER_MANAGER}/app.slice/run-u1.scope", "app.slice", id="user in a user scope"),
        pytest.param(
            ALICE,
            f"{HER_MANAGER}/app.slice/app-org.gnome.Terminal.slice/vte-spawn-1.scope",
            "app-org.gnome.Terminal.slice",
            id="user in a terminal of a desktop",
        ),
        pytest.param(ALICE, f"{HER_MANAGER}/init.scope", "", id="user in her manager"),
        pytest.param(ALICE, "user.slice/user-0.slice/session-4.scope", "", id="user through sudo"),
        pytest.param(ALICE, "system.slice/her.service", "", id="user in a system service"),
        pytest.param(0, "user.slice/user-0.slice/session-1.scope", "user-0.slice", id="root over ssh"),
        pytest.param(0, f"{HER_SLICE}/session-3.scope", "user-1000.slice", id="root through sudo"),
        pytest.param(0, "system.slice/cron.service", "system.slice", id="root in a system service"),
        pytest.param(
            0, "system.slice/system-ci.slice/ci@1.service", "system-ci.slice", id="root in an instance"
        ),
        pytest.param(
            0, f"{HER_MANAGER}/app.slice/vte-1.scope", "user-1000.slice", id="root in a terminal of a desktop"
        ),
    ],
)
def test_a_unit_without_limits_allows_a_scope_in_its_slice(
    tmp_path: Path, proc: str, uid: int, own: str, slice_name: str
) -> None:
    terms = scope_terms(machine(tmp_path, own), uid, proc, linger_folder(tmp_path, uid))
    assert terms == ScopeTerms(slice=slice_name)


@pytest.mark.parametrize(
    "own", ["user.slice/user-0.slice/session-4.scope", "system.slice/her.service"], ids=["sudo", "service"]
)
def test_jobs_outside_her_slice_do_not_depend_on_her_login(tmp_path: Path, proc: str, own: str) -> None:
    terms = scope_terms(machine(tmp_path, own), ALICE, proc, str(tmp_path / "linger"))
    assert terms.needs_linger
    assert "only while" in terms.refusal


@pytest.mark.parametrize(
    ("uid", "own", "reason"),
    [
        pytest.param(
            ALICE, f"{HER_MANAGER}/app.slice/tmux.service/jobs", "another program", id="deeper in a unit"
        ),
        pytest.param(
            0, "system.slice/a.service/b.service", "inside another unit", id="a unit's name deeper in a unit"
        ),
        pytest.param(
            0, "system.slice/slurmstepd.scope/job_42/step_0/user/task_0", "Slurm step", id="Slurm step"
        ),
        pytest.param(0, "system.slice/slurmd.service", "batch system", id="Slurm without groups"),
        pytest.param(
            ALICE, "system.slice/htcondor/condor_scratch_slot1_1@n1", "another program", id="HTCondor"
        ),
        pytest.param(0, f"system.slice/docker-{CONTAINER}.scope", "container", id="Docker"),
        pytest.param(
            ALICE, f"{HER_MANAGER}/user.slice/libpod-{CONTAINER}.scope/container", "container", id="Podman"
        ),
        pytest.param(0, "kubepods.slice/kubepods-burstable.slice/x.scope", "container", id="Kubernetes"),
        pytest.param(0, "", "not the group of a systemd unit", id="root of a cgroup namespace"),
    ],
)
def test_jobs_stay_where_another_program_put_joblens(
    tmp_path: Path, proc: str, uid: int, own: str, reason: str
) -> None:
    assert reason in scope_terms(machine(tmp_path, own), uid, proc).refusal


OWN = f"{HER_MANAGER}/app.slice/work.service"


@pytest.mark.parametrize(
    ("file", "text", "limit"),
    [
        ("memory.max", "104857600\n", "memory.max 104857600"),
        ("memory.high", "104857600\n", "memory.high 104857600"),
        ("memory.swap.max", "0\n", "memory.swap.max 0"),
        ("cpu.max", "50000 100000\n", "cpu.max 50000 100000"),
        ("io.max", "8:0 rbps=1048576 wbps=max riops=max wiops=max\n", "io.max 8:0 rbps=1048576"),
        ("cpuset.cpus", "0-1\n", "cpuset.cpus 0-1"),
        ("cpuset.mems", "0\n", "cpuset.mems 0"),
    ],
)
def test_no_job_escapes_a_limit_of_its_unit(
    tmp_path: Path, proc: str, file: str, text: str, limit: str
) -> None:
    refusal = scope_terms(limited(tmp_path, OWN, {f"{OWN}/{file}": text}), ALICE, proc).refusal
    assert refusal.startswith(f"work.service has a limit ({limit}")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("memory.max", "max\n"),
        ("memory.max", f"{1 << 60}\n"),
        ("cpu.max", "max 100000\n"),
        ("io.max", ""),
        ("cpuset.cpus", "\n"),
    ],
)
def test_a_file_that_limits_nothing_keeps_no_job(tmp_path: Path, proc: str, file: str, text: str) -> None:
    assert scope_terms(limited(tmp_path, OWN, {f"{OWN}/{file}": text}), ALICE, proc).refusal == ""


def test_limits_of_the_slice_hold_in_the_scope_too(tmp_path: Path, proc: str) -> None:
    limits = {f"{HER_MANAGER}/app.slice/memory.max": "1048576\n", f"{HER_SLICE}/cpu.max": "1000 100000\n"}
    assert scope_terms(limited(tmp_path, OWN, limits), ALICE, proc) == ScopeTerms(slice="app.slice")


def test_root_leaves_no_limit_of_a_users_manager_behind(tmp_path: Path, proc: str) -> None:
    layout = limited(tmp_path, OWN, {f"{HER_MANAGER}/memory.high": "1048576\n"})
    assert "user@1000.service has a limit (memory.high" in scope_terms(layout, 0, proc).refusal


def test_a_user_in_a_system_service_escapes_neither_its_limits_nor_those_of_its_slice(
    tmp_path: Path, proc: str
) -> None:
    for limited_group in ("system.slice/her.service", "system.slice"):
        mount = tmp_path / limited_group.replace("/", "-")
        layout = limited(mount, "system.slice/her.service", {f"{limited_group}/cpu.max": "5000 10000\n"})
        refusal = scope_terms(layout, ALICE, proc, linger_folder(tmp_path, ALICE)).refusal
        assert refusal.startswith(f"{Path(limited_group).name} has a limit (cpu.max")


def test_the_scope_takes_over_the_smallest_limit_on_tasks_that_it_leaves(tmp_path: Path, proc: str) -> None:
    limits = {
        f"{OWN}/pids.max": "1387\n",
        f"{HER_MANAGER}/app.slice/pids.max": "900\n",
        f"{HER_MANAGER}/pids.max": "max\n",
        f"{HER_SLICE}/pids.max": "12\n",
    }
    layout = limited(tmp_path, OWN, limits)
    assert scope_terms(layout, ALICE, proc) == ScopeTerms(slice="app.slice", tasks_max=1387)
    assert scope_terms(layout, 0, proc) == ScopeTerms(slice="user-1000.slice", tasks_max=900)


def test_a_process_that_systemd_knows_by_another_number_gets_no_scope(tmp_path: Path, proc: str) -> None:
    layout = machine(tmp_path, OWN)
    Path(proc, "1", "comm").write_text("bwrap\n")
    assert "pid namespace" in scope_terms(layout, ALICE, proc).refusal
    Path(proc, "1", "comm").write_text("systemd\n")
    Path(proc, "self").unlink()
    Path(proc, "self").symlink_to("4711")
    assert "pid namespace" in scope_terms(layout, ALICE, proc).refusal


@pytest.mark.parametrize(("namespace", "is_allowed"), [("4026531836", True), ("4026532211", False)])
def test_where_proc_hides_the_processes_of_others_the_namespace_decides(
    tmp_path: Path, proc: str, namespace: str, is_allowed: bool
) -> None:
    Path(proc, "1", "comm").unlink()
    links = Path(proc, str(os.getpid()), "ns")
    links.mkdir(parents=True)
    (links / "pid").symlink_to(f"pid:[{namespace}]")
    assert (scope_terms(machine(tmp_path, OWN), ALICE, proc).refusal == "") is is_allowed


def test_a_machine_without_pure_v2_has_no_scopes() -> None:
    assert "no pure cgroup v2" in scope_terms(CgroupLayout(kind="cgroup-hybrid")).refusal
