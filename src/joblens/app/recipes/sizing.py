"""Sizing of a recipe's job: partitions, workers and memory from its data, the machine and earlier runs."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from joblens.analysis.recipes.data_characteristics import FieldNames, Sampled, describe, modality_of
from joblens.analysis.recipes.partition_sizing import (
    ASSUMED_MEMORY,
    MODALITY_CONFIGS,
    OperatorMemory,
    Situation,
    Sizing,
    SizingInput,
    choose_sizing,
    complexity_of,
    learn,
    most_rows,
    recommend,
)
from joblens.app.recipes.job_directory import TOOL
from joblens.app.wiring.drivers import open_store_to_read, store_exists, warn_in_python
from joblens.app.wiring.settings import load_settings
from joblens.data.files.datasets import DataFile
from joblens.data.files.sampling import expanded_bytes, sample_files, sample_of
from joblens.data.partition.resources import ResourceDetector
from joblens.model.errors import InputError, JoblensError, RecipeError
from joblens.model.history import HistoryQuery
from joblens.model.jobs.details import OperatorTable
from joblens.model.recipes.recipe import (
    DEFAULT_TARGET_MB,
    ClusterResources,
    DataCharacteristics,
    Executor,
    LocalResources,
    Modality,
    Recipe,
)
from joblens.model.values.units import GIB, MIB
from joblens.ports.store import Store

_RUNS = 20


def earlier_tables(store: Store | None = None) -> list[OperatorTable]:
    """Returns tables of the last runs; without a store, of the configured one. Empty if there is none, or
    it is unreadable: advice works without it."""
    if store is not None:
        return _tables(store)
    settings = load_settings().settings
    try:
        if not store_exists(settings):
            return []
        with contextlib.closing(open_store_to_read(settings, warn_in_python)) as opened:
            return _tables(opened)
    except JoblensError:
        return []


def _tables(store: Store) -> list[OperatorTable]:
    query = HistoryQuery(limit=_RUNS, tools=(TOOL,), include_unfinished=False)
    found = (store.details(record.job.uuid).operators for record in store.records(query))
    return [table for table in found if table is not None]


_ROWS_TO_KNOW = 1000  # needed to decide about sizes
_RAY_BYTES = 90 * MIB  # of a worker: Ray's own share
_ROWS_TO_NAME = 64  # enough to distinguish text and images


def choose(
    recipe: Recipe,
    files: Sequence[DataFile],
    *,
    is_np_given: bool = False,
    memory: OperatorMemory = ASSUMED_MEMORY,
    local: LocalResources | None = None,
    cluster: ClusterResources | None = None,
) -> Sizing:
    """`memory`: needs of these operators in earlier runs (`learned_memory`). If `local` and `cluster` are
    not given, this machine is read, and for Ray the cluster, if it exists."""
    if recipe.executor is Executor.RAY:
        memory = msgspec.structs.replace(memory, base_bytes=memory.base_bytes + _RAY_BYTES)
        cluster = cluster or _cluster(recipe)
    _check_budget(recipe, memory)
    local = local or ResourceDetector.detect_local_resources(recipe.work_dir)
    names = field_names(recipe)
    data = describe(
        sample_files(files, _ROWS_TO_KNOW if recipe.auto_configure else _ROWS_TO_NAME, names), names
    )
    sizing = choose_sizing(
        SizingInput(
            settings=recipe.partition,
            is_automatic=recipe.auto_configure,
            np=recipe.np,
            is_np_given=is_np_given,
            total_bytes=expanded_bytes(files),
            cores=max(1, cluster.available_cpu_cores) if cluster else local.cpu_cores,
            free_bytes=int((cluster or local).available_memory_gb * GIB) or None,
            budget_bytes=recipe.memory_budget_bytes,
            memory=memory,
            most_rows=most_rows(data) if recipe.auto_configure else None,
            skew=data.data_skew_factor,
            row_bytes=data.mean_bytes_per_sample,
        )
    )
    reasons = (*sizing.reasons, _data_reason(data)) if recipe.auto_configure else sizing.reasons
    return msgspec.structs.replace(sizing, modality=data.primary_modality.value, reasons=reasons)


def learned_memory(recipe: Recipe, store: Store) -> OperatorMemory:
    """Returns the memory that the recipe's operators needed in recorded runs."""
    return learn(earlier_tables(store), [call.name for call in recipe.process])


def _cluster(recipe: Recipe) -> ClusterResources | None:
    from joblens.data.executor.ray_pool import cluster_at

    return cluster_at(recipe.ray_address)


def _check_budget(recipe: Recipe, memory: OperatorMemory) -> None:
    budget = recipe.memory_budget_bytes
    if budget is not None and budget < memory.base_bytes:
        raise RecipeError(
            f"resource_optimization.memory_budget_mb: {budget / MIB:g} MiB is too little; a worker without "
            f"rows needs {memory.base_bytes / MIB:g} MiB",
            hint="raise it, or omit it to use half of the free memory",
        )


