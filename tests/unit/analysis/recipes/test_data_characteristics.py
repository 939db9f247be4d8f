"""What a sample says of its data."""

from joblens.analysis.recipes.data_characteristics import (
    FieldNames,
    Sampled,
    describe,
    modality_of,
    named_files,
)
from joblens.model.recipes.recipe import Modality

NAMES = FieldNames()


def test_the_modality_of_a_row_is_what_it_has() -> None:
    assert modality_of({"text": "a"}, NAMES) is Modality.TEXT
    assert modality_of({"images": ["a.png"]}, NAMES) is Modality.IMAGE
    assert modality_of({"text": "", "audios": ["a.wav"]}, NAMES) is Modality.AUDIO
    assert modality_of({"text": "a", "videos": ["a.mp4"]}, NAMES) is Modality.MULTIMODAL
    assert modality_of({}, NAMES) is Modality.TEXT


def test_fields_have_the_names_they_were_given_also_inside_of_others() -> None:
    names = FieldNames(text="body.content", image="pictures")
    assert modality_of({"body": {"content": "a"}}, names) is Modality.TEXT
    assert modality_of({"body": "a", "pictures": "one.png"}, names) is Modality.IMAGE
    assert named_files({"pictures": "one.png", "audios": ["a", {"bytes": b""}]}, names) == ["one.png", "a"]


def test_most_rows_decide_about_the_whole() -> None:
    rows: list[dict[str, object]] = [{"images": ["a"]}, {"images": ["a", "b"]}, {"text": "abc"}]
    found = describe(Sampled(rows=rows, sizes=[10, 20, 30], total_rows=300), NAMES)
    assert found.primary_modality is Modality.IMAGE
    assert found.modality_distribution["image"] == 2
    assert (found.avg_text_length, found.avg_images_per_sample, found.total_samples) == (1.0, 1.0, 300)


def test_rows_count_for_as_many_as_they_stand_for() -> None:
    rows: list[dict[str, object]] = [{"text": "a" * 10}, {"images": ["b"]}]
    found = describe(Sampled(rows=rows, sizes=[10, 1000], weights=[99.0, 1.0], total_rows=100), NAMES)
    assert found.primary_modality is Modality.TEXT
    assert found.mean_bytes_per_sample == 19.9
    assert found.memory_per_sample_mb == 10 / 2**20


def test_alike_rows_have_no_skew_and_different_ones_no_more_than_one() -> None:
    alike = describe(Sampled(rows=[{}] * 3, sizes=[7] * 3, total_rows=3), NAMES)
    different = describe(Sampled(rows=[{}] * 50, sizes=[1] * 49 + [100_000], total_rows=50), NAMES)
    assert (alike.data_skew_factor, different.data_skew_factor) == (0.0, 1.0)


def test_no_rows_are_no_trouble() -> None:
    found = describe(Sampled(rows=[], sizes=[], total_rows=0), NAMES)
    assert (found.primary_modality, found.memory_per_sample_mb) == (Modality.TEXT, 0.0)
