"""On a cluster only jobs with a label are for workers that somebody starts."""

from collections.abc import Sequence

from joblens.agent.clusters.notification import (
    BrokerNotification,
    LabelNotification,
    Tickets,
    WorkerNotification,
)
from joblens.model.clusters.placement import PlacementRequest
from joblens.model.jobs.job import Requirements, Status
from joblens.model.values.labels import route_of
from tests.conftest import wait_until


class Cluster:
    """WorkerNotification."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def start(self) -> None: ...

    def call(self, requests: Sequence[PlacementRequest]) -> None:
        self.names += [request.name for request in requests]

    def follow(self, requests: Sequence[PlacementRequest]) -> None:
        self.call(requests)

    def set_status(self, uuid: str, status: Status) -> None: ...

    def remind(self) -> None: ...

    def withdraw(self, uuid: str) -> None: ...

    def ask_for_nodes(self, action: int) -> None: ...

    def close(self, *, is_over: bool) -> None: ...

    def wait(self) -> None: ...


class Workers(BrokerNotification):
    """Real ones, but for the broker."""

    def __init__(self) -> None:
        self.tickets: list[tuple[str, str]] = []
        self.starts = self.closes = 0
        super().__init__(_Broker(self), lambda text: None)

    def start(self) -> None:
        self.starts += 1
        super().start()


class _Broker:
    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def notify(self, tickets: Tickets) -> None:
        self._workers.tickets += tickets

    def remind(self) -> None: ...

    def close(self) -> None:
        self._workers.closes += 1


def request(name: str, label: str = "") -> PlacementRequest:
    return PlacementRequest(uuid=name, queue=route_of("q", label), name=name, requirements=Requirements())


def calling() -> tuple[WorkerNotification, Cluster, Workers]:
    cluster, workers = Cluster(), Workers()
    return LabelNotification(cluster, workers), cluster, workers


def test_nothing_is_started_for_workers_without_jobs_for_them() -> None:
    both, cluster, workers = calling()
    both.start()
    both.follow([])
    both.call([request("a")])
    both.close(is_over=True)
    assert cluster.names == ["a"]
    assert (workers.starts, workers.closes) == (0, 0)


def test_a_job_with_a_label_that_comes_late_is_for_workers_only() -> None:
    both, cluster, workers = calling()
    both.start()
    both.call([request("a")])
    both.call([request("b", "gpu"), request("c")])
    both.call([request("d", "gpu")])
    both.close(is_over=True)
    wait_until(lambda: workers.closes == 1)
    assert cluster.names == ["a", "c"]
    assert [uuid for uuid, _ in workers.tickets] == ["b", "d"]
    assert workers.starts == 1
