"""`joblens.spawn_jobs` and `joblens.Orchestrator`: jobs that add jobs to their run, from Python."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from joblens.app.runs.spawning import Caller, LineageState, Spawned, lineage_state, spawn_in_run
from joblens.app.wiring.drivers import open_store_directly
from joblens.app.wiring.settings import load_settings
from joblens.model.errors import BatchRefused, InputError
from joblens.model.settings import Settings
from joblens.plan.workflows.spawning import LINEAGE_VARIABLES
from joblens.ports.store import Store
from joblens.spec.workflows.spawn_file import read_spawn


def spawn_jobs(jobs: Iterable[Any] = (), *, lineage: str | None = None, state: Any = None) -> Spawned:
    """Adds jobs to the run of the job that calls: mappings with the keys of a job in a workflow file. They
    wait until this job has succeeded. Without jobs: stores the final state of the lineage. Raises InputError
    where something is wrong, and adds nothing then."""
    caller = Caller.of(os.environ)
    reading = read_spawn({"jobs": [_plain(job) for job in jobs]})
    if reading.problems:
        raise BatchRefused(reading.problems)
    with _opened() as (store, settings):
        return spawn_in_run(store, settings, caller, reading.jobs, lineage=lineage, state=state)


class Orchestrator:
    """A loop of jobs that add jobs, as one of them sees it: where its lineage stands, and what comes next."""

    def __init__(self, lineage: str | None = None) -> None:
        """`lineage`: name of the loop. Default: the one this job was added in, else this job's name."""
        self._caller = Caller.of(os.environ)
        self.lineage = self._caller.lineage if lineage is None else lineage
        self._standing: LineageState | None = None

    @classmethod
    def from_env(cls, *, lineage_fallback: str | None = None) -> "Orchestrator":
        """`lineage_fallback`: for the first job of the loop, which no job has added."""
        is_continued = any(os.environ.get(name) for name in LINEAGE_VARIABLES)
        return cls(None if is_continued else lineage_fallback)

    @property
    def generation(self) -> int:
        """How often the lineage has added jobs; 0 in its first job."""
        return self._now().iteration

    @property
    def state(self) -> Any:
        """As the last call stored it; None before the first."""
        return self._now().state

    def spawn(self, jobs: Iterable[Any], *, state: Any = None) -> Spawned:
        """Adds jobs and stores the state."""
        self._standing = None
        return spawn_jobs(jobs, lineage=self.lineage, state=state)

    def converge(self, *, state: Any = None) -> Spawned:
        """Stores the final state, and adds no jobs."""
        return self.spawn((), state=state)

    def _now(self) -> LineageState:
        if self._standing is None:
            with _opened() as (store, settings):
                run = store.find_run(self._caller.run_uuid)
                self._standing = lineage_state(run, self.lineage, settings)
        return self._standing


@contextmanager
def _opened() -> Iterator[tuple[Store, Settings]]:
    settings = load_settings(warn=_warn).settings
    store = open_store_directly(settings, _warn)
    try:
        yield store, settings
    finally:
        store.close()


def _plain(job: Any) -> Any:
    """Models of other clients have to_dict()."""
    if isinstance(job, Mapping):
        return dict(job)
    as_dict = getattr(job, "to_dict", None)
    if as_dict is None:
        raise InputError(f"a job is a mapping with name and command, not {type(job).__name__}")
    return as_dict()


def _warn(message: str) -> None:
    sys.stderr.write(f"joblens: warning: {message}\n")