def field_names(recipe: Recipe) -> FieldNames:
    return FieldNames(
        text=recipe.text_keys[0] if recipe.text_keys else "text",
        image=recipe.image_key,
        audio=recipe.audio_key,
        video=recipe.video_key,
    )


def _data_reason(data: DataCharacteristics) -> str:
    about = "about " if data.is_total_estimated else ""
    return (
        f"{data.primary_modality.value}, {about}{data.total_samples:,} rows of "
        f"{data.mean_bytes_per_sample:,.0f} bytes on average ({data.sample_size_analyzed:,} sampled)"
    )


_ROWS = 1000  # read from files


class PartitionSizeOptimizer:
    """`cfg` is a recipe, or anything with (some of) its keys as attributes or entries: text_keys,
    image_key, audio_key, video_key, partition.target_size_mb."""

    MODALITY_CONFIGS = MODALITY_CONFIGS

    def __init__(self, cfg: Any = None) -> None:
        self.resource_detector = ResourceDetector()
        self.names = field_names(cfg) if isinstance(cfg, Recipe) else _names(cfg)
        target = _get(_get(cfg, "partition"), "target_size_mb")
        if target is not None and not (isinstance(target, int | float) and target > 0):
            raise InputError(f"partition.target_size_mb {target!r}: expected a number, more than 0")
        self._is_target_given = target is not None
        self.target_mb = float(target or DEFAULT_TARGET_MB)

    def get_partition_recommendations(self, dataset: Any, modality: Any = None) -> dict[str, Any]:
        """`dataset`: a path, folder or pattern, a list of these, rows in a list, an Arrow table, or
        anything with a length that returns a row by index. `modality`: kind of the rows; by default
        detected from them. A list of operators, as in a recipe's `process`, may be given instead."""
        names = _operators_in(modality)
        data = self.analyze_dataset_characteristics(dataset)
        if modality is not None and not names:
            data = msgspec.structs.replace(data, primary_modality=_modality(modality))
        situation = Situation(
            data=data,
            local=self.resource_detector.detect_local_resources(),
            cluster=self.resource_detector.detect_ray_cluster(),
            target_mb=self.target_mb,
            is_target_given=self._is_target_given,
            complexity=complexity_of(names),
            memory=learn(earlier_tables(), names),
        )
        return recommend(situation)

    def get_optimal_partition_size(self, dataset: Any, modality: Any = None) -> tuple[int, int]:
        """Returns rows and megabytes."""
        found = self.get_partition_recommendations(dataset, modality)
        return found["recommended_partition_size"], found["recommended_max_size_mb"]

    def analyze_dataset_characteristics(self, dataset: Any) -> DataCharacteristics:
        return describe(_sample(dataset, self.names), self.names)

    def detect_modality(self, sample: Mapping[str, Any]) -> Modality:
        return modality_of(sample, self.names)


def _sample(dataset: Any, names: FieldNames) -> Sampled:
    paths = _paths(dataset)
    if paths:
        from joblens.data.files.datasets import find_files

        return sample_files(find_files(paths), _ROWS, names)
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")) or isinstance(dataset, Mapping):
        raise InputError(
            f"cannot analyze a dataset of type {type(dataset).__name__}",
            hint="pass a path, a list of rows, an Arrow table, or any sequence of rows",
        )
    return sample_of(dataset, names)


def _paths(dataset: Any) -> tuple[str, ...]:
    if isinstance(dataset, str | os.PathLike):
        return (os.fspath(dataset),)
    is_list = isinstance(dataset, list | tuple) and bool(dataset)
    if is_list and all(isinstance(one, str | os.PathLike) for one in dataset):
        return tuple(os.fspath(one) for one in dataset)
    return ()


def _operators_in(modality: Any) -> list[str]:
    """Returns the names of `- name: {parameters}` entries."""
    if not isinstance(modality, Sequence) or isinstance(modality, str):
        return []
    return [
        next(iter(one)) if isinstance(one, Mapping) else str(getattr(one, "name", one))
        for one in modality
        if one
    ]


def _modality(word: Any) -> Modality:
    try:
        return Modality(getattr(word, "value", word))
    except ValueError:
        known = ", ".join(modality.value for modality in Modality)
        raise InputError(f"{word!r} is not a modality", hint=f"one of {known}") from None


def _names(cfg: Any) -> FieldNames:
    text = _get(cfg, "text_keys") or _get(cfg, "text_key") or "text"
    return FieldNames(
        text=text if isinstance(text, str) else text[0],
        image=_get(cfg, "image_key") or "images",
        audio=_get(cfg, "audio_key") or "audios",
        video=_get(cfg, "video_key") or "videos",
    )


def _get(values: Any, key: str) -> Any:
    return values.get(key) if isinstance(values, Mapping) else getattr(values, key, None)
