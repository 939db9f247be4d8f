"""Settings in force: every value with its origin, also of settings that are not set."""

import os
import sys
from typing import Any

from msgspec import Struct, to_builtins

from joblens.app.jobs.preparation import DEFAULT_INTERVAL_S
from joblens.app.queue.notifiers import broker_folder
from joblens.app.wiring.drivers import default_journal_dir, history_file, logs_root, store_name
from joblens.model.settings import Settings
from joblens.views.setup.config import setting_values


class EffectiveValue(Struct, frozen=True, kw_only=True):
    value: Any
    origin: str  # default, FILE:LINE, 'environment NAME', 'option --NAME'


def effective_values(settings: Settings, origins: dict[str, str]) -> dict[str, EffectiveValue]:
    """Returns all settings by dotted name, without secrets."""
    values = setting_values(to_builtins(settings))
    found = {name: EffectiveValue(value=value, origin=origins[name]) for name, value in values.items()}
    for name, unset in _values_of_unset(settings).items():
        if found[name].value is None:
            found[name] = unset
    return found


def _values_of_unset(settings: Settings) -> dict[str, EffectiveValue]:
    values: dict[str, object] = {
        "job_metrics.default_sample_rate": DEFAULT_INTERVAL_S,
        "store.url": store_name(settings),
        "store.journal_dir": default_journal_dir(),
        "sinks.history.path": history_file(settings),
        "output.dir": logs_root(settings),
        "queue.broker": broker_folder(settings),
        "slurm.python": sys.executable,
    }
    found = {name: EffectiveValue(value=value, origin="default") for name, value in values.items()}
    address = os.environ.get("RAY_ADDRESS")
    if address:
        found["ray.address"] = EffectiveValue(value=address, origin="environment RAY_ADDRESS")
    return found
