"""How jobs ended, kept back for a moment by workers whose place somebody else may end.

A cluster that ends a place tells every process in it at once, the jobs too. One that ends cleanly when it is
told looks like one that is done, and the worker may learn of that before it knows that it was told itself. So
it waits before it writes how a job ended; should it be told meanwhile, others run the job again."""

import threading
import time
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.runtime.loop import Loop
from joblens.agent.runtime.recorder import Recorder, uuid_of
from joblens.model.jobs.job import Outcome
from joblens.model.writes import JobEnded, Write

Rewrite = Callable[[str, Outcome], Outcome]  # by the job's uuid


class _Held(Struct):
    due_s: float
    writes: list[Write]


class OutcomeDelay:
    def __init__(self, hold_s: float, recorder: Recorder, loop: Loop) -> None:
        self._hold_s = hold_s
        self._recorder = recorder
        self._loop = loop
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}  # by job, the first to end first
        self._is_open = self._is_frozen = False
        self._rewrite: Rewrite | None = None
        recorder.sieve = self.sift

    def sift(self, batch: Sequence[Write]) -> list[Write]:
        """-> what is to be written now. All that belongs to an end stays with it, in its order."""
        now_s = time.monotonic()
        ended = {write.uuid for write in batch if isinstance(write, JobEnded)}
        passed: list[Write] = []
        with self._lock:
            had = len(self._held)
            for write in batch:
                uuid = uuid_of(write)
                if uuid in self._held or (uuid in ended and not self._is_open):
                    held = self._held.setdefault(uuid, _Held(now_s + self._hold_s, []))
                    held.writes.append(write)
                else:
                    passed.append(write)
            is_new = len(self._held) > had
            due = [uuid for uuid, held in self._held.items() if self._is_due(held, now_s)]
            kept = [write for uuid in due for write in self._held.pop(uuid).writes]
        if is_new:
            self._loop.call(lambda: None)  # it has something to wake up for
        return [self._rewritten(write) for write in kept + passed]

    def _is_due(self, held: _Held, now_s: float) -> bool:
        return self._is_open or (not self._is_frozen and held.due_s <= now_s)

    def _rewritten(self, write: Write) -> Write:
        if self._rewrite is None or not isinstance(write, JobEnded):
            return write
        return replace(write, outcome=self._rewrite(write.uuid, write.outcome))

    def freeze(self) -> None:
        """Writes no end until `release` or `open`: why the place ends is being asked for."""
        self._is_frozen = True

    def release(self, rewrite: Rewrite | None = None) -> None:
        """Writes ends again, as `rewrite` has them."""
        self._rewrite = rewrite
        self._is_frozen = False
        self._recorder.put([])

    def catch(self, but: Collection[str] = ()) -> list[str]:
        """-> the jobs whose ends were not written yet, and will not be. `but`: not these"""
        with self._lock:
            uuids = [uuid for uuid in self._held if uuid not in but]
            for uuid in uuids:
                del self._held[uuid]
        return uuids

    def open(self) -> None:
        """From now on nothing is kept back."""
        self._is_open = True

    # ---- timed -----------------------------------------------------------------------------------------

    def next_wake_s(self) -> float | None:
        with self._lock:
            return None if self._is_frozen else next((held.due_s for held in self._held.values()), None)

    def wake(self) -> None:
        self._recorder.put([])
