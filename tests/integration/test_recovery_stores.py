"""A store that cannot be written costs nobody a job: the exit code stands, and the record comes in later."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Finished, wait_until
from tests.integration.background_jobs import BackgroundCli, open_cli
from tests.integration.run_jobs import JOBLENS, PYTHON, wait_for_file

WAIT = "while not os.path.exists('go'): time.sleep(0.02)"
UNTIL_REPORTED = (*PYTHON, f"import os, time; open('here', 'w').write('x\\n')\n{WAIT}\nos._exit(3)")


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[BackgroundCli]:
    with open_cli("nobody", tmp_path) as found:
        yield found


@pytest.fixture
def one(tmp_path: Path) -> Iterator[BackgroundCli]:
    with open_cli("auto", tmp_path) as found:
        yield found


def run(one: BackgroundCli, *command: str) -> Finished:
    return one.call("run", "--", *command)


def known_codes(one: BackgroundCli) -> list[int | None]:
    return sorted(record["returncode"] for record in one.call("history", "--json", code=0).json)


# ---- read-only ---------------------------------------------------------------------------------------


def test_a_read_only_store_leaves_the_exit_code_alone_and_the_record_comes_in_later(
    nobody: BackgroundCli,
) -> None:
    assert run(nobody, "true").code == 0
    folder = nobody.store.parent
    for path in (*folder.iterdir(), folder):
        path.chmod(0o500 if path.is_dir() else 0o400)
    done = run(nobody, "sh", "-c", "echo still works; exit 3")
    assert (done.code, done.stdout) == (3, "still works\n")
    assert "warning" in done.stderr
    assert str(nobody.store) in done.stderr
    assert "journal" in done.stderr
    assert "Traceback" not in done.stderr
    for path in (folder, *folder.iterdir()):
        path.chmod(0o700 if path.is_dir() else 0o600)
    assert known_codes(nobody) == [0, 3]


def test_submit_to_a_read_only_store_says_that_nothing_was_queued(nobody: BackgroundCli) -> None:
    assert run(nobody, "true").code == 0
    nobody.store.chmod(0o400)
    done = nobody.call("submit", "--", "touch", "ran")
    nobody.store.chmod(0o600)
    assert done.code == 125
    assert "cannot be queued" in done.stderr
    assert not (nobody.folder / "ran").exists()


# ---- damaged, gone -------------------------------------------------------------------------------------


def test_a_damaged_store_leaves_the_exit_code_alone_and_the_record_comes_in_later(one: BackgroundCli) -> None:
    one.store.parent.mkdir()
    one.store.write_bytes(b"this is no database " * 500)
    done = run(one, "sh", "-c", "exit 3")
    assert done.code == 3
    assert "journal" in done.stderr
    assert "Traceback" not in done.stderr
    asked = one.call("history")
    assert asked.code == 125
    assert "damaged" in asked.stderr or "not a database" in asked.stderr
    one.store.unlink()
    assert known_codes(one) == [3]


def test_a_store_that_vanishes_while_the_job_runs_is_made_again(one: BackgroundCli) -> None:
    joblens = one.start("--", *UNTIL_REPORTED, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for_file(one.folder / "here")
    wait_until(lambda: one.status() == "running", what="the job to run")
    shutil.rmtree(one.store.parent)
    (one.folder / "go").touch()
    _, errors = joblens.communicate(timeout=30)
    assert joblens.returncode == 3
    assert b"Traceback" not in errors
    assert known_codes(one) == [3]


def test_a_store_that_vanishes_under_the_supervisor_is_made_again(one: BackgroundCli) -> None:
    one.submit("--", *UNTIL_REPORTED)
    wait_for_file(one.folder / "here")
    shutil.rmtree(one.store.parent)
    (one.folder / "go").touch()
    wait_until(lambda: one.supervisor_pid() is None, what="the supervisor to end")
    assert known_codes(one) == [3]


def test_a_home_that_cannot_be_written_at_all_leaves_the_exit_code_alone(nobody: BackgroundCli) -> None:
    """Neither store nor journal nor output files have a place."""
    nobody.folder.chmod(0o500)
    done = run(nobody, "sh", "-c", "echo works; exit 3")
    nobody.folder.chmod(0o700)
    assert (done.code, done.stdout) == (3, "works\n")
    assert "Traceback" not in done.stderr
    for path in Path("/tmp").glob("joblens-*.journal"):
        if path.owner() == "nobody":
            path.unlink()


# ---- a full disk ---------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> "SmallDisk":
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a small disk can be mounted by root only")
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", folder], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    return SmallDisk(folder, tmp_path)


class SmallDisk:
    """A script that runs where `disk` is a file system of two megabytes, which only it can see."""

    def __init__(self, disk: Path, folder: Path) -> None:
        self.disk = disk
        self._folder = folder

    def run(self, script: str, **env: str) -> Finished:
        start = f"mount -t tmpfs -o size=2m none {self.disk} && mkdir -p {self.disk}/store && {script}"
        fill = "fill() { dd if=/dev/zero of=$disk/ballast bs=4k 2>/dev/null || true; }"
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", f'{fill}; joblens() {{ {" ".join(JOBLENS)} "$@"; }}; {start}'],
            env={**os.environ, "disk": str(self.disk), "JOBLENS_STORE": f"{self.disk}/store/joblens.db",
                 "JOBLENS_SUPERVISOR_IDLE": "300ms", **env},
            cwd=self._folder, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return Finished(done.returncode, done.stdout, done.stderr)


@pytest.mark.root
def test_a_full_disk_leaves_the_exit_code_alone_and_the_record_comes_in_later(small_disk: SmallDisk) -> None:
    done = small_disk.run(
        "joblens run -- true; fill; joblens run -- sh -c 'echo works; exit 3'; echo code $?;"
        "rm $disk/ballast; joblens history --json"
    )
    assert done.stdout.startswith("works\ncode 3\n"), done.stderr
    assert "journal" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(record["returncode"] for record in done.json) == [0, 3]


@pytest.mark.root
def test_a_disk_that_fills_while_the_job_runs_loses_no_sample(small_disk: SmallDisk) -> None:
    done = small_disk.run(
        "joblens run --interval 50ms -- sh -c 'sleep 0.3;"
        "dd if=/dev/zero of=$disk/ballast bs=4k 2>/dev/null; sleep 0.5; exit 3'; echo code $?;"
        "rm $disk/ballast;"
        "joblens metrics --no-follow --json 1 | wc -l; joblens history --json"
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "code 3", done.stderr
    (record,) = done.json
    assert (record["returncode"], record["status"]) == (3, "failed")
    assert int(lines[1]) >= 8


@pytest.mark.root
def test_a_background_job_on_a_full_disk_comes_to_its_outcome_when_there_is_room(
    small_disk: SmallDisk,
) -> None:
    done = small_disk.run(
        "id=$(joblens submit -- sh -c 'touch $disk/here; while [ ! -e go ]; do sleep 0.02; done; exit 5');"
        "while [ ! -e $disk/here ]; do sleep 0.02; done; fill; touch go; sleep 1; rm $disk/ballast;"
        "joblens wait $id; echo code $?"
    )
    assert done.stdout.splitlines()[-1] == "code 5", done.stderr


@pytest.mark.root
def test_where_not_even_a_journal_can_be_written_the_loss_is_reported(small_disk: SmallDisk) -> None:
    home = str(small_disk.disk / "home")
    done = small_disk.run(
        "fill; joblens run -- sh -c 'echo works; exit 3'; echo code $?",
        HOME=home,
        XDG_STATE_HOME=f"{home}/state",
        TMPDIR=home,
    )
    assert done.stdout == "works\ncode 3\n", done.stderr
    assert "lost" in done.stderr
    assert "Traceback" not in done.stderr
