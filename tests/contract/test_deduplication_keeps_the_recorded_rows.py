"""Which rows deduplicators and selectors keep, against what DataJuicer 1.6.1 kept of the same texts
(tests/record_deduplication_fixture.py), however the rows are cut into partitions."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from joblens.data.base.operator import GlobalOperator, OperatorContext, Signatures
from joblens.data.registry import lookup as registry
from joblens.model.recipes.recipe import OperatorCall

RECORDED = json.loads((Path(__file__).parent.parent / "fixtures/recipes/deduplication.json").read_text())
AMPLE = 1 << 30
SCANT = 5000  # bytes: rows are looked at in several goes, and numbers are kept in files


def kept(
    operator: GlobalOperator, texts: list[str | None], sizes: list[int], budget: int, scratch: Path
) -> list[int]:
    parts = []
    for number, size in enumerate(sizes):
        first = sum(sizes[:number])
        column = pa.array(texts[first : first + size], pa.large_string())
        batch = pa.RecordBatch.from_arrays([column], names=["text"])
        parts.append(Signatures(number, size, in_file(operator.signatures(batch), scratch / str(number))))
    masks = list(operator.decide(parts, budget_bytes=budget, scratch=str(scratch)))
    assert [len(mask) for mask in masks] == sizes
    flat = [keep for mask in masks for keep in mask.to_pylist()]
    return [row for row, keep in enumerate(flat) if keep]


def in_file(batch: Any, path: Path) -> Any:
    """As signatures come to the one who decides: mapped."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)


def made(name: str, params: dict[str, Any]) -> GlobalOperator:
    operator = registry.make(OperatorCall(index=0, name=name, params=params), OperatorContext())
    operator.check()
    assert isinstance(operator, GlobalOperator)
    return operator


@pytest.mark.parametrize(
    "case", RECORDED["cases"], ids=[f"{case['name']}-{case['params']}" for case in RECORDED["cases"]]
)
def test_the_rows_are_those_of_datajuicer(case: dict[str, Any], tmp_path: Path) -> None:
    texts = RECORDED["texts"]
    operator = made(case["name"], case["params"])
    assert kept(operator, texts, [len(texts)], AMPLE, tmp_path) == case["kept"]


@pytest.mark.parametrize("sizes", [[1, 200, 0, 200], [100, 100, 100, 101]])
@pytest.mark.parametrize("budget", [AMPLE, SCANT])
@pytest.mark.parametrize(
    "name",
    [
        "document_deduplicator",
        "ray_document_deduplicator",
        "document_minhash_deduplicator",
        "document_simhash_deduplicator",
        "random_selector",
    ],
)
def test_neither_partitions_nor_memory_change_the_rows(
    name: str, sizes: list[int], budget: int, tmp_path: Path
) -> None:
    texts = RECORDED["texts"]
    case = next(case for case in reversed(RECORDED["cases"]) if case["name"] == name)
    assert kept(made(name, case["params"]), texts, sizes, budget, tmp_path) == case["kept"]


@pytest.mark.parametrize("name", sorted({case["name"] for case in RECORDED["cases"]}))
def test_no_rows_at_all_are_no_trouble(name: str, tmp_path: Path) -> None:
    assert kept(made(name, {}), [], [0, 0], AMPLE, tmp_path) == []
    assert kept(made(name, {}), [], [], AMPLE, tmp_path) == []
    assert kept(made(name, {}), ["only one"], [1], AMPLE, tmp_path) == [0]


def test_a_text_that_is_null_counts_as_an_empty_one(tmp_path: Path) -> None:
    texts = [None, "a", "", None, "a"]
    assert kept(made("document_deduplicator", {}), texts, [2, 3], AMPLE, tmp_path) == [0, 1]
    assert kept(made("document_minhash_deduplicator", {"window_size": 1}), texts, [5], AMPLE, tmp_path) == [
        0,
        1,
    ]
