"""joblens' own log: readable, bounded, and whole when several processes write to it."""

import fcntl
import gzip
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.app.wiring.logging_setup import LOGGER_NAME, set_up_logging
from joblens.model.settings import LogSettings


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


def test_no_line_is_lost_or_torn_when_processes_share_a_log(tmp_path: Path) -> None:
    log = tmp_path / "joblens.log"
    script = (
        "import sys\n"
        "from joblens.app.wiring.logging_setup import set_up_logging\n"
        "from joblens.model.settings import LogSettings\n"
        "who, path = sys.argv[1:]\n"
        "log = set_up_logging(LogSettings(file=path, max_log_size_mb=4 / 1024, backup_count=99))\n"
        "for number in range(200): log.warning('%s-%03d', who, number)\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, who, str(log)]) for who in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    words = [line.rpartition(" ")[2] for line in all_lines(log)]
    assert sorted(words) == [f"{who}-{number:03d}" for who in "abc" for number in range(200)]
    assert [word for word in words if word[0] == "a"] == [f"a-{number:03d}" for number in range(200)]


def test_a_line_waits_for_an_earlier_version_that_rotates_the_log(tmp_path: Path) -> None:
    log = tmp_path / "joblens.log"
    logger = set_up_logging(LogSettings(file=str(log)))
    logger.warning("first")
    with (tmp_path / "joblens.log.lock").open("w") as lock:  # earlier versions lock it in place of the log
        fcntl.flock(lock, fcntl.LOCK_EX)
        writer = threading.Thread(target=logger.warning, args=("second",))
        writer.start()
        writer.join(0.2)
        assert log.read_text().endswith(": first\n")
        (tmp_path / "joblens.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
        log.unlink()
    writer.join()
    assert [line.rpartition(" ")[2] for line in all_lines(log)] == ["first", "second"]
