"""Workflows that are brought in now and run later."""

import os
from collections.abc import Sequence

from joblens.app.jobs.preparation import parse_params
from joblens.app.runs.records import create_run
from joblens.app.wiring.drivers import Warn, open_store_directly
from joblens.app.workflows.loading import load_spec
from joblens.model.runs.run import Run, RunOptions
from joblens.model.settings import Settings


def create_from_file(
    path: str, params: Sequence[str], settings: Settings, warn: Warn, *, monitor: bool
) -> Run:
    """The workflow with a run that has not begun."""
    parameters = parse_params(params)
    loaded = load_spec(path, parameters)
    for warning in loaded.warnings_for():
        warn(warning)
    options = RunOptions(cwd=os.getcwd(), parameters=parameters, monitor=monitor)
    store = open_store_directly(settings, warn)
    try:
        return create_run(store, os.path.abspath(path), loaded, options, settings)
    finally:
        store.close()
