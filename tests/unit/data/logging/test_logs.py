"""Log files of bounded size."""

import gzip
import logging
import multiprocessing
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import joblens
from joblens.data.logging.rotating_log import RotatingLog
from joblens.model.errors import InputError


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    levels = [handler.level for handler in handlers]
    yield
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    for handler, before in zip(handlers, levels, strict=True):
        handler.setLevel(before)


def messages(path: Path) -> list[str]:
    return [line.partition(" - ")[2] for line in path.read_text().splitlines()]


def test_every_level_has_its_file(tmp_path: Path) -> None:
    joblens.setup_logger(tmp_path / "logs")
    for level in ("debug", "info", "warning", "error", "critical"):
        getattr(logging.getLogger("some.program"), level)(level)
    found = {path.name: messages(path) for path in (tmp_path / "logs").iterdir()}
    assert found == {
        "log.txt": ["info", "warning", "error", "critical"],
        "log_DEBUG.txt": ["debug"],
        "log_WARNING.txt": ["warning"],
        "log_ERROR.txt": ["error", "critical"],
    }


def test_a_line_says_when_how_grave_and_where(tmp_path: Path) -> None:
    joblens.setup_logger(tmp_path).getChild("part").warning("careful")
    line = (tmp_path / "log.txt").read_text()
    assert line[23:].startswith(" | WARNING  | part:")
    assert line.endswith(" - careful\n")


def test_logs_are_private(tmp_path: Path) -> None:
    joblens.setup_logger(tmp_path / "logs")
    assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "logs" / "log.txt").stat().st_mode) == 0o600


def test_a_full_file_is_put_aside_compressed_and_the_newest_are_kept(tmp_path: Path) -> None:
    joblens.setup_logger(tmp_path, "job.txt", max_log_size_mb=200 / 2**20, backup_count=2)
    for number in range(20):
        logging.getLogger("x").info("message %02d, which is long enough to count", number)
    names = sorted(path.name for path in tmp_path.glob("job.txt*"))
    assert names == ["job.txt", "job.txt.1.gz", "job.txt.2.gz"]
    texts = [gzip.decompress((tmp_path / name).read_bytes()).decode() for name in reversed(names[1:])]
    numbers = [
        int(line.split("message ")[1][:2])
        for text in [*texts, (tmp_path / "job.txt").read_text()]
        for line in text.splitlines()
    ]
    assert numbers == list(range(numbers[0], 20))  # in order, none missing
    assert len(numbers) > 3
    assert (tmp_path / "job.txt").stat().st_size <= 200


def test_without_backups_a_full_file_starts_over(tmp_path: Path) -> None:
    joblens.setup_logger(tmp_path, max_log_size_mb=200 / 2**20, backup_count=0)
    for number in range(20):
        logging.getLogger("x").info("message %02d, which is long enough to count", number)
    assert [path.name for path in tmp_path.glob("log.txt*")] == ["log.txt"]
    assert messages(tmp_path / "log.txt")[-1].startswith("message 19")


def _write_many(handler: RotatingLog, writer: int, count: int) -> None:
    for number in range(count):
        text = f"writer {writer} number {number:04d} {'x' * 60}"
        handler.handle(logging.LogRecord("x", logging.INFO, "", 0, text, (), None))


def test_processes_that_write_at_once_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    handler = RotatingLog(str(path), 4000, 60)
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=_write_many, args=(handler, number, 300)) for number in range(4)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    handler.close()
    packed = [gzip.decompress(found.read_bytes()).decode() for found in tmp_path.glob("log.txt.*.gz")]
    lines = [line for text in [*packed, path.read_text()] for line in text.splitlines()]
    found = sorted(line[:20] for line in lines)
    assert found == sorted(
        f"writer {writer} number {number:04d}" for writer in range(4) for number in range(300)
    )
    assert len(packed) > 10


def test_a_file_that_someone_took_away_is_made_again(tmp_path: Path) -> None:
    logger = joblens.setup_logger(tmp_path)
    (tmp_path / "log.txt").unlink()
    logger.warning("still here")
    assert messages(tmp_path / "log.txt") == ["still here"]


def test_called_again_it_writes_each_line_once(tmp_path: Path) -> None:
    for _ in range(3):
        joblens.setup_logger(tmp_path)
    logging.getLogger().warning("once")
    assert messages(tmp_path / "log.txt") == ["once"]


def test_handlers_that_were_there_do_not_become_talkative(tmp_path: Path) -> None:
    seen: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    root.addHandler(Listening())
    joblens.setup_logger(tmp_path)
    root.debug("quiet")
    root.warning("loud")
    assert seen == ["loud"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filename": "a/b.txt"}, "without a directory"),
        ({"filename": ""}, "without a directory"),
        ({"max_log_size_mb": 0}, "max_log_size_mb must be above 0"),
        ({"backup_count": -1}, "backup_count must be 0 or more"),
        ({"level": "LOUD"}, "unknown level 'LOUD'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        joblens.setup_logger(tmp_path, **options)  # type: ignore[arg-type]
    assert not list(tmp_path.glob("*.txt"))


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="logs cannot be written to"):
        joblens.setup_logger(tmp_path / "file")


def test_what_comes_from_no_line_of_a_program_names_none(tmp_path: Path) -> None:
    logger = joblens.setup_logger(tmp_path)
    logger.handle(logger.makeRecord("job", logging.INFO, "", 0, "it began", (), None))
    assert (tmp_path / "log.txt").read_text().endswith(" | INFO     | job - it began\n")


def test_a_full_disk_is_not_reported_for_every_message(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    handler = RotatingLog("/dev/full", 4000, 1)
    handler.emit(logging.makeLogRecord({"msg": "lost"}))
    handler.close()
    assert capfd.readouterr().err == ""
