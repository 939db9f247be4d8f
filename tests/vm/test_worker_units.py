"""The worker units of contrib/systemd, of a user and of the machine, with a queue in the user's store."""

from collections.abc import Iterator

import pytest

from tests.vm.machine import Machine
from tests.vm.situations import ALICE, manager_command
from tests.vm.test_units import BURN, STORE, USER_UNITS, Service, check_totals, install

SYSTEM_UNITS = "/etc/systemd/system"
STATE = f"/home/{ALICE}/.local/state/joblens"
QUEUE = ("--queue", "default")
BEGUN = f"{STATE}/begun"  # a file: asking joblens takes seconds on an emulated machine
EXITS_WITH_4 = ("sh", "-c", f"touch {BEGUN}; sleep 15; exit 4")


@pytest.fixture(params=["user", "machine"])
def worker(request: pytest.FixtureRequest, machine: Machine, nothing_left_behind: None) -> Iterator[Service]:
    if request.param == "user":
        machine.run("root", manager_command(is_running=True))
        install(machine, ALICE, USER_UNITS, "joblens-worker.service")
        service = Service(machine, ALICE, "systemctl --user", "joblens-worker.service")
        remove = f"rm -rf {USER_UNITS}"
    else:
        install(machine, "root", SYSTEM_UNITS, "joblens-worker@.service")
        service = Service(machine, "root", "systemctl", "joblens-worker@alice.service")
        remove = f"rm {SYSTEM_UNITS}/joblens-worker@.service; systemctl daemon-reload"
    service.reload_manager()
    machine.run("root", "journalctl --rotate; journalctl --vacuum-time=1s")
    service.systemctl("start")
    service.wait_for_line("jobs at a time")  # submit would start a worker of its own before
    yield service
    service.systemctl("stop")
    # The queue's broker is a folder that stays with the store.
    remove = f"{remove}; rm -rf {STORE} {STATE}"
    machine.run("root", f"{manager_command(is_running=False)}; {remove}")


def test_a_worker_unit_measures_queued_jobs_in_groups_of_its_own(worker: Service) -> None:
    worker.joblens("submit", *QUEUE, "--name", "burns", "--", "python3", "-c", BURN)
    check_totals(worker)
    found = worker.record("burns")
    assert found["accounting"]["mode"] == "cgroup-v2", found
    assert f"-{worker.main_pid()}-" in found["worker"], found


def test_restarting_a_worker_unit_lets_its_job_finish(worker: Service) -> None:
    before = worker.main_pid()
    worker.joblens("submit", *QUEUE, "--name", "sleeps", "--", *EXITS_WITH_4)
    worker.wait_for_file(BEGUN)
    worker.systemctl("restart")
    found = worker.record("sleeps")
    assert (found["reason"], found["exit_code"]) == ("exited", 4), found
    assert not any(finding["code"] == "taken-up-again" for finding in found["findings"]), found
    assert worker.main_pid() not in (0, before)


def test_a_job_of_a_killed_worker_runs_again_after_the_restart(worker: Service) -> None:
    before = worker.main_pid()
    worker.joblens("submit", *QUEUE, "--name", "sleeps", "--", *EXITS_WITH_4)
    worker.wait_for_file(BEGUN)
    worker.systemctl("kill", "--signal=KILL", "--kill-who=main")
    worker.joblens("wait", "sleeps", code=4)
    assert any(finding["code"] == "taken-up-again" for finding in worker.record("sleeps")["findings"])
    assert worker.main_pid() not in (0, before)
