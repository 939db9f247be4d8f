"""How long runs took that were stopped and went on later."""

from joblens.model.jobs.job import Owner
from joblens.model.runs.run import Run, RunEnded, RunEvent, RunFact, RunStarted, RunStatus
from joblens.model.values.ids import new_uuid
from joblens.model.writes import RunNoted
from tests.integration.workflow_cli import WorkflowCli

SECOND = 1_000_000
STARTED = RunStarted(Owner("elsewhere", 1, 1, "boot"))


def note(cli: WorkflowCli, run: Run, *facts: tuple[float, RunFact]) -> None:
    store = cli.store()
    try:
        store.apply(
            [
                RunNoted(RunEvent(new_uuid(), run.uuid, run.created_at_us + round(at_s * SECOND), fact))
                for at_s, fact in facts
            ]
        )
    finally:
        store.close()


def test_a_night_between_two_turns_is_not_counted(cli: WorkflowCli) -> None:
    spec = cli.write("name: w\njobs: [{name: a, command: 'true'}]\n")
    for _ in range(2):
        cli.call("workflows", "create-from-spec", spec, code=0)
    store = cli.store()
    try:
        first, second = store.runs(store.workflows()[0].uuid)
    finally:
        store.close()
    done, stopped = RunEnded(RunStatus.COMPLETED), RunEnded(RunStatus.STOPPED)
    note(cli, first, (0, STARTED), (20, done))
    note(cli, second, (0, STARTED), (10, stopped), (43_200, STARTED), (43_205, done))

    shown = cli.call("workflows", "show", "w", code=0).stdout.splitlines()
    assert "15.0s" in shown[-1]
    rows = cli.call("workflows", "show", "w", "--json", code=0).json["runs"]
    assert [row["duration_seconds"] for row in rows] == [20.0, 15.0]
    totals = cli.call("diff", "1.1", "1.2", "--json", code=0).json["totals"]
    assert totals["wall_s"] == {"before": 20.0, "after": 15.0, "percent": -25.0}
