"""What runs leave behind: files of jobs, and nothing of joblens itself."""

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.app.places import spool_dir
from tests.conftest import RunJoblens, wait_until
from tests.integration.workflow_desk import WorkflowDesk


@pytest.fixture
def desk(tmp_path: Path, joblens: RunJoblens, store_path: Path) -> Iterator[WorkflowDesk]:
    desk = WorkflowDesk(tmp_path, joblens, store_path)
    yield desk
    desk.close()


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_after_a_kill_and_a_resume_nothing_of_the_slots_is_left(desk: WorkflowDesk) -> None:
    desk.write('name: f\njobs: [{name: "a_{i}", command: "sleep 0.3", parameters: {i: "1:4"}}]\n')
    spool = Path(spool_dir(str(desk.store_path)))
    process = desk.start("run", "flow.yaml", "-q")
    wait_until(lambda: list(spool.glob("*.slot")))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert list(spool.glob("*.slot"))
    time.sleep(0.5)  # its launchers end with their jobs
    desk.call("resume", "1.1", code=0)
    assert not spool.exists()
    assert _files(desk.folder / "output" / "job_output") == []
