"""Which changes of a recipe keep a job from being gone on with, and its paths."""

from msgspec.structs import replace

from joblens.model.recipes.recipe import (
    CheckpointSettings,
    CheckpointStrategy,
    Executor,
    OperatorCall,
    PartitionSettings,
    Recipe,
)
from joblens.plan.recipes.changes import recipe_changes
from joblens.plan.recipes.job_folder import base_dir_of, job_dir_in, with_job

RECIPE = Recipe(
    dataset_path=("/a.jsonl",),
    export_path="/jobs/{job_id}/x.jsonl",
    work_dir="/jobs",
    process=(
        OperatorCall(index=0, name="clean_links_mapper"),
        OperatorCall(index=1, name="text_length_filter", params={"min_len": 10}),
    ),
)


def test_where_and_how_fast_the_work_is_done_may_change() -> None:
    other = replace(
        RECIPE,
        np=1,
        executor=Executor.RAY,
        executor_type="ray",
        ray_address="10.0.0.1",
        memory_budget_bytes=1,
        name="other",
        resume="x",
        ignored=("use_cache",),
        partition=PartitionSettings(max_retries=9, max_concurrent_partitions=1),
    )
    assert recipe_changes(RECIPE, other) == []


def test_changed_operators_are_reported_one_by_one() -> None:
    process = (
        OperatorCall(index=0, name="clean_email_mapper"),
        OperatorCall(index=1, name="text_length_filter", params={"min_len": 20, "max_len": 99}),
        OperatorCall(index=2, name="document_deduplicator"),
    )
    other = replace(RECIPE, process=process)
    assert recipe_changes(RECIPE, other) == [
        "operator 1 was clean_links_mapper, is clean_email_mapper",
        "operator 2, text_length_filter.min_len was 10, is 20",
        "operator 2, text_length_filter.max_len was not set, is 99",
        "operator 3, document_deduplicator, was added",
    ]
    assert recipe_changes(other, RECIPE)[-1] == "operator 3, document_deduplicator, was removed"


def test_everything_else_that_makes_other_rows_or_files_is_reported() -> None:
    other = replace(
        RECIPE,
        dataset_path=("/a.jsonl", "/b.jsonl"),
        keep_stats=True,
        checkpoint=CheckpointSettings(strategy=CheckpointStrategy.EVERY_OP),
        partition=PartitionSettings(size=5),
    )
    assert recipe_changes(RECIPE, other) == [
        "dataset_path was /a.jsonl, is /a.jsonl, /b.jsonl",
        "keep_stats_in_res_ds was false, is true",
        "checkpoint.strategy was every_n_ops, is every_op",
        "partition.size was not set, is 5",
    ]


def test_a_job_s_folder_ends_with_its_id_however_it_was_written() -> None:
    assert job_dir_in("/jobs", "j1") == job_dir_in("/jobs/{job_id}", "j1") == "/jobs/j1"
    assert base_dir_of("/jobs") == base_dir_of("/jobs/{job_id}") == "/jobs"


def test_a_job_fills_in_what_was_left_for_its_id() -> None:
    recipe = with_job(replace(RECIPE, checkpoint_dir="/kept/{job_id}"), "j1")
    assert (recipe.export_path, recipe.checkpoint_dir, recipe.job_id) == (
        "/jobs/j1/x.jsonl",
        "/kept/j1",
        "j1",
    )
