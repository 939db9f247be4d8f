"""Which background processes a logout ends, and how records name a logout or a shutdown."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from joblens.agent.cgroups import login_session
from joblens.agent.cgroups.login_session import (
    LoginRules,
    SystemBus,
    ends_at_logout,
    logout_warning,
    name_stop,
    read_login_rules,
    stop_reason,
    system_unit,
    unit_of_path,
)
from joblens.model.jobs.job import LOGOUT, SHUTDOWN, Code, Outcome, Record, Status
from tests.builders.records import a_job, an_attempt

SESSION = "session-3.scope"
MANAGER = "user@1000.service"
SERVICE = "joblens-supervisor@alice.service"
LINGERS = LoginRules(is_lingering=True, kills_processes=False)
DEFAULT = LoginRules(is_lingering=False, kills_processes=False)
KILLS = LoginRules(is_lingering=False, kills_processes=True)


class FakeBus(SystemBus):
    def __init__(
        self, units: dict[str, str] | None = None, machine: str | None = "running", **login: Any
    ) -> None:
        super().__init__("/nonexistent")
        self.units = units or {}
        self.machine = machine
        self.properties = login

    def unit_state(self, unit: str) -> str | None:
        return self.units.get(unit, "active") if self.machine else None

    def machine_state(self) -> str | None:
        return self.machine

    def login(self, name: str) -> Any:
        return self.properties.get(name)


@pytest.fixture
def not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def proc_with(folder: Path, path: str, pid: int = 7) -> str:
    (folder / str(pid)).mkdir(parents=True)
    (folder / str(pid) / "cgroup").write_text(f"0::{path}\n")
    return str(folder)


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/user.slice/user-1000.slice/session-3.scope", SESSION),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope/leaf", MANAGER),
        ("/system.slice/joblens-supervisor@alice.service/joblens-self", SERVICE),
        ("/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice", MANAGER),
        ("/", ""),
    ],
)
def test_a_path_names_the_unit_of_the_machine(path: str, unit: str) -> None:
    assert unit_of_path(path) == unit


def test_a_hybrid_machine_has_the_unit_in_the_hierarchy_of_systemd(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(
        "4:memory:/other.service\n1:name=systemd:/user.slice/user-1000.slice/session-3.scope\n0::/\n"
    )
    assert system_unit(7, str(tmp_path)) == SESSION
    assert system_unit(8, str(tmp_path)) == ""


@pytest.mark.parametrize(
    ("unit", "rules", "ends"),
    [
        (SESSION, DEFAULT, False),
        (SESSION, KILLS, True),
        (SESSION, LINGERS, False),
        (MANAGER, DEFAULT, True),
        (MANAGER, LINGERS, False),
        (MANAGER, LoginRules(is_lingering=True, kills_processes=True), False),
        (SERVICE, KILLS, False),
        ("", KILLS, False),
    ],
)
def test_the_unit_of_a_process_decides_whether_logout_ends_it(
    unit: str, rules: LoginRules, *, ends: bool
) -> None:
    assert ends_at_logout(unit, rules) is ends


@pytest.mark.parametrize(
    ("login", "kills"),
    [
        ({}, False),
        ({"KillUserProcesses": True}, True),
        ({"KillUserProcesses": True, "KillExcludeUsers": ["alice"]}, False),
        ({"KillUserProcesses": False, "KillOnlyUsers": ["alice"]}, True),
        ({"KillUserProcesses": True, "KillOnlyUsers": ["bob"]}, False),
    ],
)
def test_logind_kills_processes_by_its_lists_and_its_switch(login: dict[str, Any], *, kills: bool) -> None:
    assert read_login_rules("alice", FakeBus(**login)).kills_processes is kills


def test_a_process_of_the_user_manager_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, not_root: None
) -> None:
    monkeypatch.setattr(login_session, "_POLKIT", str(tmp_path / "none"))
    proc = proc_with(tmp_path, "/user.slice/user-1000.slice/user@1000.service/app.slice/tmux.scope")
    text = logout_warning(7, "alice", "this job", FakeBus(), proc)
    assert text == (
        "logging out stops this job; enable lingering to keep it running: sudo loginctl enable-linger alice"
    )


def test_a_session_that_logind_kills_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, not_root: None
) -> None:
    polkit = tmp_path / "polkit.service"
    polkit.touch()
    monkeypatch.setattr(login_session, "_POLKIT", str(polkit))
    proc = proc_with(tmp_path, "/user.slice/user-1000.slice/session-3.scope")
    text = logout_warning(7, "alice", "this run", FakeBus(KillUserProcesses=True), proc)
    assert "stops this run, as logind has KillUserProcesses=yes" in text
    assert text.endswith(": loginctl enable-linger")
    assert logout_warning(7, "alice", "this run", FakeBus(), proc) == ""


def test_root_and_services_are_not_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = proc_with(tmp_path, f"/system.slice/{SERVICE}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert logout_warning(7, "alice", "this job", FakeBus(KillUserProcesses=True), proc) == ""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    proc = proc_with(tmp_path / "root", "/user.slice/user-0.slice/user@0.service/app.slice/x.scope")
    assert logout_warning(7, "root", "this job", FakeBus(), proc) == ""


@pytest.mark.parametrize(
    ("units", "bus", "reason"),
    [
        ({SESSION}, FakeBus(), ""),
        ({SESSION}, FakeBus({SESSION: "deactivating"}), LOGOUT),
        ({SESSION, MANAGER}, FakeBus({MANAGER: "inactive"}), LOGOUT),
        ({SESSION}, FakeBus(machine="stopping"), SHUTDOWN),
        ({SERVICE}, FakeBus({SERVICE: "deactivating"}), ""),
        ({SERVICE}, FakeBus({SERVICE: "deactivating"}, "stopping"), SHUTDOWN),
        ({MANAGER}, FakeBus(machine=None), ""),
        ({""}, FakeBus(machine="stopping"), ""),
    ],
)
def test_the_state_of_systemd_tells_why_it_stops_processes(
    units: set[str], bus: FakeBus, reason: str
) -> None:
    assert stop_reason(units, bus) == reason


def a_record(**outcome: Any) -> Record:
    values = {"ended_at_us": 1, "duration_s": 5.0, **outcome}
    group = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/joblens-1.scope/job"
    attempt = an_attempt(groups={"unified": group})
    ended = Outcome(**values)
    return Record(status=ended.status, job=a_job(), attempt=attempt, outcome=ended)


LOGGED_OUT = FakeBus({MANAGER: "deactivating"})


@pytest.mark.parametrize(
    "ending",
    [
        {
            "status": Status.CANCELLED,
            "reason": "cancelled",
            "error": "cancelled: its supervisor was stopped",
        },
        {"status": Status.FAILED, "reason": "signal", "signal": signal.SIGTERM, "exit_code": 143},
        {"status": Status.FAILED, "reason": "signal", "signal": signal.SIGKILL, "exit_code": 137},
        {"status": Status.FAILED, "reason": "exited", "exit_code": 143},
    ],
)
def test_a_record_names_the_logout_that_ended_its_job(ending: dict[str, Any]) -> None:
    named = name_stop(a_record(**ending), LOGGED_OUT)
    assert named.outcome is not None
    assert (named.status, named.outcome.status, named.outcome.reason) == (
        Status.CANCELLED,
        Status.CANCELLED,
        LOGOUT,
    )
    assert named.outcome.error == "the login session ended, and systemd stopped its processes"
    (finding,) = named.outcome.findings
    assert finding.code == Code.STOPPED_BY_SYSTEMD
    assert "joblens rerun" in finding.advice
    assert "loginctl enable-linger" in finding.advice


def test_a_shutdown_is_named_without_advice_on_lingering() -> None:
    record = a_record(status=Status.CANCELLED, reason="cancelled")
    named = name_stop(record, FakeBus(machine="stopping"))
    assert named.outcome is not None
    assert (named.outcome.reason, named.outcome.error) == (SHUTDOWN, "the machine was shut down")
    assert "linger" not in named.outcome.findings[0].advice


@pytest.mark.parametrize(
    "ending",
    [
        {"status": Status.SUCCESS, "reason": "exited", "exit_code": 0},
        {"status": Status.FAILED, "reason": "exited", "exit_code": 1},
        {"status": Status.FAILED, "reason": "out-of-memory", "exit_code": 137},
        {"status": Status.CANCELLED, "reason": "slurm-cancelled"},
        {"status": Status.TIMEOUT, "reason": "timeout", "exit_code": 124},
    ],
)
def test_jobs_that_ended_otherwise_keep_their_reason(ending: dict[str, Any]) -> None:
    record = a_record(**ending)
    assert name_stop(record, LOGGED_OUT) is record


def test_a_cancelled_job_stays_one_while_systemd_runs_on() -> None:
    record = a_record(status=Status.CANCELLED, reason="cancelled")
    assert name_stop(record, FakeBus()) is record
    assert name_stop(replace(record, outcome=None), LOGGED_OUT).outcome is None


def test_a_supervisor_in_the_same_service_is_warned_of(tmp_path: Path) -> None:
    own = "/user.slice/user-1000.slice/user@1000.service/app.slice/nightly.service"
    proc = proc_with(tmp_path, own)
    (tmp_path / "self").mkdir(exist_ok=True)
    (tmp_path / "self/cgroup").write_text((tmp_path / "7/cgroup").read_text())
    assert logout_warning(7, "alice", "this job", FakeBus(), proc).startswith(
        "the end of nightly.service ends"
    )
    (tmp_path / "self/cgroup").write_text(f"0::{own}/joblens-1000/job\n")  # a job of that supervisor
    assert "nightly.service" not in logout_warning(7, "alice", "this job", FakeBus(), proc)
