"""Recommended partitions of real files, with what a real store remembers of operators; what a recipe's job is
planned with."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

import joblens
from joblens.app.recipes.sizing import choose, earlier_tables, learned_memory
from joblens.data.files.datasets import find_files
from joblens.model.errors import InputError, MissingExtra, RecipeError
from joblens.model.jobs.details import Details, OperatorTable, OperatorUse
from joblens.model.jobs.job import Job, Outcome, Status
from joblens.model.recipes.recipe import (
    ClusterResources,
    Executor,
    LocalResources,
    OperatorCall,
    PartitionSettings,
    Recipe,
)
from joblens.model.values.units import GIB, MIB
from joblens.model.writes import DetailsTaken, JobEnded, JobQueued, JobStarted
from joblens.stores.sqlite import SqliteStore
from tests.builders.past_jobs import attempt
from tests.builders.records import START_US

MACHINE = LocalResources(cpu_cores=4, available_memory_gb=8, total_memory_gb=16, gpu_count=0)
UUID = "9d1c0000-1111-4222-8333-444455556666"
HUNGRY = "clean_html_mapper"


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return lines(tmp_path / "pages.jsonl", [{"text": "x" * 1000} for _ in range(3000)])


@pytest.fixture
def store(store_path: Path) -> SqliteStore:
    """In which one job of a recipe needed 20 bytes for each byte of its partitions."""
    store_path.parent.mkdir()
    made = SqliteStore(str(store_path))
    job = Job(uuid=UUID, argv=("clean",), created_at_us=START_US, name="clean", tool="recipe")
    use = OperatorUse(index=0, name=HUNGRY, memory_peak_bytes=(80 + 20 * 64) * MIB)
    table = OperatorTable(at_us=START_US, operators=(use,), largest_partition_bytes=64 * MIB)
    made.apply(
        [
            JobQueued(job),
            JobStarted(job.uuid, attempt()),
            DetailsTaken(job.uuid, Details(operators=table)),
            JobEnded(job.uuid, Outcome(status=Status.SUCCESS, ended_at_us=START_US + 1, duration_s=1e-6)),
        ]
    )
    return made


def recipe(data: Path, **values: Any) -> Recipe:
    process = values.pop("process", (OperatorCall(index=0, name=HUNGRY),))
    return Recipe(
        dataset_path=(str(data),),
        export_path="out.jsonl",
        work_dir=str(data.parent),
        process=process,
        **values,
    )


def test_a_path_is_enough_to_get_a_recommendation(pages: Path) -> None:
    found = joblens.PartitionSizeOptimizer().get_partition_recommendations(str(pages))
    assert found["primary_modality"] == "text"
    assert found["recommended_partition_size"] == 33_554
    assert found["recommended_worker_count"] == 1
    assert found["data_characteristics"]["total_samples"] == pytest.approx(3000, rel=0.02)
    more = lines(pages.with_name("more.jsonl"), [{"text": "x" * 1000}] * 3000)
    several = joblens.PartitionSizeOptimizer().get_partition_recommendations([pages, str(more)])
    assert several["data_characteristics"]["total_samples"] == pytest.approx(6000, rel=0.02)


def test_rows_tables_and_files_of_the_same_data_are_judged_alike(tmp_path: Path) -> None:
    rows = [{"text": "x" * 2000, "id": number} for number in range(900)]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    optimizer = joblens.PartitionSizeOptimizer()
    sizes = [
        optimizer.get_optimal_partition_size(dataset)
        for dataset in (rows, table, lines(tmp_path / "a.jsonl", rows))
    ]
    assert sizes[0] == sizes[1] == sizes[2] == (16_777, 64)
    assert optimizer.get_optimal_partition_size(tmp_path / "a.parquet") == (16_500, 64)


def test_the_modality_is_found_or_given() -> None:
    rows = [{"images": ["a.png"], "caption": "a"}] * 50
    optimizer = joblens.PartitionSizeOptimizer({"image_key": "images"})
    assert optimizer.get_partition_recommendations(rows)["primary_modality"] == "image"
    assert optimizer.get_partition_recommendations(rows, "video")["primary_modality"] == "video"
    with pytest.raises(InputError, match="'smell' is not a modality"):
        optimizer.get_partition_recommendations(rows, "smell")


def test_a_target_may_be_configured_and_nonsense_is_refused(pages: Path) -> None:
    optimizer = joblens.PartitionSizeOptimizer({"partition": {"target_size_mb": 8}})
    assert optimizer.get_optimal_partition_size(pages)[0] == 4194
    with pytest.raises(InputError, match="target_size_mb"):
        joblens.PartitionSizeOptimizer({"partition": {"target_size_mb": "much"}})
    for dataset in (5, {"text": "a"}):
        with pytest.raises(InputError, match="cannot analyze a dataset"):
            joblens.PartitionSizeOptimizer().get_partition_recommendations(dataset)


def test_what_operators_needed_before_is_found_in_the_store(pages: Path, store: SqliteStore) -> None:
    store.close()
    found = joblens.PartitionSizeOptimizer().get_partition_recommendations(pages, [{HUNGRY: None}])
    assert "24.0 times its partition (measured in 1 earlier run" in found["reasoning"]["operator_memory"]


def test_without_a_store_nothing_is_known_and_none_is_made(store_path: Path) -> None:
    assert earlier_tables() == []
    assert not store_path.exists()


def test_a_job_is_planned_with_what_its_operators_needed_before(pages: Path, store: SqliteStore) -> None:
    wish = recipe(pages, memory_budget_bytes=120 * MIB, np=1)
    files = find_files(wish.dataset_path)
    learned = learned_memory(wish, store)
    store.close()
    assert learned.per_byte == pytest.approx(24.0)
    usual = choose(wish, files, local=MACHINE)
    frugal = choose(wish, files, local=MACHINE, memory=learned)
    assert usual.target_bytes == 32 * MIB  # 64 as they are in memory: all of the data fits
    assert frugal.target_bytes == int(40 * MIB / learned.per_byte)


def test_rows_that_name_files_make_partitions_by_these(tmp_path: Path) -> None:
    (tmp_path / "large.png").write_bytes(bytes(MIB))
    data = lines(tmp_path / "a.jsonl", [{"images": ["large.png"]} for _ in range(500)])
    files = find_files((str(data),))
    chosen = choose(recipe(data, auto_configure=True), files, local=MACHINE)
    assert (chosen.modality, chosen.rows_per_partition) == ("image", 63)
    by_hand = choose(recipe(data, partition=PartitionSettings(size=7)), files, local=MACHINE)
    assert (by_hand.modality, by_hand.rows_per_partition) == ("image", 7)


def test_a_budget_that_no_worker_can_keep_is_refused(pages: Path) -> None:
    with pytest.raises(RecipeError, match="memory_budget_mb: 10 MiB is too little"):
        choose(recipe(pages, memory_budget_bytes=10 * MIB), find_files((str(pages),)), local=MACHINE)


def test_a_job_for_ray_is_planned_for_the_cluster(pages: Path) -> None:
    cluster = ClusterResources(
        num_nodes=3,
        total_cpu_cores=30,
        available_cpu_cores=20,
        total_memory_gb=100,
        available_memory_gb=60,
        smallest_node_memory_gb=20,
    )
    wish = recipe(pages, executor=Executor.RAY, np=8, auto_configure=True)
    chosen = choose(wish, find_files((str(pages),)), local=MACHINE, cluster=cluster)
    assert chosen.budget_bytes == 30 * GIB


def test_a_job_for_ray_is_refused_where_ray_is_not_installed(
    pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joblens.data.executor.ray_pool.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match="needs Ray"):
        choose(recipe(pages, executor=Executor.RAY), find_files((str(pages),)), local=MACHINE)
