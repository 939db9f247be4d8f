"""What operators used in earlier runs of recipes, from the store."""

import contextlib

from joblens.app.wiring.drivers import open_store_to_read, store_is_there, warn_in_python
from joblens.app.wiring.settings import load_settings
from joblens.model.errors import JoblensError
from joblens.model.history import HistoryQuery
from joblens.model.jobs.details import OperatorTable
from joblens.ports.store import Store

RECIPE_TOOL = "recipe"  # what jobs of recipes are called in the history
_RUNS = 20


def earlier_tables(store: Store | None = None) -> list[OperatorTable]:
    """Of the last runs; without a store of the one that the configuration names. Nothing where there is none,
    or it cannot be read: this is for advice, which is given without it too."""
    if store is not None:
        return _tables(store)
    settings = load_settings().settings
    try:
        if not store_is_there(settings):
            return []
        with contextlib.closing(open_store_to_read(settings, warn_in_python)) as opened:
            return _tables(opened)
    except JoblensError:
        return []


def _tables(store: Store) -> list[OperatorTable]:
    query = HistoryQuery(limit=_RUNS, tools=(RECIPE_TOOL,), include_unfinished=False)
    found = (store.details(record.job.uuid).operators for record in store.records(query))
    return [table for table in found if table is not None]
