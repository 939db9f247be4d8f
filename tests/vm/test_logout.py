"""Background jobs and logging out: which jobs end, how their records name it, and what submit warns of."""

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.vm.machine import Finished, Machine
from tests.vm.situations import ALICE, MANAGER_OF_ALICE, manager_command

STORE = f"/home/{ALICE}/logout.db"
SCOPE = "systemd-run --quiet --user --scope --"
UNTIL_IT_RUNS = "; for _ in $(seq 60); do joblens list | grep -q running && break; sleep 1; done"
KILL_PROCESSES = "/etc/systemd/logind.conf.d/joblens-test.conf"


@pytest.fixture
def logins(machine: Machine, nothing_left_behind: None) -> Iterator[Machine]:
    """Nobody lingers and nobody is logged in; afterwards neither."""
    machine.run("root", manager_command(is_running=False))
    machine.run(ALICE, f"rm -rf {STORE}*")
    yield machine
    machine.run("root", f"rm -f {KILL_PROCESSES}; systemctl restart systemd-logind")
    machine.run("root", manager_command(is_running=False))


def joblens(machine: Machine, *arguments: str, before: str = "", after: str = "") -> Finished:
    """Run a joblens command of alice in a login session of its own. `before`: what starts it. `after`: the
    rest of the session."""
    settings = f"JOBLENS_STORE={STORE} JOBLENS_SUPERVISOR_IDLE=1s JOBLENS_QUEUE_IDLE=1s"
    done = machine.run(ALICE, f"export {settings}; {before} joblens {shlex.join(arguments)}{after}")
    assert done.code == 0, str(done)
    return done


def record(machine: Machine, name: str) -> dict[str, Any]:
    found: dict[str, Any] = joblens(machine, "show", name, "--json").json
    return found


def wait_for_manager_to_stop(machine: Machine) -> None:
    is_active = f"systemctl is-active -q {MANAGER_OF_ALICE}"
    wait = f"for _ in $(seq 120); do {is_active} || exit 0; sleep 0.5; done; exit 1"
    assert machine.run("root", wait).code == 0, "the user manager keeps running without a session"


def kill_user_processes(machine: Machine) -> None:
    text = "[Login]\\nKillUserProcesses=yes\\n"
    script = f"mkdir -p /etc/systemd/logind.conf.d; printf '{text}' > {KILL_PROCESSES}"
    assert machine.run("root", f"{script}; systemctl restart systemd-logind").code == 0


def test_a_job_of_an_ssh_session_outlives_it_without_a_warning(logins: Machine) -> None:
    done = joblens(logins, "submit", "--name", "ssh", "--", "sleep", "25")
    assert "logging out" not in done.stderr
    joblens(logins, "wait", "ssh")
    assert record(logins, "ssh")["status"] == "success"


def test_a_job_of_the_user_manager_ends_with_the_last_session_and_says_so(logins: Machine) -> None:
    done = joblens(logins, "submit", "--json", "--name", "desktop", "--", "sleep", "600", before=SCOPE)
    assert "warning: logging out stops this job" in done.stderr
    assert "enable-linger" in json.loads(done.stdout)["warnings"][0]
    wait_for_manager_to_stop(logins)
    found = record(logins, "desktop")
    assert (found["status"], found["reason"]) == ("cancelled", "logout"), found
    assert found["error"] == "the login session ended, and systemd stopped its processes"
    assert "loginctl enable-linger" in found["findings"][0]["advice"]


def test_a_lingering_user_keeps_such_a_job(logins: Machine) -> None:
    logins.run("root", f"loginctl enable-linger {ALICE}")
    done = joblens(logins, "submit", "--name", "lingers", "--", "sleep", "25", before=SCOPE)
    assert "logging out" not in done.stderr
    joblens(logins, "wait", "lingers")
    assert record(logins, "lingers")["status"] == "success"


def test_logind_that_kills_processes_is_warned_of_and_named(logins: Machine) -> None:
    kill_user_processes(logins)
    done = joblens(logins, "submit", "--name", "killed", "--", "sleep", "600", after=UNTIL_IT_RUNS)
    assert "KillUserProcesses=yes" in done.stderr
    wait_for_manager_to_stop(logins)
    found = record(logins, "killed")
    assert (found["status"], found["reason"]) == ("cancelled", "logout"), found


def test_a_lingering_user_keeps_jobs_though_logind_kills_processes(logins: Machine) -> None:
    kill_user_processes(logins)
    logins.run("root", f"loginctl enable-linger {ALICE}")
    done = joblens(logins, "submit", "--name", "moved", "--", "sleep", "25")
    assert "logging out" not in done.stderr
    joblens(logins, "wait", "moved")
    assert record(logins, "moved")["status"] == "success"


def test_a_job_of_a_queue_goes_back_at_logout_and_runs_again(logins: Machine) -> None:
    joblens(logins, "submit", "--queue", "q", "--name", "queued", "--", "sleep", "20", before=SCOPE)
    wait_for_manager_to_stop(logins)
    assert record(logins, "queued")["status"] == "queued"
    joblens(logins, "wait", "queued")
    found = record(logins, "queued")
    assert found["status"] == "success", found
    assert any(finding["code"] == "taken-up-again" for finding in found["findings"]), found
