"""Running jobs of the Overview: what is read of very many."""

from pathlib import Path

import pytest

from joblens.app.html_report.writing import reader
from joblens.app.server import live
from joblens.stores.sqlite import SqliteStore
from tests.builders.writes import queued, samples, started


def test_first_samples_of_many_jobs_are_read_in_parts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(live, "_MOST_NEW", 2)
    monkeypatch.setattr(live, "_WITH_HISTORY", 1)
    monkeypatch.setattr(live, "_AGE_S", 0.0)
    store = SqliteStore(str(tmp_path / "joblens.db"))
    for number in range(1, 7):
        uuid = f"job-{number}"
        store.apply([queued(uuid), started(uuid)])
        if number > 2:  # the first two have none yet
            store.apply([samples(uuid, 0, 3)])
    jobs, turn, read = live.LiveJobs(), 0, []
    for _ in range(4):
        answer = jobs.answer(store, reader("ann"), live.LiveQuery(since=turn))
        turn = answer.turn
        read.append([points.number for points in answer.points])
        assert answer.running == 6
    jobs.close()
    store.close()
    assert read == [[], [3, 4], [5, 6], []]
