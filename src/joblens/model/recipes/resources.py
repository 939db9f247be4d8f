"""What a machine or a cluster has to give to a recipe, and what its data is like."""

import enum

from msgspec import Struct


class Modality(enum.StrEnum):
    TEXT = "text"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    MULTIMODAL = "multimodal"  # rows with more than one of them


class LocalResources(Struct, frozen=True, kw_only=True):
    """What this process may use: the limits of its groups count, not only what is built in."""

    cpu_cores: int
    available_memory_gb: float
    total_memory_gb: float
    gpu_count: int
    gpu_memory_gb: float | None = None  # of the smallest; None: no GPU, or it does not tell
    disk_space_gb: float | None = None


class ClusterResources(Struct, frozen=True, kw_only=True):
    num_nodes: int
    total_cpu_cores: int
    available_cpu_cores: int
    total_memory_gb: float
    available_memory_gb: float
    gpu_resources: dict[str, float] = {}
    smallest_node_memory_gb: float | None = None  # a partition has to fit into any of them


class DataCharacteristics(Struct, frozen=True, kw_only=True):
    """What a sample that is spread over the data says of all of it."""

    primary_modality: Modality
    modality_distribution: dict[str, int]  # rows of the sample
    avg_text_length: float
    avg_images_per_sample: float
    avg_audio_per_sample: float
    avg_video_per_sample: float
    total_samples: int  # estimated where rows could only be counted by reading everything
    sample_size_analyzed: int
    memory_per_sample_mb: float  # nine of ten rows take no more
    mean_bytes_per_sample: float
    data_skew_factor: float  # 0 all rows alike, 1 very different
    is_total_estimated: bool = False
    row_group_rows: int | None = None  # of Parquet files
