"""News of a run's jobs that another process looks after."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

from joblens.agent.recovery.orphans import Orphans
from joblens.agent.runs.hosts import RunAdopted
from joblens.agent.runtime.recorder import Recorder
from joblens.model.jobs.job import Job, Record, RunLink, Status
from joblens.stores.sqlite import SqliteStore
from tests.builders.writes import ended, queued, started
from tests.conftest import wait_until


class Calls:
    """A loop that does at once what it is called with."""

    def call(self, function: Callable[[], None]) -> None:
        function()


def test_a_record_that_is_gone_does_not_hide_the_news_of_others(tmp_path: Path) -> None:
    recorder = Recorder(SqliteStore(str(tmp_path / "joblens.db")))
    recorder.write([queued("b1"), started("b1")])
    found = [
        Record(
            status=Status.RUNNING,
            job=Job(uuid=uuid, argv=("true",), created_at_us=1, run=RunLink("r1", index)),
            attempt=started(uuid).attempt,
        )
        for index, uuid in enumerate(("a1", "b1"))
    ]
    nothing = Orphans(adoptable=[], dead=[], never_started=[], superseded=frozenset())
    recovery = Mock(unrecorded=lambda _find: [], orphans=lambda _records: nothing)
    reports = Mock()
    context = Namespace(recorder=recorder, loop=Calls(), spool_dir=str(tmp_path), host=None)
    recorder.store.running = lambda **_: found  # type: ignore[method-assign]
    adopted = RunAdopted(context, recovery, reports, "ann")  # type: ignore[arg-type]
    assert adopted.finalize("r1", str(tmp_path)) == found
    recorder.write([ended("b1")])
    adopted.poll_elsewhere()
    wait_until(lambda: reports.recorded.called, what="the news", timeout=5)
    recorder.close()
    assert [call.args[0].job.uuid for call in reports.recorded.call_args_list] == ["b1"]
