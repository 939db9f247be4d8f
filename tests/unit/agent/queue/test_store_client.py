"""Questions to the store, in order, on a thread of their own."""

from typing import Any, cast

from joblens.agent.queue.store_client import AsyncStoreClient, StoreWatch
from joblens.agent.runtime.loop import Loop
from joblens.model.errors import StoreError
from joblens.ports.store import Deliveries
from tests.conftest import wait_until

NOBODY = cast("Deliveries", None)  # these questions ask nothing of it


def open_client(loop: Loop, watch: StoreWatch | None = None) -> AsyncStoreClient:
    return AsyncStoreClient(NOBODY, loop, lambda _: None, watch)


def test_a_store_that_does_not_answer_is_not_asked_for_long_at_the_end() -> None:
    asked: list[int] = []

    def question(number: int) -> Any:
        def ask(_: Deliveries) -> None:
            asked.append(number)
            raise StoreError("it hangs")

        return ask

    client = open_client(Loop())
    for number in range(20):
        client.ask(question(number), lambda _: None)
    client.close()  # before the first was answered
    client.start()
    client.close()
    assert asked == [0, 1]


def test_all_that_was_asked_is_answered_before_the_end() -> None:
    loop, answers = Loop(), list[int]()
    client = open_client(loop)
    for number in range(20):
        client.ask(lambda _, number=number: number, answers.append)  # type: ignore[misc]
    client.start()
    client.close()
    loop.run_once()
    assert answers == list(range(20))


def test_who_watches_the_store_learns_that_it_is_away() -> None:
    watch = StoreWatch(1.0, 0.5)
    for at_us in (0, 500_000, 1_000_000, 1_500_000):
        watch.note_answer(at_us)
    assert watch.is_conclusive

    def fail(_: Deliveries) -> None:
        raise StoreError("it is away")

    client = open_client(Loop(), watch)
    client.ask(fail, lambda _: None)
    client.start()
    wait_until(lambda: not watch.is_conclusive, what="the watch to hear of it")
    client.close()
