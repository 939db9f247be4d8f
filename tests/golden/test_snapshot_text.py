"""Where a recipe's job stands, as people read it, pinned as in test_text.py."""

from pathlib import Path

import msgspec
import pytest

from joblens.app.recipes.snapshots import create_snapshot
from joblens.views.recipes.snapshot import render_job_list, render_snapshot
from joblens.views.text.style import PLAIN
from tests.conftest import REPOSITORY
from tests.golden.golden import same_as_golden

FIXTURES = REPOSITORY / "tests" / "fixtures" / "recipes"


@pytest.mark.parametrize("name", ["failed", "killed", "resumed", "global"])
def test_a_job(name: str) -> None:
    snapshot = create_snapshot(str(Path(FIXTURES, f"datajuicer-{name}")))
    same_as_golden(f"snapshot-{name}", render_snapshot(snapshot, width=100, paint=PLAIN))


def test_a_running_job_on_a_narrow_terminal() -> None:
    from joblens.model.recipes.snapshot import ProcessingStatus

    killed = create_snapshot(str(FIXTURES / "datajuicer-killed"))
    running = msgspec.structs.replace(
        killed,
        overall_status=ProcessingStatus.IN_PROGRESS,
        in_progress_partitions=1,
        retries=2,
        rejected_rows=3,
        eta_seconds=75.0,
    )
    lines = render_snapshot(running, width=60, paint=PLAIN)
    same_as_golden("snapshot-running", lines)


def test_a_list_of_jobs() -> None:
    job = {"job_id": "20251115_204215_9fc21b", "start_time": 1763239335.0, "duration": 4.3}
    jobs = [
        {**job, "status": "completed", "progress_percentage": 100.0},
        {**job, "status": "killed", "progress_percentage": 68.2, "start_time": None, "duration": None},
    ]
    same_as_golden("snapshot-list", render_job_list(jobs, width=100, paint=PLAIN))
