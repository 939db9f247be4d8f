"""Runs on a cluster that are ended and gone on with."""

from joblens.model.runs.run import JobCancelled
from tests.conftest import wait_until
from tests.integration.test_cluster_runs import quick_leases
from tests.integration.workflow_cli import WorkflowCli

__all__ = ["quick_leases"]  # for every test here, too

# It takes longer to end than its driver takes to look at what others want.
LINGERING = """
name: lingering
jobs:
  - {name: one, command: "trap 'sleep 2.5; exit 1' TERM; echo begun >> ran; sleep 60 & wait"}
"""


def test_a_job_that_ended_with_its_run_runs_again_when_the_run_is_gone_on_with(cli: WorkflowCli) -> None:
    driver = cli.start_local_cluster("run", cli.write(LINGERING), "--engine", "slurm")
    wait_until(lambda: cli.lines("ran") == ["begun"], what="a job that runs")
    cli.call("cancel", "lingering", code=0)
    # Whoever drove it has let go of it by now, and of its places.
    driver.communicate(timeout=1)
    store = cli.store()
    try:
        facts = [event.fact for _, event in store.run_events(cli.newest_run().uuid)]
    finally:
        store.close()
    assert [fact for fact in facts if isinstance(fact, JobCancelled)] == []
    assert "`joblens resume` starts it again" in cli.call("results", "lingering", code=0).stdout
