import sys
import threading
from itertools import count

from joblens.agent.in_process.window import WindowInstruments
from joblens.agent.instruments.table import InstrumentSet
from joblens.model.jobs.details import Details, ThreadTable
from joblens.model.writes import DetailsTaken


class Talkative:
    name, interval_s = "threads", 0.0

    def __init__(self) -> None:
        self._times = count(1)

    def read(self) -> Details:
        return Details(threads=ThreadTable(at_us=next(self._times)))

    def close(self) -> None:
        pass


def times_of(news: list[DetailsTaken]) -> list[int]:
    return [taken.details.threads.at_us for taken in news if taken.details.threads is not None]


def test_news_are_taken_once_and_the_oldest_are_left_out() -> None:
    instruments = WindowInstruments("u", InstrumentSet((), (Talkative(),)))
    for _ in range(20):
        instruments.read_details(final=True)
    assert times_of(instruments.take_news()) == list(range(5, 21))
    assert instruments.take_news() == []


def test_several_threads_may_take_the_news_at_once() -> None:
    instruments = WindowInstruments("u", InstrumentSet((), (Talkative(),)))
    for _ in range(20_000):
        instruments.read_details(final=True)
    failures: list[IndexError] = []
    together = threading.Barrier(4)

    def take() -> None:
        together.wait()
        try:
            instruments.take_news()
        except IndexError as error:
            failures.append(error)

    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=take) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before_s)
    assert failures == []
