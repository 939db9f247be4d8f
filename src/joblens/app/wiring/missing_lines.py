"""Writes the history lines of jobs whose process was killed between store and history file."""

import contextlib

from joblens.agent.runtime.locks import alone
from joblens.agent.runtime.pending_ends import forget_ends, pending_ends
from joblens.app.wiring.drivers import Warn, history_file
from joblens.model.errors import JoblensError, UnknownJob
from joblens.model.jobs.job import Record
from joblens.model.settings import Settings
from joblens.ports.store import Store
from joblens.probes.host.machine_load import HostFacts

_PATIENCE_S = 5.0


def write_missing_lines(store: Store, settings: Settings, spool: str, host: HostFacts, warn: Warn) -> None:
    """Cheap when there is nothing: one listing of a directory. Lines that cannot be written now wait for the
    next process."""
    if not any(pending_ends(spool, host).values()):
        return
    with alone(spool, "history", _PATIENCE_S) as is_alone, contextlib.suppress(JoblensError):
        if not is_alone:
            return
        for path, uuids in pending_ends(spool, host).items():
            records = [_find(store, uuid) for uuid in uuids]
            if settings.sinks.history.enabled:
                _add([one for one in records if one is not None and one.status.is_final], settings, warn)
            forget_ends(path, host)


def _find(store: Store, uuid: str) -> Record | None:
    """None: it was deleted meanwhile, or its end never reached the store."""
    try:
        return store.find(uuid)
    except UnknownJob:
        return None


def _add(records: list[Record], settings: Settings, warn: Warn) -> None:
    from joblens.stores.sinks.history_jsonl import HistoryJsonl

    wanted = settings.sinks.history
    sink = HistoryJsonl(history_file(settings), wanted.max_size, wanted.backup_count, warn)
    sink.add_missing(records)
    sink.close()
