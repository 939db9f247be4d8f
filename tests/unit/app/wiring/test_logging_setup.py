"""joblens' own log: readable, bounded, and whole when several processes write to it."""

import gzip
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.app.wiring.logging_setup import LOGGER_NAME, set_up_logging
from joblens.model.errors import ConfigError
from joblens.model.settings import LogSettings

KIB_IN_MB = 1 / 1024


@pytest.fixture(autouse=True)
def logger_as_before() -> Iterator[None]:
    logger = logging.getLogger(LOGGER_NAME)
    before = (logger.level, logger.propagate, list(logger.handlers))
    yield
    for handler in [one for one in logger.handlers if one not in before[2]]:
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(before[0])
    logger.propagate = before[1]


def all_lines(log: Path) -> list[str]:
    rotated = sorted(log.parent.glob(f"{log.name}.*.gz"), key=lambda path: -int(path.suffixes[-2][1:]))
    texts = [gzip.decompress(path.read_bytes()).decode() for path in rotated]
    return "".join([*texts, log.read_text()]).splitlines()


def test_a_warning_goes_to_standard_error_in_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(LogSettings()).warning("disk %s is nearly full", "/data")
    assert capsys.readouterr().err == "joblens: warning: disk /data is nearly full\n"


def test_what_is_below_the_level_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(LogSettings(level="ERROR")).warning("not this")
    assert capsys.readouterr().err == ""


def test_setting_up_twice_logs_once(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(LogSettings())
    set_up_logging(LogSettings()).warning("once")
    assert capsys.readouterr().err.count("once") == 1


def test_a_handler_of_the_host_program_stays(tmp_path: Path) -> None:
    theirs = logging.NullHandler()
    logger = logging.getLogger(LOGGER_NAME)
    logger.addHandler(theirs)
    set_up_logging(LogSettings())
    assert theirs in logger.handlers
    logger.removeHandler(theirs)


def test_the_log_file_has_time_level_and_process_and_is_private(tmp_path: Path) -> None:
    log = tmp_path / "new" / "joblens.log"
    set_up_logging(LogSettings(file=str(log))).error("it broke")
    (line,) = log.read_text().splitlines()
    assert line.endswith(f"Z ERROR {os.getpid()} joblens: it broke")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_full_log_is_rotated_into_gzip_and_only_so_many_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "joblens.log"
    settings = LogSettings(file=str(log), level="INFO", max_log_size_mb=KIB_IN_MB, backup_count=2)
    logger = set_up_logging(settings)
    for number in range(100):
        logger.info("line %03d", number)
    names = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("joblens.log"))
    assert names == ["joblens.log", "joblens.log.1.gz", "joblens.log.2.gz"]
    assert log.stat().st_size <= 1024
    numbers = [int(line[-3:]) for line in all_lines(log)]
    assert numbers == list(range(numbers[0], 100))
    assert len(numbers) > 20


def test_without_backups_a_full_log_starts_again(tmp_path: Path) -> None:
    log = tmp_path / "joblens.log"
    logger = set_up_logging(LogSettings(file=str(log), max_log_size_mb=KIB_IN_MB, backup_count=0))
    for number in range(100):
        logger.warning("line %03d", number)
    assert log.read_text().endswith("line 099\n")
    assert not list(tmp_path.glob("*.gz"))


def test_a_log_that_is_moved_away_is_opened_again(tmp_path: Path) -> None:
    log = tmp_path / "joblens.log"
    logger = set_up_logging(LogSettings(file=str(log)))
    logger.warning("first")
    log.rename(tmp_path / "old.log")
    logger.warning("second")
    assert log.read_text().endswith("second\n")


def test_a_log_file_that_cannot_be_had_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"logs\.file: .* cannot be written"):
        set_up_logging(LogSettings(file=str(tmp_path / "file" / "joblens.log")))
