"""The units of contrib/systemd: restart, reload, a killed main process, another version of joblens."""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vm.machine import Finished, Machine
from tests.vm.situations import ALICE, manager_command

UNITS = Path(__file__).resolve().parents[2] / "contrib" / "systemd"
USER_UNITS = f"/home/{ALICE}/.config/systemd/user"
STORE = f"/home/{ALICE}/.local/share/joblens"
BURN_S = 6.0
BURN = f"import time\nwhile time.process_time() < {BURN_S}: pass\nprint(time.process_time())"


class Service:
    """A supervisor unit and the joblens of alice. `systemctl`: for the manager that has the unit."""

    def __init__(self, machine: Machine, user: str, systemctl: str, unit: str) -> None:
        self.machine = machine
        self.user = user
        self._systemctl = systemctl
        self.unit = unit

    def systemctl(self, *arguments: str) -> Finished:
        done = self.machine.run(self.user, f"{self._systemctl} {shlex.join([*arguments, self.unit])}")
        assert done.code == 0, str(done)
        return done

    def reload_manager(self) -> None:
        assert self.machine.run(self.user, f"{self._systemctl} daemon-reload").code == 0

    def main_pid(self) -> int:
        return int(self.systemctl("show", "-P", "MainPID").stdout)

    def joblens(self, *arguments: str, code: int | None = 0) -> Finished:
        done = self.machine.run(ALICE, f"joblens {shlex.join(arguments)}")
        assert code is None or done.code == code, str(done)
        return done

    def record(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.joblens("show", name, "--json").json
        return found

    def wait_for_supervisor(self) -> None:
        """It has the lock once a short job has run."""
        self.joblens("submit", "--wait", "--name", "ready", "--", "true")

    def wait_for_file(self, path: str) -> None:
        script = f"for _ in $(seq 300); do [ -e {path} ] && exit 0; sleep 0.2; done; exit 1"
        assert self.machine.run("root", script).code == 0, f"no file {path}"

    def wait_for_line(self, text: str) -> None:
        journal = f"journalctl --no-pager -o cat _UID=$(id -u {ALICE})"
        script = (
            f"for _ in $(seq 60); do {journal} | grep -q {shlex.quote(text)} && exit 0; sleep 1; done; exit 1"
        )
        assert self.machine.run("root", script).code == 0, f"no line with {text!r} in the journal"


def install(machine: Machine, user: str, folder: str, unit: str) -> None:
    text = (UNITS / unit).read_bytes()
    done = machine.run(user, f"mkdir -p {folder}; cat > {folder}/{unit}", stdin=text)
    assert done.code == 0, str(done)


@pytest.fixture
def alices_service(machine: Machine, nothing_left_behind: None) -> Iterator[Service]:
    """The user unit, started at the boot of the user manager of a lingering user."""
    machine.run("root", manager_command(is_running=False))
    machine.run("root", "journalctl --rotate; journalctl --vacuum-time=1s")
    install(machine, ALICE, USER_UNITS, "joblens-supervisor.service")
    enable = (
        "mkdir -p default.target.wants; ln -sf ../joblens-supervisor.service default.target.wants/; "
        "systemd-analyze --user verify ./joblens-supervisor.service"
    )
    done = machine.run(ALICE, f"cd {USER_UNITS} && {enable}")
    assert (done.code, done.stdout + done.stderr) == (0, ""), str(done)
    restart = f"{manager_command(is_running=False)}; {manager_command(is_running=True)}"
    machine.run("root", restart)  # the logins above started it before the unit was there
    service = Service(machine, ALICE, "systemctl --user", "joblens-supervisor.service")
    service.wait_for_supervisor()
    yield service
    machine.run(ALICE, "systemctl --user disable --now joblens-supervisor")
    machine.run("root", f"{manager_command(is_running=False)}; rm -rf {USER_UNITS} {STORE}")


@pytest.fixture
def roots_service(machine: Machine, nothing_left_behind: None) -> Iterator[Service]:
    """The unit of the machine's manager, for alice."""
    install(machine, "root", "/etc/systemd/system", "joblens-supervisor@.service")
    machine.run("root", "systemctl daemon-reload; systemctl start joblens-supervisor@alice")
    service = Service(machine, "root", "systemctl", "joblens-supervisor@alice.service")
    service.wait_for_supervisor()
    yield service
    remove = "rm /etc/systemd/system/joblens-supervisor@.service; systemctl daemon-reload"
    machine.run("root", f"systemctl stop joblens-supervisor@alice; {remove}; rm -rf {STORE}")


def check_reload(service: Service, disturb: Callable[[], object]) -> None:
    """The main process executes itself again, and its jobs run on with exact totals."""
    before = service.main_pid()
    service.joblens("submit", "--name", "burns", "--", "python3", "-c", BURN)
    service.joblens("submit", "--name", "sleeps", "--", "sh", "-c", "sleep 20; exit 4")
    disturb()
    service.wait_for_line("adopted")
    assert service.main_pid() == before
    service.joblens("wait", "sleeps", code=4)
    assert service.record("sleeps")["reason"] == "exited"
    check_totals(service)
    service.wait_for_supervisor()


def check_totals(service: Service) -> None:
    service.joblens("wait", "burns")
    found = service.record("burns")
    reported_s = float(service.joblens("logs", "burns").stdout)
    assert found["status"] == "success", found
    counted_s = found["resource_usage"]["cpu_total_seconds"]
    assert counted_s == pytest.approx(reported_s, rel=0.05) or "cpu" in str(
        found["accounting"]["lower_bounds"]
    ), found


def test_a_user_unit_reloads_without_ending_jobs(alices_service: Service) -> None:
    check_reload(alices_service, lambda: alices_service.systemctl("reload"))


def test_a_unit_of_the_machine_reloads_without_ending_jobs(roots_service: Service) -> None:
    check_reload(roots_service, lambda: roots_service.systemctl("reload"))


def test_a_user_unit_takes_up_another_version_by_itself(alices_service: Service) -> None:
    """The first file of the package is written again, as every installer does."""
    python = "$(dirname $(readlink -f $(command -v joblens)))/python"
    own = f"{python} -P -c 'import joblens; print(joblens.__file__)'"
    replace = f'file=$({own}); cp -p "$file" "$file.new" && mv "$file.new" "$file"'

    def upgrade() -> None:
        assert alices_service.machine.run("root", replace).code == 0

    check_reload(alices_service, upgrade)


def test_jobs_of_a_user_unit_outlive_a_killed_supervisor_which_adopts_them(alices_service: Service) -> None:
    service = alices_service
    before = service.main_pid()
    service.joblens("submit", "--name", "burns", "--", "python3", "-c", BURN)
    service.joblens("submit", "--name", "sleeps", "--", "sh", "-c", "sleep 20; exit 4")
    service.systemctl("kill", "--signal=KILL", "--kill-who=main")
    service.wait_for_line("adopted")
    assert service.main_pid() not in (0, before)
    service.joblens("wait", "sleeps", code=4)
    check_totals(service)


def test_jobs_of_a_unit_of_the_machine_outlive_a_killed_supervisor(roots_service: Service) -> None:
    """Before systemd 254 it starts again only when they have ended: records are complete all the same."""
    service = roots_service
    service.joblens("submit", "--name", "sleeps", "--", "sh", "-c", "sleep 12; exit 4")
    service.systemctl("kill", "--signal=KILL", "--kill-who=main")
    service.joblens("wait", "sleeps", code=4)
    assert service.record("sleeps")["reason"] == "exited"
    wait = f"for _ in $(seq 60); do systemctl is-active -q {service.unit} && exit 0; sleep 1; done; exit 1"
    assert service.machine.run("root", wait).code == 0


def test_a_job_that_runs_out_of_memory_does_not_end_the_service(roots_service: Service) -> None:
    before = roots_service.main_pid()
    eat = "b = bytearray(100 << 20); b[::4096] = b'x' * len(b[::4096])"
    roots_service.joblens("submit", "--wait", "--memory", "20m", "--", "python3", "-c", eat, code=137)
    assert roots_service.main_pid() == before


def test_stopping_a_unit_ends_its_jobs_and_names_that(alices_service: Service) -> None:
    alices_service.joblens("submit", "--name", "stopped", "--", "sleep", "600")
    alices_service.systemctl("restart")
    found = alices_service.record("stopped")
    assert (found["status"], found["error"]) == ("cancelled", "cancelled: its supervisor was stopped"), found
