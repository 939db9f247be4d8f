"""Characteristics of a dataset, estimated from a sample of rows."""

import math
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from joblens.model.recipes.recipe import DataCharacteristics, Modality
from joblens.model.values.units import MIB


class FieldNames(Struct, frozen=True, kw_only=True):
    """Fields by content."""

    text: str = "text"
    image: str = "images"
    audio: str = "audios"
    video: str = "videos"


class Sampled(Struct, frozen=True, kw_only=True):
    rows: Sequence[Mapping[str, Any]]
    sizes: Sequence[int]  # bytes of each row, with the files that it names
    total_rows: int
    weights: Sequence[float] = ()  # rows that each one represents; empty: equally many
    is_total_estimated: bool = False
    row_group_rows: int | None = None  # of a usual one, where the data has row groups


def describe(sampled: Sampled, names: FieldNames) -> DataCharacteristics:
    rows = sampled.rows
    weights = sampled.weights or [1.0] * len(rows)
    modalities = [modality_of(row, names) for row in rows]
    mean = _mean(sampled.sizes, weights)
    deviation = math.sqrt(_mean([(size - mean) ** 2 for size in sampled.sizes], weights))
    counts = Counter(modalities)
    return DataCharacteristics(
        primary_modality=_primary(modalities, weights),
        modality_distribution={modality.value: counts[modality] for modality in Modality},
        avg_text_length=_mean([_text_length(field(row, names.text)) for row in rows], weights),
        avg_images_per_sample=_mean([_files_in(row, names.image) for row in rows], weights),
        avg_audio_per_sample=_mean([_files_in(row, names.audio) for row in rows], weights),
        avg_video_per_sample=_mean([_files_in(row, names.video) for row in rows], weights),
        total_samples=sampled.total_rows,
        sample_size_analyzed=len(rows),
        memory_per_sample_mb=_ninth_tenth(sampled.sizes, weights) / MIB,
        mean_bytes_per_sample=mean,
        data_skew_factor=min(1.0, deviation / mean) if mean else 0.0,
        is_total_estimated=sampled.is_total_estimated,
        row_group_rows=sampled.row_group_rows,
    )


def modality_of(row: Mapping[str, Any], names: FieldNames) -> Modality:
    """Returns the modality by field names; rows without a known field count as text."""
    found = [
        modality
        for modality, key in (
            (Modality.TEXT, names.text),
            (Modality.IMAGE, names.image),
            (Modality.AUDIO, names.audio),
            (Modality.VIDEO, names.video),
        )
        if field(row, key)
    ]
    if len(found) > 1:
        return Modality.MULTIMODAL
    return found[0] if found else Modality.TEXT


def field(row: Mapping[str, Any], key: str) -> Any:
    """Returns a field of the row; dots in the name lead to inner fields."""
    if key in row:
        return row[key]
    value: Any = row
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def named_files(row: Mapping[str, Any], names: FieldNames) -> list[str]:
    """Returns image, audio and video files that the row names."""
    found: list[str] = []
    for key in (names.image, names.audio, names.video):
        value = field(row, key)
        several = value if isinstance(value, list | tuple) else [value]
        found += [one for one in several if isinstance(one, str)]
    return found


def _primary(modalities: Sequence[Modality], weights: Sequence[float]) -> Modality:
    rows = dict.fromkeys(Modality, 0.0)
    for modality, weight in zip(modalities, weights, strict=True):
        rows[modality] += weight
    return max(Modality, key=lambda modality: rows[modality])


def _text_length(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    return sum(len(part) for part in value if isinstance(part, str)) if isinstance(value, list | tuple) else 0


def _files_in(row: Mapping[str, Any], key: str) -> int:
    value = field(row, key)
    return len(value) if isinstance(value, list | tuple) else int(bool(value))


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = sum(weights)
    return sum(map(operator.mul, values, weights)) / total if total else 0.0


def _ninth_tenth(sizes: Sequence[int], weights: Sequence[float]) -> int:
    """Returns the size that nine of ten rows do not exceed."""
    remaining_weight = 0.9 * sum(weights)
    largest = 0
    for size, weight in sorted(zip(sizes, weights, strict=True)):
        largest = size
        remaining_weight -= weight
        if remaining_weight < 0:
            break
    return largest
