"""Journals of a store, for code that handles tickets."""

from contextlib import suppress

from joblens.agent.queue.lost_workers import Journals
from joblens.agent.session.context import AgentContext
from joblens.model.errors import StoreError
from joblens.stores.wrappers.journal import JournaledStore


class ContextJournals(Journals):
    def __init__(self, context: AgentContext, store: JournaledStore) -> None:
        self._context = context
        self._store = store

    def replay_own(self) -> None:
        if self._store.has_journal:
            self._context.recorder.read(lambda _: self._store.replay_own())

    def replay_abandoned(self) -> bool:
        with suppress(StoreError):
            return self._context.recorder.read(lambda _: self._store.replay_abandoned())
        return False
