"""What is written for a worker, and who is told of it. Stores and brokers are not needed for either."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from joblens.agent.runtime.ownership import this_process
from joblens.app.jobs.preparation import parse_params
from joblens.app.jobs.requests import Request
from joblens.app.queue import notifiers
from joblens.app.queue.notifiers import (
    NoNotifier,
    StartedWorker,
    call_workers,
    living_workers,
    open_notifier,
    remind_workers,
)
from joblens.app.queue.submission import QueueRequest, make_tickets, refuse_others_job
from joblens.app.wiring.agent_context import current_user
from joblens.model.delivery import Backlog, WorkerInfo
from joblens.model.errors import BrokerError, InputError
from joblens.model.jobs.job import ContainerJob, Record, RetryLost, Status
from joblens.model.settings import QueueSettings, Settings
from joblens.probes.host.machine_load import read_host

SETTINGS = Settings()
NOW_US = 1_763_208_000_000_000


def asked(**fields: Any) -> QueueRequest:
    more = {name: fields.pop(name) for name in list(fields) if name in QueueRequest.__struct_fields__}
    return QueueRequest(request=Request(**{"argv": ("true",), **fields}), **more)


def with_queue(**fields: Any) -> Settings:
    return replace(SETTINGS, queue=QueueSettings(**fields))


# ---- tickets


def test_nothing_of_the_submitters_environment_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    ((job, ticket),) = make_tickets([asked(env={"SIM_X": "1"})], SETTINGS)
    assert job.env == ticket.order.env == {"SIM_X": "1"}


def test_secrets_are_in_the_order_and_not_in_the_record() -> None:
    request = asked(argv=("solve", "--password", "swordfish"), env={"API_TOKEN": "swordfish"})
    ((job, ticket),) = make_tickets([request], SETTINGS)
    assert job.argv[:2] == ("solve", "--password")
    assert "swordfish" not in f"{job.argv}{job.env}"
    assert ticket.order.argv[-1] == "swordfish"
    assert ticket.order.env["API_TOKEN"] == "swordfish"


def test_a_container_gets_its_variables_by_their_own_names() -> None:
    request = asked(container=ContainerJob(image="debian"), env={"SIM_X": "1"}, own_folder=True)
    ((_, ticket),) = make_tickets([request], SETTINGS)
    assert ticket.order.env == {"SIM_X": "1"}


def test_a_job_with_a_folder_of_its_own_names_none() -> None:
    ((own, own_ticket), (other, other_ticket)) = make_tickets([asked(own_folder=True), asked()], SETTINGS)
    assert (own.cwd, own_ticket.order.cwd) == ("", "")
    assert other.cwd == other_ticket.order.cwd != ""


def test_a_queued_job_belongs_to_nobody_until_a_worker_holds_it() -> None:
    ((job, ticket),) = make_tickets([asked(queue="night")], SETTINGS)
    assert (job.created_by, job.background, job.queue, ticket.queue) == (None, False, "night", "night")


def test_a_sequence_is_a_chain_of_tickets() -> None:
    made = make_tickets([asked(), asked(after=0), asked(after=1)], SETTINGS)
    uuids = [job.uuid for job, _ in made]
    assert [ticket.after for _, ticket in made] == ["", uuids[0], uuids[1]]


def test_the_settings_say_what_the_asker_does_not() -> None:
    settings = with_queue(name="night", retry_lost=RetryLost.NEVER, most_deliveries=7)
    made = make_tickets([asked(), asked(queue="day", retry_lost=RetryLost.SAFE)], settings)
    assert [(one.queue, one.retry_lost, one.most_deliveries) for _, one in made] == [
        ("night", RetryLost.NEVER, 7),
        ("day", RetryLost.SAFE, 7),
    ]


@pytest.mark.parametrize("name", ["a b", "../x", "-x", "a" * 101, "ä"])
def test_a_queue_with_an_unusable_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="name of a queue"):
        make_tickets([asked(queue=name)], SETTINGS)


def test_a_job_of_another_user_is_not_for_us_to_end() -> None:
    ((job, _),) = make_tickets([asked()], SETTINGS)
    refuse_others_job(Record(status=Status.QUEUED, job=job), job.user)
    with pytest.raises(InputError, match="belongs to alice"):
        refuse_others_job(Record(status=Status.QUEUED, job=replace(job, user="alice")), job.user)


# ---- parameters


def test_parameters_are_single_ones_or_a_json_object() -> None:
    assert parse_params(["a=1", '{"b": [2, 3], "c": "x"}', "d=e=f"]) == {
        "a": 1,
        "b": [2, 3],
        "c": "x",
        "d": "e=f",
    }


@pytest.mark.parametrize("given", [["{broken"], ['{"a": 1}', "a=2"], ["a=2", '{"a": 1}']])
def test_parameters_that_cannot_be_read_or_stand_twice_are_refused(given: list[str]) -> None:
    with pytest.raises(InputError):
        parse_params(given)


# ---- notifiers


class FakeStore:
    """The part of a store that notifiers read."""

    def __init__(self, *workers: WorkerInfo, waiting: Sequence[str] = ()) -> None:
        self._workers = workers
        self._waiting = waiting

    def workers(self) -> list[WorkerInfo]:
        return list(self._workers)

    def now_us(self) -> int:
        return NOW_US

    def backlog(self) -> list[Backlog]:
        return [Backlog(queue, 1, 0) for queue in self._waiting]


def store_with(*workers: WorkerInfo, waiting: Sequence[str] = ()) -> Any:
    return FakeStore(*workers, waiting=waiting)


def worker(**fields: Any) -> WorkerInfo:
    owner = this_process(read_host())
    usual: dict[str, Any] = {
        "name": "w",
        "host": owner.host,
        "pid": owner.pid,
        "start_ticks": owner.start_ticks,
        "boot_id": owner.boot_id,
        "user": current_user(),
        "queues": ("default",),
        "concurrency": 2,
        "broker": "redis://elsewhere",
        "seen_at_us": NOW_US,
    }
    return WorkerInfo(**{**usual, **fields})


def test_without_a_broker_and_a_worker_one_is_started() -> None:
    assert isinstance(open_notifier(SETTINGS, store_with(), None, ["default"]), StartedWorker)


def test_a_living_worker_with_another_broker_is_left_to_look_by_itself() -> None:
    assert isinstance(open_notifier(SETTINGS, store_with(worker()), None, ["default"]), NoNotifier)


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "alice"},
        {"queues": ("other",)},
        {"seen_at_us": NOW_US - 31_000_000},
        {"start_ticks": 1},  # another process has its number now
        {"broker": ""},  # it is the one that is started for jobs
    ],
)
def test_a_worker_that_cannot_take_the_job_does_not_count(fields: dict[str, Any]) -> None:
    assert isinstance(open_notifier(SETTINGS, store_with(worker(**fields)), None, ["default"]), StartedWorker)


def test_a_worker_for_any_user_counts() -> None:
    found = open_notifier(SETTINGS, store_with(worker(user="alice", any_user=True)), None, ["default"])
    assert isinstance(found, NoNotifier)


def test_a_worker_on_another_machine_lives_for_as_long_as_its_lease() -> None:
    far = worker(host="far", pid=1, boot_id="other", seen_at_us=NOW_US - 29_000_000)
    assert living_workers(SETTINGS, store_with(far)) == [far]
    assert living_workers(with_queue(lease=10.0), store_with(far)) == []


class FakeNotifier:
    def __init__(self, error: BrokerError | None = None) -> None:
        self.notified: list[tuple[str, str]] = []
        self.is_closed = False
        self._error = error

    def notify(self, tickets: Sequence[tuple[str, str]]) -> None:
        if self._error is not None:
            raise self._error
        self.notified += tickets

    def check(self) -> str:
        return "fine"

    def close(self) -> None:
        self.is_closed = True


def test_a_broker_that_is_away_costs_a_warning_only(monkeypatch: pytest.MonkeyPatch) -> None:
    notifier, result = FakeNotifier(BrokerError("the broker is away")), list[str]()
    monkeypatch.setattr(notifiers, "configured_notifier", lambda _settings: notifier)
    call_workers([("u1", "default")], with_queue(broker="redis://x"), store_with(), None, result.append)
    assert notifier.is_closed
    assert len(result) == 1
    assert "the broker is away" in result[0]
    assert result[0].endswith("the job is queued anyway, and workers will find it in the store")


def test_a_queue_that_nobody_serves_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    notifier, result = FakeNotifier(), list[str]()
    monkeypatch.setattr(notifiers, "configured_notifier", lambda _settings: notifier)
    tickets = [("u1", "default"), ("u2", "night")]
    call_workers(tickets, with_queue(broker="redis://x:1"), store_with(worker()), None, result.append)
    assert notifier.notified == tickets
    assert result == ["no worker serves the queue night: start one with joblens worker --broker redis://x:1"]


def test_who_waits_has_a_dead_worker_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[Any] = []
    monkeypatch.setattr(StartedWorker, "notify", lambda _self, tickets: woken.append(tickets))
    remind_workers(SETTINGS, store_with(waiting=["default"]))
    remind_workers(SETTINGS, store_with(worker(), waiting=["default"]))
    remind_workers(with_queue(broker="redis://x"), store_with(waiting=["default"]))
    assert woken == [()]
