"""Advice by launch situation. tests/vm types each of these commands on a machine with systemd."""

from pathlib import Path
from typing import Any

import pytest

from joblens.agent.doctor.accounting import Caller, group_advice, io_advice, read_caller
from joblens.probes.cgroup.layout import parse_layout

LOGIN = "/user.slice/user-1000.slice/session-3.scope"
APP = "/user.slice/user-1000.slice/user@1000.service/app.slice"
V2 = "cgroup-v2"
MOUNT = "30 23 0:26 / /sys/fs/cgroup {} - cgroup2 cgroup2 rw\n"


def alice(**more: Any) -> Caller:
    facts: dict[str, Any] = {"uid": 1000, "user": "alice", "own_path": LOGIN}
    return Caller(**facts | more)


def root(**more: Any) -> Caller:
    facts: dict[str, Any] = {"uid": 0, "user": "root", "own_path": "/"}
    return Caller(**facts | more)


def test_a_login_without_a_user_manager_needs_one() -> None:
    assert "sudo loginctl enable-linger alice" in group_advice(alice(has_manager=False), V2).split("\n")


def test_a_manager_that_does_not_answer_has_to_be_restarted() -> None:
    assert "sudo systemctl restart user@1000.service" in group_advice(alice(), V2).split("\n")


def test_sudo_without_a_user_manager_needs_one() -> None:
    caller = alice(own_path="/user.slice/user-0.slice/session-3.scope", has_manager=False)
    assert "sudo loginctl enable-linger alice" in group_advice(caller, V2).split("\n")


def test_sudo_beside_a_login_needs_a_manager_that_stays() -> None:
    caller = alice(own_path="/user.slice/user-0.slice/session-3.scope", needs_linger=True)
    assert "sudo loginctl enable-linger alice" in group_advice(caller, V2).split("\n")


def test_a_service_is_edited_where_its_manager_has_it() -> None:
    system = group_advice(alice(own_path="/system.slice/nightly.service"), V2)
    assert "sudo systemctl edit nightly.service" in system.split("\n")
    own = group_advice(alice(own_path=f"{APP}/nightly.service"), V2)
    assert "systemctl --user edit nightly.service" in own.split("\n")


def test_a_unit_of_systemd_run_is_started_with_another_option() -> None:
    scope = alice(own_path=f"{APP}/run-r12.scope", is_transient=True, may_have_scope=False)
    assert "systemd-run --user --scope -p Delegate=yes" in group_advice(scope, V2)
    service = alice(own_path=f"{APP}/run-u12.service", is_transient=True, may_have_scope=False)
    assert "systemd-run --user -p Delegate=yes" in group_advice(service, V2)
    of_system = alice(own_path="/system.slice/run-u12.service", is_transient=True)
    assert "sudo systemd-run -p Delegate=yes" in group_advice(of_system, V2)


def test_a_wrong_setting_is_corrected_not_the_machine() -> None:
    caller = alice(own_path="/user.slice/user-1000.slice/session-3.scope", cgroup_parent="/no/such")
    for kind in (V2, "cgroup-hybrid"):
        assert "limits.cgroup_parent, or remove that setting" in group_advice(caller, kind)
    assert "cgroup.subtree_control of /no/such" in io_advice(caller, V2)


def test_a_delegated_unit_holds_other_processes() -> None:
    advice = group_advice(alice(own_path="/system.slice/nightly.service", is_delegated=True), V2)
    assert "exec joblens" in advice


def test_a_container_needs_a_group_that_it_may_write_and_no_process_in_it() -> None:
    read_only = group_advice(root(container="podman", is_read_only=True), V2).split("\n")
    assert read_only[1:] == ["podman run --security-opt unmask=/sys/fs/cgroup IMAGE …"]
    assert len(group_advice(root(container="kubernetes", is_read_only=True), V2).split("\n")) == 3
    _, *commands = group_advice(root(container="docker"), V2).split("\n")
    assert commands[-1] == "echo '+cpu +io +memory +pids' > cgroup.subtree_control"
    assert "as root" in group_advice(alice(container="docker"), V2)


def test_without_systemd_root_makes_the_group_for_this_shell() -> None:
    advice = group_advice(alice(has_systemd=False, own_path="/", shell_pid=4711), V2)
    assert "echo 4711 > /sys/fs/cgroup/alice/shell/cgroup.procs" in advice
    assert "chown -R alice /sys/fs/cgroup/alice" in advice


def test_in_a_slurm_step_the_administrators_are_asked() -> None:
    step = "/system.slice/slurmstepd.scope/job_42/step_batch/user/task_0"
    assert "administrators" in group_advice(alice(own_path=step), V2)


@pytest.mark.parametrize("kind", ["cgroup-hybrid", "cgroup-v1"])
def test_other_cgroups_are_delegated_by_a_setting(kind: str) -> None:
    assert "limits.cgroup_parent" in group_advice(alice(), kind)


def test_the_io_controller_comes_by_a_drop_in() -> None:
    _, *commands = io_advice(alice(), V2).split("\n")
    assert "printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' |" in commands
    assert "  sudo tee /etc/systemd/system/user@.service.d/delegate.conf" in commands
    assert commands[-2:] == ["sudo systemctl daemon-reload", "systemctl --user daemon-reexec"]
    assert all(len(command) + 6 <= 80 for command in commands)


def test_root_over_ssh_gets_the_io_controller_without_a_user_manager() -> None:
    commands = io_advice(root(own_path="/user.slice/user-0.slice/session-1.scope"), V2).split("\n")
    assert commands[-1] == "sudo systemctl daemon-reload"


def test_a_service_gets_the_io_controller_with_all_others() -> None:
    caller = alice(own_path="/system.slice/nightly.service")
    assert io_advice(caller, V2) == group_advice(caller, V2)


def test_the_caller_is_read_from_the_files_that_systemd_and_engines_leave(tmp_path: Path) -> None:
    layout = parse_layout(f"0::{APP}/run-r12.scope\n", MOUNT.format("ro"))
    caller = read_caller(layout, {}, str(tmp_path))
    assert not caller.has_systemd
    assert not caller.has_manager
    assert not caller.is_transient
    assert caller.is_read_only
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (tmp_path / "run/systemd/transient").mkdir()
    (tmp_path / "run/systemd/transient/run-r12.scope").touch()
    (tmp_path / "run/.containerenv").touch()
    caller = read_caller(layout, {}, str(tmp_path))
    assert caller.has_systemd
    assert caller.is_transient
    assert caller.container == "podman"
    assert caller.unit == "run-r12.scope"
