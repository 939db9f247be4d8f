"""When a worker runs the commands of actions of workers."""

from types import SimpleNamespace
from typing import Any

import pytest

from joblens.agent.attempts.preparation import PreparedAttempt
from joblens.agent.queue.worker_actions import ServedRuns
from joblens.model.delivery import Order, WorkerActions, WorkerCommand
from joblens.model.jobs.job import Job, Status
from joblens.model.runs.run import ActionRan, RunStatus
from tests.unit.agent.fake_clock import FakeClock


def command(action: int, number: int) -> WorkerCommand:
    name = f"action-{action + 1}.{number + 1}"
    job = Job(uuid="", argv=(name,), created_at_us=0, name=name, cwd="/far/work")
    return WorkerCommand(action, number, job, ("sh", "-c", name), f"/far/logs/{name}")


ACTIONS = WorkerActions(
    run="r1",
    env={"JOBLENS_RUN_ID": "r1"},
    on_start=(command(0, 0), command(0, 1), command(1, 0)),
    on_complete=(command(2, 0),),
)


class Bench:
    """A worker whose commands end when the test says so."""

    def __init__(self) -> None:
        self.started: list[PreparedAttempt] = []
        self.facts: list[ActionRan] = []
        self.secrets: list[str] = []
        self.is_run_over = False
        self.is_ready: bool | None = None
        self.clock = FakeClock()
        store = SimpleNamespace(find_run=self._find_run)
        context: Any = SimpleNamespace(
            clock=self.clock,
            owner=None,
            loop=SimpleNamespace(call=lambda function: function()),
            recorder=SimpleNamespace(
                put=lambda writes: self.facts.extend(write.event.fact for write in writes),
                ask=lambda question, then, _otherwise: then(question(store)),
            ),
            add_secrets=lambda _secrets, uuid: self.secrets.append(uuid),
        )
        maker: Any = SimpleNamespace(here=lambda path: path.replace("/far", "/here"))
        self.served = ServedRuns("w-1", context, maker, start=self.started.append, report=self._report)

    def _find_run(self, uuid: str) -> Any:
        assert uuid == "r1"
        return SimpleNamespace(status=RunStatus.STOPPED if self.is_run_over else RunStatus.RUNNING)

    def _report(self, run: str, is_ready: bool | None) -> None:
        assert run == "r1"
        self.is_ready = is_ready

    def may_begin(self, actions: WorkerActions | None = ACTIONS) -> bool:
        self.served.serve(Order(worker_actions=actions))
        return actions is None or bool(self.is_ready)

    def end(self, status: Status = Status.SUCCESS) -> None:
        uuid = self.started[-1].job.uuid
        outcome: Any = SimpleNamespace(status=status)
        self.served.ended(uuid, outcome)
        self.served.recorded(uuid)

    @property
    def names(self) -> list[str]:
        return [attempt.job.name for attempt in self.started]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_job_waits_until_all_commands_at_the_start_have_ended(bench: Bench) -> None:
    assert not bench.may_begin()
    assert not bench.may_begin()
    assert bench.names == ["action-1.1@w-1"]
    bench.end()
    bench.end()
    assert (bench.names[1:], bench.is_ready) == (["action-1.2@w-1", "action-2.1@w-1"], None)
    bench.end()
    assert bench.is_ready
    assert bench.may_begin()
    assert len(bench.started) == 3


def test_a_job_of_a_run_without_such_actions_waits_for_nothing(bench: Bench) -> None:
    assert bench.may_begin(None)
    assert bench.served.leave()
    assert bench.started == []


def test_a_command_that_fails_ends_its_action_and_the_others_run(bench: Bench) -> None:
    bench.may_begin()
    bench.end(Status.FAILED)
    assert bench.names == ["action-1.1@w-1", "action-2.1@w-1"]
    bench.end()
    assert bench.may_begin()
    assert [(fact.action, fact.command, fact.status, fact.worker) for fact in bench.facts] == [
        (0, 0, Status.FAILED, "w-1"),
        (1, 0, Status.SUCCESS, "w-1"),
    ]


def test_commands_are_recorded_where_the_worker_is(bench: Bench) -> None:
    bench.may_begin()
    (attempt,) = bench.started
    assert (attempt.job.cwd, attempt.folder) == ("/here/work", "/here/logs/action-1.1@w-1")
    assert attempt.env == {"JOBLENS_RUN_ID": "r1"}
    assert bench.secrets == [attempt.job.uuid]
    bench.end()
    assert bench.started[1].job.uuid != attempt.job.uuid


def serving(bench: Bench) -> Bench:
    bench.may_begin()
    for _ in range(3):
        bench.end()
    return bench


def test_it_stops_when_the_run_is_over_and_begins_again_with_another_job(bench: Bench) -> None:
    serving(bench)
    bench.served.wake()
    assert len(bench.started) == 3
    bench.is_run_over = True
    due_s = bench.served.next_wake_s()
    assert due_s is not None
    bench.served.wake()
    assert len(bench.started) == 3  # it is not asked so often
    bench.clock.pass_s(due_s - bench.clock.mono_ns() / 1e9)
    bench.served.wake()
    assert bench.names[3:] == ["action-3.1@w-1"]
    assert not bench.may_begin()
    bench.end()
    assert bench.served.next_wake_s() is None
    assert not bench.may_begin()
    assert bench.names[4:] == ["action-1.1@w-1"]


def test_a_worker_that_leaves_waits_for_its_last_commands(bench: Bench) -> None:
    serving(bench)
    assert not bench.served.leave()
    assert bench.names[3:] == ["action-3.1@w-1"]
    assert not bench.served.leave()
    bench.end()
    assert bench.served.leave()
    assert len(bench.started) == 4


def test_a_worker_that_leaves_at_once_leaves_out_what_it_has_not_begun(bench: Bench) -> None:
    bench.may_begin()
    assert not bench.served.leave()
    bench.end()
    assert bench.names == ["action-1.1@w-1", "action-3.1@w-1"]
    bench.end()
    assert bench.served.leave()
    assert bench.is_ready is None
