"""Capacity of the engine that is to carry out a run: this machine, workers of a queue, or a cluster."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from joblens.app.drivers import Warn
from joblens.engine.offer import Offer
from joblens.model.cluster_preview import ClusterPreview
from joblens.model.plan import Plan
from joblens.model.run import RunOptions
from joblens.model.settings import Settings
from joblens.plan.stages import Stage


class EngineCapacity(Protocol):
    """Asked before a run exists: it writes nothing, submits nothing and starts nothing."""

    def check(self, places: Collection[int]) -> None:
        """Raises PlanError for jobs that could never start, PlacingError where the engine does not answer."""
        ...

    def preview(
        self, stages: Sequence[Stage], places: Collection[int], expected_s: Mapping[int, float]
    ) -> ClusterPreview:
        """Capacity and requests of a run of these jobs. `expected_s`: how long they took before."""
        ...

    def offer(self) -> Offer:
        """For a rehearsal of the run, after `preview`."""
        ...

    def close(self) -> None: ...


def open_engine(
    plan: Plan, options: RunOptions, settings: Settings, config: str | None, warn: Warn
) -> EngineCapacity:
    """Raises MissingExtra where a library is not installed, InputError for a broker or an address that cannot
    be one."""
    if options.engine == "local":
        from joblens.app.machine_offer import MachineCapacity

        return MachineCapacity(plan, options)
    from joblens.app.bells import settings_of_run
    from joblens.app.cluster_engine import ClusterCapacity, is_cluster

    settings = settings_of_run(settings, options)
    if is_cluster(options.engine):
        return ClusterCapacity(plan, options, settings, config, warn)
    from joblens.app.run_engine import QueueCapacity

    return QueueCapacity(plan, options, settings, warn)
