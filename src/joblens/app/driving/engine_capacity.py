"""Capacity of the engine that is to carry out a run: this machine, workers of a queue, or a cluster."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from joblens.app.wiring.drivers import Warn
from joblens.engine.schedule.capacity import RunCapacity
from joblens.model.clusters.preview import ClusterPreview
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import RunOptions
from joblens.model.settings import Settings
from joblens.plan.workflows.stages import Stage


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

    def offer(self) -> RunCapacity:
        """For a rehearsal of the run, after `preview`."""
        ...

    def close(self) -> None: ...


def open_engine(
    plan: Plan, options: RunOptions, settings: Settings, config: str | None, warn: Warn
) -> EngineCapacity:
    """Raises MissingExtra where a library is not installed, InputError for a broker or an address that cannot
    be one."""
    if options.engine == "local":
        from joblens.app.wiring.machine_capacity import MachineCapacity

        return MachineCapacity(plan, options)
    from joblens.app.clusters.engine import ClusterCapacity, is_cluster
    from joblens.app.queue.notifiers import settings_of_run

    settings = settings_of_run(settings, options)
    if is_cluster(options.engine):
        return ClusterCapacity(plan, options, settings, config, warn)
    from joblens.app.driving.queue_engine import QueueCapacity

    return QueueCapacity(plan, options, settings, warn)
