"""joblens' own log, as the settings under `logs` say."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import joblens as api
from joblens.app.wiring.logging_setup import LOGGER_NAME, set_up_logging
from joblens.model.settings import LogSettings
from tests.conftest import RunJoblens, wait_until

WRONG_PARENT = {"JOBLENS_LIMITS_CGROUP_PARENT": "/there/is/none"}  # something to warn of


@pytest.fixture(autouse=True)
def logger_as_before() -> Iterator[None]:
    logger = logging.getLogger(LOGGER_NAME)
    level, handlers = logger.level, list(logger.handlers)
    yield
    for handler in [one for one in logger.handlers if one not in handlers]:
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(level)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JOBLENS_LOGS_FILE", str(tmp_path / "own" / "joblens.log"))
    monkeypatch.setenv("JOBLENS_LOGS_LEVEL", "INFO")
    return tmp_path / "own" / "joblens.log"


def test_run_logs_start_and_end_of_its_job(joblens: RunJoblens, log: Path) -> None:
    done = joblens("run", "--name", "mine", "--", "sh", "-c", "exit 3", code=3)
    started, ended = log.read_text().splitlines()
    assert " INFO " in started
    assert "(mine): started" in started
    assert "(mine): failed, exit code 3" in ended
    assert done.stderr == ""


def test_a_warning_is_shown_and_logged(joblens: RunJoblens, log: Path) -> None:
    done = joblens("run", "--", "true", env=WRONG_PARENT, code=0)
    assert "joblens: warning: limits.cgroup_parent" in done.stderr
    assert " WARNING " in log.read_text()


def test_without_a_file_the_level_says_what_standard_error_gets(
    joblens: RunJoblens, store_path: Path
) -> None:
    lines = joblens("run", "--", "true", env={"JOBLENS_LOGS_LEVEL": "INFO"}, code=0).stderr.splitlines()
    assert [line.startswith("joblens: info: job ") for line in lines] == [True, True]
    assert joblens("run", "--", "true", code=0).stderr == ""


def test_errors_only_means_no_warnings(joblens: RunJoblens) -> None:
    done = joblens("run", "--", "true", env={**WRONG_PARENT, "JOBLENS_LOGS_LEVEL": "ERROR"}, code=0)
    assert done.stderr == ""


def test_a_log_that_cannot_be_written_is_reported_before_anything_is_begun(
    joblens: RunJoblens, tmp_path: Path, store_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    done = joblens("run", "--", "true", env={"JOBLENS_LOGS_FILE": str(tmp_path / "file" / "x.log")}, code=2)
    assert "logs.file" in done.stderr
    assert not store_path.exists()


def test_the_supervisor_logs_there_too(joblens: RunJoblens, log: Path) -> None:
    joblens("submit", "--wait", "--name", "far", "--", "true", env={"JOBLENS_SUPERVISOR_IDLE": "0.2"}, code=0)
    wait_until(lambda: "supervisor stopped" in log.read_text(), what="the supervisor to end")
    assert "(far): success, exit code 0" in log.read_text()


def test_python_jobs_are_logged(store_path: Path, log: Path) -> None:
    api.run(["true"], name="one")
    list(api.map_commands([["false"]] * 2))
    text = log.read_text()
    assert text.count("(one): success, exit code 0") == 1
    assert text.count("(false): failed, exit code 1") == 2


def test_a_monitor_writes_to_the_configured_log(store_path: Path, log: Path) -> None:
    monitor = api.JobMonitor()
    with monitor.track_job("my-task", "python", "x.py"):
        pass
    monitor.close()
    assert "INFO" in log.read_text()
    assert "Job my-task completed successfully" in log.read_text()


def test_a_monitor_whose_log_cannot_be_written_goes_on(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JOBLENS_LOGS_FILE", str(tmp_path / "file" / "x.log"))
    monitor = api.JobMonitor()
    with monitor.track_job("my-task", "python", "x.py"):
        pass
    assert [record["status"] for record in monitor.get_job_history()] == ["success"]
    monitor.close()
    assert "logs.file" in caplog.text


def test_a_monitor_leaves_the_programs_logging_alone_where_nothing_is_set(store_path: Path) -> None:
    logger = logging.getLogger(LOGGER_NAME)
    before = (logger.level, list(logger.handlers), logger.propagate)
    monitor = api.JobMonitor()
    with monitor.track_job("my-task", "python", "x.py"):
        pass
    monitor.close()
    assert (logger.level, list(logger.handlers), logger.propagate) == before


def test_the_programs_own_handlers_still_see_what_goes_to_the_file(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    set_up_logging(LogSettings(file=str(log))).warning("seen by both")
    assert "seen by both" in caplog.text
    assert "seen by both" in log.read_text()


def test_an_equal_log_stays_open(log: Path) -> None:
    """Several threads may run jobs at once: none may close the file under another."""
    settings = LogSettings(file=str(log))
    (first,) = set_up_logging(settings).handlers
    assert set_up_logging(settings).handlers == [first]


def test_run_does_not_import_logging_where_nothing_is_set(store_path: Path, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom joblens.__main__ import main\n"
        "try:\n    main(['run', '--', 'true'])\nexcept SystemExit:\n    pass\n"
        "sys.exit('logging' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=dict(os.environ), check=False)
    assert done.returncode == 0


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_configuration_of_another_user_overwrites_nothing(joblens: RunJoblens, tmp_path: Path) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine.txt"
    theirs.mkdir()
    mine.write_text("mine")
    config = theirs / "joblens.yml"
    config.write_text(f"logs: {{file: {mine}, level: INFO}}\nsinks: {{history: {{path: {mine}}}}}\n")
    os.chown(theirs, 12345, 12345)
    done = joblens("run", "-q", "--", "true", cwd=theirs, code=0)
    assert mine.read_text() == "mine"
    warning = (
        f"{config} is not used: {theirs} belongs to another user (12345); to use it, give --config {config}"
    )
    assert done.stderr == f"joblens: warning: {warning}\n"
    assert warning in joblens("config", "show", cwd=theirs, code=0).stderr
    assert f"{config}  not read: {theirs} belongs" in joblens("config", "path", cwd=theirs).stdout
    assert f"{config} is not used" in str(joblens("doctor", "--json", cwd=theirs).json["capabilities"])
    joblens("--config", str(config), "run", "-q", "--", "true", cwd=theirs, code=0)
    assert mine.read_text() != "mine"
