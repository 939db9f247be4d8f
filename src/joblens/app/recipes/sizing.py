"""Partitions, workers and memory of a recipe's job: by what it says, or by its data and the machine."""

from collections.abc import Sequence

import msgspec

from joblens.analysis.recipes.data_characteristics import FieldNames, describe
from joblens.analysis.recipes.operator_memory import learn
from joblens.analysis.recipes.partition_sizing import (
    ASSUMED_MEMORY,
    OperatorMemory,
    Sizing,
    SizingInput,
    choose_sizing,
    most_rows,
)
from joblens.app.recipes.earlier_operators import earlier_tables
from joblens.data.files.datasets import DataFile
from joblens.data.files.sampling import expanded_bytes, sample_files
from joblens.data.partition.resources import ResourceDetector
from joblens.model.errors import RecipeError
from joblens.model.recipes.recipe import Executor, Recipe
from joblens.model.recipes.resources import ClusterResources, DataCharacteristics, LocalResources
from joblens.model.values.units import GIB, MIB
from joblens.ports.store import Store

_ROWS_TO_KNOW = 1000  # what sizes are decided on
_RAY_BYTES = 90 * MIB  # of a worker: Ray's own part of it
_ROWS_TO_NAME = 64  # enough to say whether it is text or images


def choose(
    recipe: Recipe,
    files: Sequence[DataFile],
    *,
    is_np_given: bool = False,
    memory: OperatorMemory = ASSUMED_MEMORY,
    local: LocalResources | None = None,
    cluster: ClusterResources | None = None,
) -> Sizing:
    """`memory` is what earlier runs of these operators needed (`learned_memory`). Where `local` and `cluster`
    are not given this machine is looked at, and for Ray the cluster, if there is one already."""
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
    """What the recipe's operators needed in the runs that the store knows of."""
    return learn(earlier_tables(store), [call.name for call in recipe.process])


def _cluster(recipe: Recipe) -> ClusterResources | None:
    from joblens.data.executor.ray_pool import cluster_at

    return cluster_at(recipe.ray_address)


def _check_budget(recipe: Recipe, memory: OperatorMemory) -> None:
    budget = recipe.memory_budget_bytes
    if budget is not None and budget < memory.base_bytes:
        raise RecipeError(
            f"resource_optimization.memory_budget_mb: {budget / MIB:g} MiB are too little, a worker without "
            f"rows needs {memory.base_bytes / MIB:g} MiB",
            hint="give more, or leave it out: then half of the free memory is used",
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
        f"{data.mean_bytes_per_sample:,.0f} bytes on average ({data.sample_size_analyzed:,} looked at)"
    )
