"""Going on with runs, and what is told about how long they took and what to type next."""

from joblens.model.run import RunStatus
from tests.contract.run_builders import begun, over, run, workflow
from tests.contract.store_builders import NOON_US, SECOND
from tests.integration.past_runs import FIRST, FLOW, PREPROCESS, SPEC, attempt
from tests.integration.workflow_desk import WorkflowDesk

BROKEN = """
name: broken
jobs:
  - {name: bad, command: "echo bad >> ran; false"}
  - {name: after, command: "echo after >> ran", depends_on: [bad]}
"""


def _stopped_long_ago(desk: WorkflowDesk) -> None:
    """After it was driven for a minute."""
    store = desk.store()
    store.apply(
        [
            workflow(FLOW, "ml-pipeline"),
            run(FIRST, FLOW, spec_text=SPEC, jobs=4),
            begun(FIRST),
            *attempt(FIRST, PREPROCESS, "preprocess"),
            over(FIRST, RunStatus.STOPPED, at_us=NOON_US + 60 * SECOND),
        ]
    )
    store.close()


def test_every_clock_of_a_resumed_run_tells_how_long_it_was_driven(desk: WorkflowDesk) -> None:
    _stopped_long_ago(desk)
    resumed = desk.call("resume", "ml-pipeline", code=0).stdout
    assert "01:0" in resumed.splitlines()[3]
    assert "completed in 1m0" in resumed
    assert desk.call("watch", "ml-pipeline", code=0).stdout.splitlines()[-1].startswith("01:0")
    [shown] = desk.call("workflows", "show", "ml-pipeline", "--json", code=0).json["runs"]
    document = desk.call("resume", "ml-pipeline", "--json", code=0).json
    assert 60 <= shown["duration_seconds"] <= document["duration_s"] < 120


def test_a_failed_run_that_is_over_cannot_be_resumed_and_says_what_can_be_done(desk: WorkflowDesk) -> None:
    desk.run(BROKEN, code=1)
    told = desk.call("resume", "broken", code=1).stdout
    assert "nothing is left to resume" in told
    assert "joblens rerun 1.1 --failed" in told
    assert desk.lines("ran") == ["bad"]
