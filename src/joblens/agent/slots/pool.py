"""Slot pool: many jobs, a few at a time, at the rate of bare spawning."""

import atexit
import threading
from collections.abc import Iterable, Iterator
from queue import SimpleQueue

from joblens.agent.session.context import AgentContext
from joblens.agent.slots.loop import SlotListener, SlotLoop, SlotPlan
from joblens.agent.slots.slot import SlotJob
from joblens.model.jobs.job import Record

READ_AHEAD = 256  # jobs that were read and have no record yet


class SlotPool(SlotListener):
    """`run` yields each record once it is safe in the store, in the order the jobs ended.

    The slots run on a thread of their own: jobs are measured and recorded whatever the reader of the results
    does meanwhile, and an interrupt of the program, which Python may raise between any two instructions of
    its main thread, cannot leave that half done. Jobs are read on the reader's thread, up to `READ_AHEAD`: a
    reader that pauses delays new jobs and uses no memory."""

    def __init__(self, context: AgentContext, plan: SlotPlan) -> None:
        self._loop = SlotLoop(context, plan, self)
        self._ended: SimpleQueue[list[Record] | BaseException] = SimpleQueue()

    def recorded(self, records: list[Record]) -> None:
        self._ended.put(records)

    def failed(self, error: BaseException) -> None:
        self._ended.put(error)

    def take_samples(self) -> None:
        """Called on the sampler's thread."""
        self._loop.take_samples()

    def poll_cancel_requests(self) -> None:
        """Called on the recorder's thread."""
        self._loop.poll_cancel_requests()

    def run(self, jobs: Iterable[SlotJob]) -> Iterator[Record]:
        """Yields records. Closing the generator, or an exception in its caller, kills and records running
        jobs; jobs that had not begun get no record."""
        thread = threading.Thread(target=self._loop.drive, name="joblens-slots", daemon=True)
        # A program may end while it has the generator, when it is too late for threads.
        atexit.register(self._close, thread)
        try:
            thread.start()
            yield from self._records(jobs)
        finally:
            self._close(thread)
            atexit.unregister(self._close)
            self._loop.close()

    def _records(self, jobs: Iterable[SlotJob]) -> Iterator[Record]:
        loop = self._loop
        running = 0
        for slot_job in jobs:
            loop.feed(slot_job)
            running += 1
            while running >= READ_AHEAD or not self._ended.empty():
                records = self._next()
                running -= len(records)
                yield from records
        loop.end_feed()
        while running:
            records = self._next()
            running -= len(records)
            yield from records

    def _next(self) -> list[Record]:
        ended = self._ended.get()
        if isinstance(ended, BaseException):
            raise ended
        return ended

    def _close(self, thread: threading.Thread) -> None:
        """Stops the thread. Normally nothing runs; running jobs are killed."""
        is_asked_again = False
        while thread.is_alive():
            try:
                self._loop.stop(at_once=is_asked_again)
                thread.join()
            except KeyboardInterrupt:
                is_asked_again = True  # a user insists
