"""joblens: run jobs, measure exactly what each one used, store it, and suggest what to change."""

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers know the name; importing typing would double the time of --version

if TYPE_CHECKING:
    from joblens.analysis.numbers.profile_statistics import aggregate_profiles
    from joblens.app.bench.runner import BenchmarkRunner
    from joblens.app.driving.api import RunFailed, RunResult, WorkflowJob, run_workflow
    from joblens.app.driving.events import (
        JobEnded,
        JobRetried,
        JobSkipped,
        JobStarted,
        RunEnded,
        RunStarted,
    )
    from joblens.app.in_process.measured import measured
    from joblens.app.in_process.monitor import JobMonitor, get_monitor, samples
    from joblens.app.in_process.profiler import ContainerResourceMonitor, ResourceProfiler, get_profiler
    from joblens.app.jobs.api import (
        JobFailed,
        Result,
        map_commands,
        run,
    )
    from joblens.app.jobs.attach import attach
    from joblens.app.queue.task_pipeline import TaskPipeline
    from joblens.app.recipes.job_tools import JobUtils
    from joblens.app.recipes.process import RecipeFailed, RecipeResult, process
    from joblens.app.recipes.sizing import PartitionSizeOptimizer
    from joblens.app.recipes.snapshots import ProcessingSnapshotAnalyzer, create_snapshot
    from joblens.app.remote.async_client import AsyncClient
    from joblens.app.remote.client import Client
    from joblens.app.reports.rightsizing import compose_advice
    from joblens.app.runs.spawn import Orchestrator, spawn_jobs
    from joblens.data.base.operator import Filter, Mapper
    from joblens.data.logging.rotating_log import setup_logger
    from joblens.data.partition.resources import ResourceDetector
    from joblens.data.registry.user_operators import operator
    from joblens.model.errors import InputError, JoblensError, SpecError

# Public name -> its module. Imported on first use, so that `import joblens` and `joblens --version` cost
# nothing.
_PUBLIC = {
    "JobUtils": "joblens.app.recipes.job_tools",
    "ProcessingSnapshotAnalyzer": "joblens.app.recipes.snapshots",
    "create_snapshot": "joblens.app.recipes.snapshots",
    "BenchmarkRunner": "joblens.app.bench.runner",
    "Client": "joblens.app.remote.client",
    "AsyncClient": "joblens.app.remote.async_client",
    "JobMonitor": "joblens.app.in_process.monitor",
    "get_monitor": "joblens.app.in_process.monitor",
    "ResourceProfiler": "joblens.app.in_process.profiler",
    "ContainerResourceMonitor": "joblens.app.in_process.profiler",
    "get_profiler": "joblens.app.in_process.profiler",
    "aggregate_profiles": "joblens.analysis.numbers.profile_statistics",
    "compose_advice": "joblens.app.reports.rightsizing",
    "run": "joblens.app.jobs.api",
    "attach": "joblens.app.jobs.attach",
    "map_commands": "joblens.app.jobs.api",
    "measured": "joblens.app.in_process.measured",
    "Result": "joblens.app.jobs.api",
    "JobFailed": "joblens.app.jobs.api",
    "run_workflow": "joblens.app.driving.api",
    "RunResult": "joblens.app.driving.api",
    "RunFailed": "joblens.app.driving.api",
    "WorkflowJob": "joblens.app.driving.api",
    "RunStarted": "joblens.app.driving.events",
    "JobStarted": "joblens.app.driving.events",
    "JobEnded": "joblens.app.driving.events",
    "JobRetried": "joblens.app.driving.events",
    "JobSkipped": "joblens.app.driving.events",
    "RunEnded": "joblens.app.driving.events",
    "InputError": "joblens.model.errors",
    "JoblensError": "joblens.model.errors",
    "SpecError": "joblens.model.errors",
    "samples": "joblens.app.in_process.monitor",
    "spawn_jobs": "joblens.app.runs.spawn",
    "Orchestrator": "joblens.app.runs.spawn",
    "TaskPipeline": "joblens.app.queue.task_pipeline",
    "Filter": "joblens.data.base.operator",
    "Mapper": "joblens.data.base.operator",
    "operator": "joblens.data.registry.user_operators",
    "process": "joblens.app.recipes.process",
    "RecipeResult": "joblens.app.recipes.process",
    "RecipeFailed": "joblens.app.recipes.process",
    "setup_logger": "joblens.data.logging.rotating_log",
    "PartitionSizeOptimizer": "joblens.app.recipes.sizing",
    "ResourceDetector": "joblens.data.partition.resources",
}

__all__ = [
    "AsyncClient",
    "BenchmarkRunner",
    "Client",
    "ContainerResourceMonitor",
    "Filter",
    "InputError",
    "JobEnded",
    "JobFailed",
    "JobMonitor",
    "JobRetried",
    "JobSkipped",
    "JobStarted",
    "JobUtils",
    "JoblensError",
    "Mapper",
    "Orchestrator",
    "PartitionSizeOptimizer",
    "ProcessingSnapshotAnalyzer",
    "RecipeFailed",
    "RecipeResult",
    "ResourceDetector",
    "ResourceProfiler",
    "Result",
    "RunEnded",
    "RunFailed",
    "RunResult",
    "RunStarted",
    "SpecError",
    "TaskPipeline",
    "WorkflowJob",
    "__version__",
    "aggregate_profiles",
    "attach",
    "compose_advice",
    "create_snapshot",
    "get_monitor",
    "get_profiler",
    "map_commands",
    "measured",
    "operator",
    "process",
    "run",
    "run_workflow",
    "samples",
    "setup_logger",
    "spawn_jobs",
]


def __getattr__(name: str) -> object:
    module_name = _PUBLIC.get(name)
    if module_name is None:
        raise AttributeError(f"module 'joblens' has no attribute {name!r}")
    import importlib
    import sys

    try:
        value = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        if sys.platform.startswith("linux"):
            raise
        raise ImportError(f"joblens.{name} works on Linux only: {error}") from error
    globals()[name] = value  # looked up only once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
