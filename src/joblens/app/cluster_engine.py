"""Clusters that give the jobs of a run their places: which driver each engine has, and what a run is checked
for before anything of it is written."""

import importlib
from typing import cast

from joblens.app.drivers import Warn
from joblens.model.errors import MissingExtra, how_to_install
from joblens.model.plan import Plan
from joblens.model.run import RunOptions
from joblens.model.settings import Settings
from joblens.ports.hiring import HireDesk
from joblens.ports.placer import Placer

# Where each is: its class is made with (plan, options, settings, desk, warn), which touches nothing yet.
PLACERS = {
    "ray": ("joblens.runners.ray_placer", "RayPlacer"),
    "slurm": ("joblens.runners.slurm_placer", "SlurmPlacer"),
}


def is_cluster(engine: str) -> bool:
    return engine in PLACERS


def open_placer(plan: Plan, options: RunOptions, settings: Settings, desk: HireDesk, warn: Warn) -> Placer:
    """Raises MissingExtra where its library is not installed."""
    module, name = PLACERS[options.engine]
    try:
        make = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise MissingExtra(
            f"--engine {options.engine} needs {error.name}, which is not installed",
            hint=how_to_install(options.engine),
        ) from error
    return cast(Placer, make(plan, options, settings, desk, warn))
