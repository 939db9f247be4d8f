"""joblens: run jobs, measure exactly what each one used, remember it, say what to change."""

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers know the name; importing typing would double the time of --version

if TYPE_CHECKING:
    from joblens.analysis.profile_statistics import aggregate_profiles
    from joblens.app.api import (
        JobFailed,
        Result,
        map_commands,
        run,
    )
    from joblens.app.attaching import attach
    from joblens.app.benchmarking import BenchmarkRunner
    from joblens.app.compose import compose_advice
    from joblens.app.job_tools import JobUtils
    from joblens.app.measured import measured
    from joblens.app.monitor import JobMonitor, get_monitor
    from joblens.app.partition_advice import PartitionSizeOptimizer
    from joblens.app.processing import RecipeFailed, RecipeResult, process
    from joblens.app.profiler import ContainerResourceMonitor, ResourceProfiler, get_profiler
    from joblens.app.samples_api import samples
    from joblens.app.snapshots import ProcessingSnapshotAnalyzer, create_snapshot
    from joblens.app.spawn_api import Orchestrator, spawn_jobs
    from joblens.app.task_pipeline import TaskPipeline
    from joblens.data.logs import setup_logger
    from joblens.data.operator import Filter, Mapper
    from joblens.data.resources import ResourceDetector
    from joblens.data.user_operators import operator
    from joblens.model.errors import InputError, JoblensError

# Public name -> module that holds it. Imported on first use, so that `import joblens`
# and `joblens --version` cost nothing.
_PUBLIC = {
    "JobUtils": "joblens.app.job_tools",
    "ProcessingSnapshotAnalyzer": "joblens.app.snapshots",
    "create_snapshot": "joblens.app.snapshots",
    "BenchmarkRunner": "joblens.app.benchmarking",
    "JobMonitor": "joblens.app.monitor",
    "get_monitor": "joblens.app.monitor",
    "ResourceProfiler": "joblens.app.profiler",
    "ContainerResourceMonitor": "joblens.app.profiler",
    "get_profiler": "joblens.app.profiler",
    "aggregate_profiles": "joblens.analysis.profile_statistics",
    "compose_advice": "joblens.app.compose",
    "run": "joblens.app.api",
    "attach": "joblens.app.attaching",
    "map_commands": "joblens.app.api",
    "measured": "joblens.app.measured",
    "Result": "joblens.app.api",
    "JobFailed": "joblens.app.api",
    "InputError": "joblens.model.errors",
    "JoblensError": "joblens.model.errors",
    "samples": "joblens.app.samples_api",
    "spawn_jobs": "joblens.app.spawn_api",
    "Orchestrator": "joblens.app.spawn_api",
    "TaskPipeline": "joblens.app.task_pipeline",
    "Filter": "joblens.data.operator",
    "Mapper": "joblens.data.operator",
    "operator": "joblens.data.user_operators",
    "process": "joblens.app.processing",
    "RecipeResult": "joblens.app.processing",
    "RecipeFailed": "joblens.app.processing",
    "setup_logger": "joblens.data.logs",
    "PartitionSizeOptimizer": "joblens.app.partition_advice",
    "ResourceDetector": "joblens.data.resources",
}

__all__ = [
    "BenchmarkRunner",
    "ContainerResourceMonitor",
    "Filter",
    "InputError",
    "JobFailed",
    "JobMonitor",
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
    "TaskPipeline",
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
    globals()[name] = value  # asked for once only
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
