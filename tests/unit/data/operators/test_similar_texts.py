import pytest

from joblens.data.base.operator import OperatorContext
from joblens.data.registry import lookup as registry
from joblens.model.errors import InputError
from joblens.model.recipes.recipe import OperatorCall


def checked(name: str, **params: object) -> None:
    registry.make(OperatorCall(index=0, name=name, params=params), OperatorContext()).check()


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("document_minhash_deduplicator", {"tokenization": "words"}, "tokenization"),
        ("document_minhash_deduplicator", {"window_size": 0}, "window_size"),
        ("document_minhash_deduplicator", {"jaccard_threshold": 1.5}, "jaccard_threshold"),
        ("document_minhash_deduplicator", {"ignore_pattern": "("}, "regular expression"),
        ("document_minhash_deduplicator", {"num_bands": 30, "num_rows_per_band": 10}, "300 permutations"),
        ("document_minhash_deduplicator", {"tokenization": "sentencepiece"}, "tokenizer_model"),
        ("document_simhash_deduplicator", {"hamming_distance": 6}, "num_blocks"),
        ("document_simhash_deduplicator", {"num_blocks": 65}, "num_blocks"),
        ("random_selector", {"select_ratio": 2}, "select_ratio"),
        ("random_selector", {"select_ratio": 0}, "select_ratio"),
        ("random_selector", {"select_num": 0}, "select_num"),
        ("ray_document_deduplicator", {"backend": "memory"}, "backend"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    name: str, params: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        checked(name, **params)


def test_a_tokenizer_that_is_not_there_is_reported(tmp_path: object) -> None:
    with pytest.raises(InputError, match=r"sentencepiece|model"):
        checked(
            "document_minhash_deduplicator",
            tokenization="sentencepiece",
            tokenizer_model=f"{tmp_path}/none.model",
        )
