"""Finalization of datasets on threads of their own: the loop never waits for a file system."""

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from joblens.agent.provenance.dataset_summary import Abandoned, DatasetError, summarize
from joblens.agent.runtime.loop import Loop
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import DatasetFinalized

_MOST_THREADS = 4  # a small dataset need not wait for a large one

Then = Callable[[DatasetFinalized], None]


def finalize(
    plan: Plan, place: int, cwd: str, is_wanted: Callable[[], bool] = lambda: True
) -> DatasetFinalized:
    """Counts and hashes a dataset of a plan. Raises Abandoned."""
    dataset = plan.datasets[place]
    began_s = time.monotonic()
    fact = partial(DatasetFinalized, place, dataset.name, dataset.path, dataset.hash_mode)
    try:
        found = summarize(os.path.join(cwd, dataset.path), dataset.hash_mode, is_wanted, shown=dataset.path)
    except DatasetError as error:
        return fact(error=str(error), duration_s=time.monotonic() - began_s)
    except (OSError, MemoryError, RecursionError) as error:
        return fact(error=f"{dataset.path}: {error}", duration_s=time.monotonic() - began_s)
    return fact(found.files, found.bytes, found.sha256, time.monotonic() - began_s)


class RunDatasets:
    def __init__(self, loop: Loop, plan: Plan, cwd: str, then: Then) -> None:
        """`then` is called on the loop for each dataset that was finalized or could not be."""
        self._loop = loop
        self._plan = plan
        self._cwd = cwd
        self._then = then
        self._wanted: SimpleQueue[int | None] = SimpleQueue()
        self._threads = 0
        self._asked = 0
        self._is_closed = False

    def finalize(self, place: int) -> None:
        self._asked += 1
        self._wanted.put(place)
        if self._threads < min(_MOST_THREADS, self._asked):
            self._threads += 1
            threading.Thread(target=self._run, name="joblens-datasets", daemon=True).start()

    def close(self) -> None:
        """A finalization under way is given up; nobody waits for it."""
        self._is_closed = True
        for _ in range(self._threads):
            self._wanted.put(None)

    def _run(self) -> None:
        while (place := self._wanted.get()) is not None and not self._is_closed:
            try:
                fact = finalize(self._plan, place, self._cwd, lambda: not self._is_closed)
            except Abandoned:
                return
            self._loop.call(partial(self._then, fact))
