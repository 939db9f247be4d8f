"""Write filter of a worker: between its recorder and the store.

Nothing is written about suppressed jobs: they belong to another worker. Outcomes may be delayed for a moment.
A cluster that ends an allocation signals every process in it, and a job that exits cleanly on the signal
looks like one that is done; the worker may learn of the end before its own signal arrives. Delayed outcomes
can be discarded, and the jobs run again elsewhere."""

import threading
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.runtime.recorder import uuid_of
from joblens.model.jobs.job import Outcome
from joblens.model.writes import JobEnded, Write
from joblens.ports.clock import Clock

Rewrite = Callable[[str, Outcome], Outcome]  # by the job's uuid


class _Pending(Struct):
    due_s: float
    writes: list[Write]


class ClaimWriteFilter:
    """agent.runtime.recorder.WriteFilter. May be used from several threads."""

    def __init__(self, clock: Clock, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self._clock = clock
        self._lock = threading.Lock()
        self._suppressed: set[str] = set()
        self._pending: dict[str, _Pending] = {}  # by job, the first to end first
        self._is_open = not delay_s
        self._is_frozen = False
        self._rewrite: Rewrite | None = None

    def suppress(self, uuid: str) -> None:
        self._suppressed.add(uuid)

    def allow(self, uuid: str) -> None:
        self._suppressed.discard(uuid)

    def __call__(self, batch: Sequence[Write]) -> list[Write]:
        """Returns the writes that are due. All writes of an ended job stay together, in their order."""
        batch = self._allowed(batch)
        with self._lock:
            if not self._is_open or self._pending:
                batch = self._due(batch, self._now_s())
        return [self._rewritten(write) for write in self._allowed(batch)]

    def _due(self, batch: Sequence[Write], now_s: float) -> list[Write]:
        ended = {write.uuid for write in batch if isinstance(write, JobEnded)}
        passed: list[Write] = []
        for write in batch:
            uuid = uuid_of(write)
            if uuid in self._pending or (uuid in ended and not self._is_open):
                pending = self._pending.setdefault(uuid, _Pending(now_s + self.delay_s, []))
                pending.writes.append(write)
            else:
                passed.append(write)
        due = [uuid for uuid, pending in self._pending.items() if self._is_due(pending, now_s)]
        return [write for uuid in due for write in self._pending.pop(uuid).writes] + passed

    def _is_due(self, pending: _Pending, now_s: float) -> bool:
        return self._is_open or (not self._is_frozen and pending.due_s <= now_s)

    def _now_s(self) -> float:
        return self._clock.mono_ns() / 1e9

    def _allowed(self, batch: Sequence[Write]) -> Sequence[Write]:
        return [one for one in batch if uuid_of(one) not in self._suppressed] if self._suppressed else batch

    def _rewritten(self, write: Write) -> Write:
        if self._rewrite is None or not isinstance(write, JobEnded):
            return write
        return replace(write, outcome=self._rewrite(write.uuid, write.outcome))

    def freeze(self) -> None:
        """Delays outcomes until `release` or `open`, while the reason of the allocation's end is being
        queried."""
        self._is_frozen = True

    def release(self, rewrite: Rewrite | None = None) -> None:
        self._rewrite = rewrite
        self._is_frozen = False

    def discard_pending(self, keep: Collection[str] = ()) -> frozenset[str]:
        """Discards delayed outcomes, and returns their jobs."""
        with self._lock:
            uuids = frozenset(uuid for uuid in self._pending if uuid not in keep)
            for uuid in uuids:
                del self._pending[uuid]
        return uuids

    def open(self) -> None:
        """Delays nothing from now on."""
        self._is_open = True

    def next_due_s(self) -> float | None:
        """By the monotonic clock."""
        with self._lock:
            return None if self._is_frozen else next((one.due_s for one in self._pending.values()), None)
