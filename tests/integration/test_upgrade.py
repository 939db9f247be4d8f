"""Another version of joblens is installed while jobs run: nothing is lost, and no process mixes the two."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.conftest import REPOSITORY, python_path, wait_until
from tests.integration.background_jobs import BackgroundCli, open_cli

MOVED = "last_words_of_jobs"


class Installed:
    """A copy of the package that commands of this open_cli are started from."""

    def __init__(self, one: BackgroundCli) -> None:
        self._cli = one
        self._schema = 0
        self._package = one.folder / "site" / "joblens"
        shutil.copytree(
            REPOSITORY / "src" / "joblens", self._package, ignore=shutil.ignore_patterns("__pycache__")
        )
        one.extra_env = {"PYTHONPATH": python_path(self._package.parent), "JOBLENS_SUPERVISOR_IDLE": "2s"}

    def upgrade(self) -> None:
        """To version 99, which moved a module and changed the schema. The package is gone for a moment."""
        new = self._cli.folder / "new"
        self._package.rename(new)
        first = new / "__init__.py"
        lines = first.read_text().splitlines()
        lines = ['__version__ = "99.0"' if line.startswith("__version__ =") else line for line in lines]
        first.unlink()
        first.write_text("\n".join(lines) + "\n")
        (new / "views" / "jobs" / "summary.py").rename(new / "views" / f"{MOVED}.py")
        for path in new.rglob("*.py"):
            text = path.read_text()
            if "joblens.views.jobs.summary " in text:
                path.write_text(text.replace("joblens.views.jobs.summary ", f"joblens.views.{MOVED} "))
        sqlite = new / "stores" / "sqlite"
        opening = sqlite / "opening.py"
        text = opening.read_text()
        self._schema = int(text.partition("\nSCHEMA_VERSION = ")[2].partition("\n")[0])
        named = "SCHEMA_VERSION = {}\n"
        opening.write_text(text.replace(named.format(self._schema), named.format(self._schema + 1)))
        migration = sqlite / "migrations" / f"{self._schema + 1:04}_new.sql"
        migration.write_text("ALTER TABLE job ADD COLUMN of_version_99 TEXT;\n")
        wait_until(lambda: "restarting in place" in self._cli.supervisor_log(), what="the restart to begin")
        new.rename(self._package)

    def downgrade(self) -> None:
        """For those who look into the store with the version that is tested."""
        wait_until(lambda: self._cli.supervisor_pid() is None, what="the supervisor's end")
        connection = apsw.Connection(str(self._cli.store))
        # The supervisor gives up its lock before it exits: its last checkpoint may still hold the database.
        connection.set_busy_timeout(20_000)
        assert connection.pragma("user_version") == self._schema + 1
        connection.pragma("user_version", self._schema)
        connection.close()

    def wait_for_restart(self) -> None:
        wait_until(lambda: "adopted" in self._cli.supervisor_log(), what="the jobs to be adopted", timeout=60)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[BackgroundCli]:
    with open_cli("auto", tmp_path) as found:
        yield found


def test_a_supervisor_whose_joblens_is_replaced_restarts_in_place_and_adopts_its_jobs(
    one: BackgroundCli,
) -> None:
    installed = Installed(one)
    go = one.folder / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.02; done; echo gone >&2; exit 3"
    uuids = [one.submit("--interval", "100ms", "--shell", wait) for _ in range(2)]
    for uuid in uuids:
        one.running(uuid)
    pid = one.wait_for_supervisor()
    assert "99.0" not in one.call("--version").stdout
    installed.upgrade()
    installed.wait_for_restart()
    assert one.supervisor_pid() == pid
    assert "99.0" in one.call("--version").stdout
    one.call("submit", "--wait", "--", "true", code=0)
    go.touch()
    for uuid in uuids:
        one.call("wait", uuid, code=3)
    installed.downgrade()
    for uuid in uuids:
        record = one.ended(uuid)
        assert record.outcome is not None
        assert record.attempt is not None
        assert (record.outcome.exit_code, record.outcome.error) == (3, "exit code 3: gone")
        assert record.attempt.owner.pid == pid
    assert "Traceback" not in one.supervisor_log()


def test_sigusr2_restarts_a_supervisor_without_ending_its_jobs(
    one: BackgroundCli, processes_to_end: list[subprocess.Popen[bytes]]
) -> None:
    command = [sys.executable, "-P", "-m", "joblens", "supervisor", "--stay"]
    text = one.folder / "stay.log"
    with text.open("wb") as log:
        service = subprocess.Popen(command, env=one.env(), cwd=one.folder, stderr=log)
    processes_to_end.append(service)
    wait_until(lambda: one.supervisor_pid() == service.pid, what="the supervisor")
    uuid = one.submit("--", "sleep", "6")
    one.running(uuid)
    service.send_signal(signal.SIGUSR2)
    wait_until(lambda: "adopted" in text.read_text(), what="the job to be adopted", timeout=60)
    assert service.poll() is None
    assert one.ended(uuid).status == "success"
    service.send_signal(signal.SIGTERM)  # it listens again
    assert service.wait(20) == 0


def test_a_supervisor_that_is_asked_to_end_during_its_restart_ends_its_jobs_too(
    one: BackgroundCli, processes_to_end: list[subprocess.Popen[bytes]]
) -> None:
    command = [sys.executable, "-P", "-m", "joblens", "supervisor", "--stay"]
    text = one.folder / "stay.log"
    with text.open("wb") as log:
        service = subprocess.Popen(command, env=one.env(), cwd=one.folder, stderr=log)
    processes_to_end.append(service)
    wait_until(lambda: one.supervisor_pid() == service.pid, what="the supervisor")
    uuid = one.submit("--", "sleep", "60")
    one.running(uuid)
    service.send_signal(signal.SIGUSR2)
    wait_until(lambda: "restarting in place" in text.read_text(), what="the restart to begin")
    service.send_signal(signal.SIGTERM)
    assert service.wait(40) == 0
    assert one.ended(uuid).status == "cancelled"
    printed = text.read_text()
    assert "restarting in place" in printed
    assert "Traceback" not in printed


@pytest.mark.needs("celery")
def test_a_worker_that_is_asked_to_end_after_an_upgrade_finishes_its_job_and_ends(
    one: BackgroundCli, processes_to_end: list[subprocess.Popen[bytes]]
) -> None:
    Installed(one)
    text = one.folder / "worker.log"
    with text.open("wb") as log:
        command = [sys.executable, "-P", "-m", "joblens", "worker"]
        worker = subprocess.Popen(command, env=one.env(), cwd=one.folder, stdout=log, stderr=log)
    processes_to_end.append(worker)
    wait_until(lambda: "jobs at a time" in text.read_text(), what="the worker", timeout=40)
    uuid = one.submit("--queue", "default", "--", "sleep", "4")
    one.running(uuid)
    (one.folder / "site" / "joblens" / "__init__.py").touch()
    wait_until(lambda: "restarting in place when" in text.read_text(), what="the upgrade to be noticed")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(40) == 0
    assert one.ended(uuid).status == "success"
    shutil.rmtree(one.spool / "broker")  # stays for the next worker
