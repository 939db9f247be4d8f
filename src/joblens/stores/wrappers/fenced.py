"""Fencing: adds the token of a claim to writes, so that code which runs jobs need not know about tickets."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from joblens.model.jobs.job import Placement
from joblens.model.writes import DetailsTaken, JobEnded, JobStarted, SamplesTaken, Write
from joblens.ports.store import Store
from joblens.stores.wrappers import StoreWrapper


class FencedStore(StoreWrapper):
    """Adds fencing tokens to writes. May be used from several threads.

    Writes about jobs that this process does not hold pass unchanged. The store ignores them once anyone has
    claimed the job: a worker that released a job can no longer write about it.
    """

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self.placement: Placement | None = None  # default for all other jobs
        self.folders: Mapping[str, str] = {}  # path shown to people -> path that is written
        self._placements: dict[str, Placement] = {}
        self._store = store
        self._fences: dict[str, int] = {}

    def hold(self, uuid: str, fence: int) -> None:
        self._fences[uuid] = fence

    def drop(self, uuid: str) -> None:
        self._fences.pop(uuid, None)
        self._placements.pop(uuid, None)

    def place(self, uuid: str, placement: Placement) -> None:
        self._placements[uuid] = placement

    def placement_of(self, uuid: str) -> Placement | None:
        return self._placements.get(uuid, self.placement)

    def apply(self, writes: Sequence[Write]) -> None:
        self._store.apply([self._fenced(write) for write in writes])

    def close(self) -> None:
        self._store.close()

    def _inner(self) -> Store:
        return self._store

    def _fenced(self, write: Write) -> Write:
        if not isinstance(write, (JobStarted, SamplesTaken, DetailsTaken, JobEnded)):
            return write
        fence = self._fences.get(write.uuid)
        if fence is None:
            return write
        if isinstance(write, JobStarted):
            attempt = replace(
                write.attempt,
                number=fence,
                placement=self.placement_of(write.uuid),
                logs_dir=self._found_at(write.attempt.logs_dir),
            )
            return JobStarted(write.uuid, attempt, fence)
        return replace(write, fence=fence)

    def _found_at(self, path: str) -> str:
        for there, here in self.folders.items():
            if path == here or path.startswith(f"{here}/"):
                return there.rstrip("/") + path[len(here) :]
        return path
