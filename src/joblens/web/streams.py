"""Streams: one poller asks the store for all of them, and every client reads by position.

A topic keeps the newest events. A client that is further behind reads from the store until it has caught up.
So a client never has a queue of its own, and memory does not grow with slow ones."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct

from joblens.app.server.streams import Batch, Event, SampleSource, Source, read_samples
from joblens.model.errors import InputError, JoblensError
from joblens.model.values.positions import Position
from joblens.ports.store import QueueStore
from joblens.web.problems import HttpProblem
from joblens.web.store_threads import StoreThreads

LOG = logging.getLogger("joblens.server")
_POLL_S = 0.1
_RING = 256  # events that a topic keeps
_HEARTBEAT_S = 15.0
_SLOW_S = 10.0  # a client that blocks longer is disconnected with a reason
_LONGEST_PAUSE_S = 5.0  # between polls while the store is unreachable


class Notice(Struct, frozen=True):
    """`reset`: earlier events are void; `end`: nothing more will come; `disconnect`: come back and resume."""

    name: str
    facts: dict[str, Any]


class Part(Struct, frozen=True):
    """Events of one attempt; an empty batch shows both sides that the connection lives."""

    events: Sequence[Event] = ()
    attempt: int = 0


Step = Part | Notice


class Topic:
    """One job's samples, one run's events or one job's output, for all its readers."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.readers = 0
        self.is_open = False  # until the position of its newest event is known
        self.last = source.first  # position up to which `ring` is complete
        self.start = source.first  # position before the first event in `ring`
        self.attempt = 0  # whose events these are; 0: not begun, or a stream without attempts
        self.generation = 0  # counts resets
        self.ring: deque[Event] = deque()
        self.end: Notice | None = None
        self._changed = asyncio.Event()

    def add(self, batch: Batch) -> None:
        """Takes events behind `last`, and the end. Events of another attempt void those before."""
        if batch.attempt not in (None, self.attempt):
            is_void = self.attempt != 0 or self.last > self.source.first
            self.attempt = batch.attempt or 0
            if is_void:  # the batch too: it was read behind a position of the other attempt
                self._reset()
                return
        for event in batch.events:
            if event.position > self.last:
                self.ring.append(event)
                self.last = event.position
        while len(self.ring) > _RING:
            self.start = self.ring.popleft().position
        if batch.end is not None and self.end is None:
            self.end = Notice("end", batch.end)
        if batch.events or batch.end is not None:
            self.wake()

    def _reset(self) -> None:
        self.generation += 1
        self.ring.clear()
        self.last = self.start = self.source.first
        self.wake()

    def since(self, position: int) -> list[Event] | None:
        """Returns events behind a position; None: they must be read from the store, because they begin before
        those kept here, or inside one of them (output is cut into chunks wherever a reader was)."""
        newer: list[Event] = []
        boundary = self.start
        for event in reversed(self.ring):
            if event.position <= position:
                boundary = event.position
                break
            newer.append(event)
        return newer[::-1] if boundary == position else None

    def next_boundary(self, position: int) -> int:
        """Returns the position at or behind `position` from which on this topic has everything."""
        known = (self.start, *(each.position for each in self.ring))
        return next((each for each in known if each >= position), max(position, self.last))

    async def wait(self, timeout_s: float) -> bool:
        """Returns whether something has come."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def open(self, newest: Position) -> None:
        """From now on the poller reads it."""
        if not self.is_open:
            self.is_open = True
            self.last = self.start = newest.index
            self.attempt = newest.attempt

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Hub:
    def __init__(self, stores: StoreThreads, most_streams: int) -> None:
        self._stores = stores
        self._most = most_streams
        self._topics: dict[str, Topic] = {}
        self._poller: asyncio.Task[None] | None = None
        self._has_work = asyncio.Event()
        self.streams = 0
        self.is_stopping = False

    def start(self) -> None:
        self._poller = asyncio.create_task(self._poll_forever())

    def stop(self) -> None:
        """Ends every stream: clients come back to the next server with their last event id."""
        self.is_stopping = True
        if self._poller is not None:
            self._poller.cancel()
        for topic in self._topics.values():
            topic.wake()

    def _join(self, key: str, source: Source) -> Topic:
        topic = self._topics.get(key)
        if topic is None:
            topic = self._topics[key] = Topic(source)
        elif topic.source is not source:
            source.close()
        topic.readers += 1
        self.streams += 1
        return topic

    def _leave(self, key: str, topic: Topic) -> None:
        self.streams -= 1
        topic.readers -= 1
        if topic.readers == 0:
            self._topics.pop(key, None)
            topic.source.close()

    def check_capacity(self) -> None:
        if self.is_stopping:
            raise HttpProblem(503, "the server is shutting down", "try again", {"retry-after": "1"})
        if self.streams >= self._most:
            raise HttpProblem(
                503,
                f"there are {self.streams} streams already",
                "close one, or raise server.max_streams on the server",
                {"retry-after": "5"},
            )

    async def follow(
        self, key: str, source: Source, after: Position | None, refusal: Callable[[], Awaitable[str]]
    ) -> AsyncGenerator[Step, None]:
        """Yields events behind `after` (None: from the first). `refusal` returns why the client may not read
        on, or ''."""
        topic = self._join(key, source)
        try:
            yield Part()
            await self._open(topic)
            generation = topic.generation
            position = source.first if after is None else max(after.index, source.first)
            reason = "" if after is None else await self._void(topic, after)
            if reason:
                yield Notice("reset", {"reason": reason})
                position = source.first
            async for step in self._read_on(topic, position, generation, refusal):
                yield step
        finally:
            self._leave(key, topic)

    async def _void(self, topic: Topic, after: Position) -> str:
        """Returns why a client cannot continue behind a position, or ''."""
        if after.attempt and after.attempt != topic.attempt:
            is_later = topic.attempt == 0 or topic.attempt > after.attempt
            return "job-queued-again" if is_later else "unknown-position"
        # Of an attempt whose samples were discarded, or of another stream.
        if after.index > topic.last and after.index > (await self._newest(topic)).index:
            return "unknown-position"
        return ""

    async def _open(self, topic: Topic) -> None:
        while not topic.is_open:
            topic.open(await self._newest(topic))
        self._has_work.set()

    async def _newest(self, topic: Topic) -> Position:
        """Returns the position of the newest event in the store, which the poller may not have read yet."""
        while True:
            try:
                return await self._stores.call(topic.source.newest)
            except InputError:
                return Position(topic.source.first)  # deleted: the poller ends the stream
            except JoblensError as error:
                LOG.warning("a stream waits for the store: %s", error)
                await asyncio.sleep(_LONGEST_PAUSE_S)

    async def _read_on(
        self, topic: Topic, position: int, generation: int, refusal: Callable[[], Awaitable[str]]
    ) -> AsyncGenerator[Step, None]:
        checked_s = time.monotonic()
        while True:
            if time.monotonic() - checked_s >= _HEARTBEAT_S:  # also while events come one after the other
                if reason := await refusal():
                    yield Notice("disconnect", {"reason": reason})
                    return
                checked_s = time.monotonic()
            if generation != topic.generation:
                generation, position = topic.generation, topic.source.first
                yield Notice("reset", {"reason": "job-queued-again"})
                continue
            attempt = topic.attempt
            events: Sequence[Event] | None = topic.since(position)
            if events is None:
                position, events = await self._catch_up(topic, position, attempt)
            if events:
                began = time.monotonic()
                yield Part(events, attempt)
                position = events[-1].position
                if time.monotonic() - began > _SLOW_S:
                    yield Notice("disconnect", {"reason": "slow-reader"})
                    return
            elif position < topic.last:
                continue
            elif topic.end is not None:
                yield topic.end
                return
            elif self.is_stopping:
                yield Notice("disconnect", {"reason": "shutdown"})
                return
            elif not await topic.wait(_HEARTBEAT_S):
                yield Part()

    async def _catch_up(self, topic: Topic, position: int, attempt: int) -> tuple[int, Sequence[Event]]:
        """Reads from the store. Returns the new position where nothing is left before the topic's events."""
        try:
            batch = await self._stores.call(lambda store: topic.source.read(store, position))
        except InputError:
            return topic.next_boundary(position), []  # deleted: the poller ends the stream
        except JoblensError:
            await asyncio.sleep(_LONGEST_PAUSE_S)  # the poller reports it
            return position, []
        if batch.attempt not in (None, attempt) and topic.end is None:
            await topic.wait(_POLL_S)  # the poller notices
            return position, []
        if not batch.events and position < topic.last:
            return topic.next_boundary(position), []  # lost in a damaged block
        return position, batch.events

    async def _poll_forever(self) -> None:
        pause_s = _POLL_S
        while True:
            topics = {
                key: topic for key, topic in self._topics.items() if topic.is_open and topic.end is None
            }
            if not topics:
                self._has_work.clear()
                await self._has_work.wait()
                continue
            began = time.monotonic()
            try:
                await self._poll(topics)
                pause_s = _POLL_S
            except JoblensError as error:
                if pause_s == _POLL_S:
                    LOG.warning("streams wait for the store: %s", error)
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
            except Exception:  # one topic that cannot be read must not end all streams
                LOG.exception("polling for streams failed")
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
            await asyncio.sleep(max(pause_s - (time.monotonic() - began), 0.01))

    async def _poll(self, topics: dict[str, Topic]) -> None:
        positions = {key: topic.last for key, topic in topics.items()}
        generations = {key: topic.generation for key, topic in topics.items()}

        def read(store: QueueStore) -> dict[str, Batch]:
            samples = {
                topic.source: key for key, topic in topics.items() if isinstance(topic.source, SampleSource)
            }
            found: dict[str, Batch] = {}
            if samples:
                after = {source: positions[key] for source, key in samples.items()}
                batches = read_samples(store, after, _RING)
                found = {key: batches[source.uuid] for source, key in samples.items()}
            for key, topic in topics.items():
                if key not in found:
                    found[key] = _read_one(topic.source, store, positions[key])
            return found

        for key, batch in (await self._stores.call(read)).items():
            topic = topics[key]
            if topic.generation != generations[key]:
                continue  # read behind a position that is void now
            if batch.events and batch.attempt == topic.attempt and isinstance(topic.source, SampleSource):
                _skip_gap(topic, batch.events[0])
            topic.add(batch)


def _read_one(source: Source, store: QueueStore, after: int) -> Batch:
    """A job or run that was deleted ends its own stream only."""
    try:
        return source.read(store, after)
    except InputError as error:
        return Batch((), {"reason": "gone", "detail": str(error)}, None)


def _skip_gap(topic: Topic, first: Event) -> None:
    """The poller reads only the newest samples: a client that needs those in between reads the store."""
    if first.position > topic.last + 1:
        topic.ring.clear()
        topic.start = topic.last = first.position - 1
