"""Recommended partitions for a dataset, for people and programs that cut it themselves."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from joblens.analysis.recipes.data_characteristics import FieldNames, Sampled, describe, modality_of
from joblens.analysis.recipes.operator_memory import learn
from joblens.analysis.recipes.partition_recommendation import Situation, complexity_of, recommend
from joblens.analysis.recipes.partition_sizing import MODALITY_CONFIGS
from joblens.app.recipes.earlier_operators import earlier_tables
from joblens.app.recipes.sizing import field_names
from joblens.data.files.sampling import sample_files, sample_of
from joblens.data.partition.resources import ResourceDetector
from joblens.model.errors import InputError
from joblens.model.recipes.recipe import DEFAULT_TARGET_MB, Recipe
from joblens.model.recipes.resources import DataCharacteristics, Modality

_ROWS = 1000  # looked at in files


class PartitionSizeOptimizer:
    """`cfg` is a recipe, or anything with (some of) its keys as attributes or entries: text_keys, image_key,
    audio_key, video_key, partition.target_size_mb."""

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
        """`dataset`: a path, folder or pattern, a list of these, rows in a list, an Arrow table, or anything
        with a length that gives a row for its number. `modality`: what the rows are; without it that is found
        from them. A list of operators, as in a recipe's `process`, may stand in its place."""
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
        """Rows and megabytes."""
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
            f"cannot look at a dataset of type {type(dataset).__name__}",
            hint="give a path, a list of rows, an Arrow table, or anything with a length and numbered rows",
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
    """Names of `- name: {parameters}` entries."""
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
        raise InputError(f"{word!r} is no modality", hint=f"one of {known}") from None


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
