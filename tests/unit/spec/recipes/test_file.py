"""Recipe files: values and paths, and everything that is wrong at once."""

from pathlib import Path

import pytest

from joblens.model.recipes.recipe import CheckpointStrategy, Executor, OperatorCall, PartitionMode, Recipe
from joblens.spec.recipes.file import RecipeReading, read_recipe

LEAST = "dataset_path: a.jsonl\nexport_path: out/b.jsonl\nprocess:\n  - clean_links_mapper:\n"

INDENTED = "indent 'x' more than 'b', or write a '-' before it"


def read(text: str, **given: object) -> RecipeReading:
    return read_recipe(text, "yaml", "web.yaml", cwd="/data", given=given)


def recipe_of(text: str, **given: object) -> Recipe:
    reading = read(text, **given)
    assert reading.problems == ()
    assert reading.recipe is not None
    return reading.recipe


def problems_of(text: str, **given: object) -> list[str]:
    return [f"{one.mark.line}:{one.mark.column}: {one.message}" for one in read(text, **given).problems]


def test_what_is_not_said_has_the_defaults_of_other_systems() -> None:
    recipe = recipe_of(LEAST)
    assert (recipe.np, recipe.text_keys, recipe.skip_op_error) == (4, ("text",), True)
    assert (recipe.checkpoint.strategy, recipe.checkpoint.n_ops) == (CheckpointStrategy.EVERY_N_OPS, 5)
    assert (recipe.partition.mode, recipe.partition.max_retries) == (PartitionMode.AUTO, 3)
    assert (recipe.executor, recipe.export_type, recipe.name) == (Executor.LOCAL, "jsonl", "web")


@pytest.mark.parametrize(
    ("word", "executor"),
    [
        ("default", Executor.LOCAL),
        ("local", Executor.LOCAL),
        ("ray", Executor.RAY),
        ("ray_partitioned", Executor.RAY),
    ],
)
def test_the_words_for_executors_stand_for_two(word: str, executor: Executor) -> None:
    recipe = recipe_of(f"{LEAST}executor_type: {word}\n")
    assert (recipe.executor, recipe.executor_type) == (executor, word)


def test_operators_are_mappings_of_one_or_names() -> None:
    text = "dataset_path: a\nexport_path: b.jsonl\nprocess:\n  - a_mapper: {x: 1}\n  - b_filter:\n  - c\n"
    assert recipe_of(text).process == (
        OperatorCall(index=0, name="a_mapper", params={"x": 1}),
        OperatorCall(index=1, name="b_filter"),
        OperatorCall(index=2, name="c"),
    )


def test_paths_start_in_the_current_folder_and_placeholders_are_filled_in() -> None:
    recipe = recipe_of(
        "dataset_path: [a.jsonl, /b/*.parquet, '{work_dir}/c']\nwork_dir: jobs\nprocess: [a]\n"
        "export_path: '{work_dir}/{job_id}/x.parquet'\ncheckpoint_dir: '{work_dir}/kept'\n"
    )
    assert recipe.dataset_path == ("/data/a.jsonl", "/b/*.parquet", "/data/jobs/c")
    assert recipe.work_dir == "/data/jobs"
    assert recipe.export_path == "/data/jobs/{job_id}/x.parquet"
    assert recipe.checkpoint_dir == "/data/jobs/kept"
    assert recipe.export_type == "parquet"


@pytest.mark.parametrize(
    ("export", "work_dir"),
    [
        ("out/x.jsonl", "/data/out"),
        ("x.jsonl", "/data"),
        ("out/{job_id}/x.jsonl", "/data/out/{job_id}"),
        ("out/{job_id}/deep/x.jsonl", "/data/out/{job_id}"),
    ],
)
def test_without_a_work_dir_jobs_lie_where_the_export_goes(export: str, work_dir: str) -> None:
    text = f"dataset_path: a\nexport_path: '{export}'\nprocess: [a]\n"
    assert recipe_of(text).work_dir == work_dir


def test_without_an_export_path_the_rows_lie_in_the_job_s_folder() -> None:
    recipe = recipe_of("dataset_path: a\nprocess: [a]\nwork_dir: jobs/{job_id}\n")
    assert recipe.export_path == "/data/jobs/{job_id}/web.jsonl"


def test_what_is_typed_takes_the_place_of_what_is_written() -> None:
    text = f"{LEAST}np: 8\nwork_dir: here\n"
    recipe = recipe_of(text, np=2, work_dir="/there", executor_type="ray", resume=None)
    assert (recipe.np, recipe.work_dir, recipe.executor) == (2, "/there", Executor.RAY)


def test_the_longer_way_to_name_data() -> None:
    text = (
        "dataset:\n  configs:\n    - {type: local, path: a.jsonl}\n    - path: [b, c]\n"
        "export_path: x.jsonl\nprocess: [a]\n"
    )
    assert recipe_of(text).dataset_path == ("/data/a.jsonl", "/data/b", "/data/c")


def test_checkpoints_that_are_not_enabled_are_disabled() -> None:
    text = f"{LEAST}checkpoint: {{enabled: false, strategy: every_op}}\n"
    assert recipe_of(text).checkpoint.strategy is CheckpointStrategy.DISABLED


def test_manual_partitions_without_a_number_are_four() -> None:
    assert recipe_of(f"{LEAST}partition: {{mode: manual}}\n").partition.num_of_partitions == 4
    by_rows = recipe_of(f"{LEAST}partition: {{mode: manual, size: 10}}\n").partition
    assert (by_rows.size, by_rows.num_of_partitions) == (10, None)


def test_as_many_partitions_at_once_as_there_are_workers_is_called_auto() -> None:
    text = LEAST + "partition: {max_concurrent_partitions: %s}\n"
    assert recipe_of(text % "auto").partition.max_concurrent_partitions is None
    assert recipe_of(text % "3").partition.max_concurrent_partitions == 3


def test_keys_that_change_nothing_are_remembered() -> None:
    assert recipe_of(f"{LEAST}use_cache: true\nop_fusion: false\n").ignored == ("op_fusion", "use_cache")


def test_keys_that_would_change_the_rows_are_refused_unless_they_are_off() -> None:
    recipe_of(f"{LEAST}keep_hashes_in_res_ds: false\nvalidators: []\n")
    (problem,) = problems_of(f"{LEAST}keep_hashes_in_res_ds: true\n")
    assert problem.startswith("5:1: keep_hashes_in_res_ds is not supported")


def test_sizes_and_budgets_become_bytes() -> None:
    automatic = "resource_optimization: {auto_configure: true, memory_budget_mb: 512}\n"
    recipe = recipe_of(f"{LEAST}export_shard_size: 1000\n{automatic}")
    assert (recipe.export_shard_bytes, recipe.memory_budget_bytes) == (1000, 512 * 2**20)
    assert recipe.auto_configure


def test_every_mistake_is_reported_with_its_place() -> None:
    text = (
        "dataset_pth: a\nexport_path: out\nnp: zero\npartition: {target_size: 1}\n"
        "process:\n  - b:\n    x: 1\n  - b: 5\n  - {}\njob_id: a/b\n"
    )
    assert problems_of(text) == [
        "1:1: unknown key 'dataset_pth'; did you mean 'dataset_path'?",
        "3:1: np must be a whole number, not 'zero'",
        "4:13: unknown key 'target_size' in partition; did you mean 'target_size_mb'?",
        f"6:5: item 1 of process must be one operator; {INDENTED}",
        "8:5: item 2 of process.b must be a mapping of its parameters, not 5",
        "9:5: item 3 of process must name an operator; this one is empty",
        (
            "10:1: job_id must consist of letters, digits, '_', '-' and '.', not 'a/b': "
            "it is used as the name of a directory"
        ),
    ]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("work_dir: a/{job_id}/b\n", "5:1: work_dir must have {job_id} as its last part, or not at all"),
        ("work_dir: '{work_dir}/b'\n", "5:1: work_dir cannot refer to {work_dir}, which is itself"),
        (
            "checkpoint: {strategy: manual, op_names: [no_such]}\n",
            "5:32: op_names in checkpoint has 'no_such', which is not in process",
        ),
        (
            "checkpoint: {strategy: manual}\n",
            "5:14: strategy manual in checkpoint requires 'op_names'",
        ),
        ("job_id: a\nresume: b\n", "6:1: resume and job_id name different jobs: 'b' and 'a'"),
    ],
)
def test_what_cannot_be_together_is_reported(more: str, problem: str) -> None:
    assert problems_of(LEAST + more) == [problem]


@pytest.mark.parametrize("path", ["out.txt", "folder"])
def test_an_export_of_no_known_format_is_refused(path: str) -> None:
    (problem,) = problems_of(f"dataset_path: a\nexport_path: {path}\nprocess: [a]\n")
    assert "use .jsonl, .json or .parquet, or set export_type" in problem
    result = recipe_of(f"dataset_path: a\nexport_path: {path}\nexport_type: jsonl\nprocess: [a]\n")
    assert result.export_type == "jsonl"


def test_an_export_inside_of_a_work_dir_that_is_not_there_is_refused() -> None:
    (problem,) = problems_of("dataset_path: a\nexport_path: '{work_dir}/x.jsonl'\nprocess: [a]\n")
    assert "there is no work_dir" in problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "web.yaml is empty; a recipe has dataset_path and process"),
        ("- a\n", "the file must be a mapping, not a list"),
        ("dataset_path: a\n", "the recipe has no 'process'"),
        ("process: []\ndataset_path: a\n", "process must have at least one operator"),
        ("process: [a]\n", "the recipe needs 'dataset_path' or 'dataset'"),
        ("a: [\n", "not valid YAML"),
    ],
)
def test_files_that_are_no_recipes_say_what_is_missing(text: str, problem: str) -> None:
    assert any(problem in each for each in problems_of(text))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "work_dir: '{foo}/x'",
            "work_dir has {foo}, an unknown placeholder; use {work_dir} or {job_id}",
        ),
        ("checkpoint_dir: '{workdir}/x'", "did you mean {work_dir}?"),
        (
            "work_dir: s3://bucket/x",
            "work_dir: s3://bucket/x is a URL; only local files",
        ),
        ("job_id: .hidden", "must start with a letter, a digit or '_', not '.hidden'"),
        ("job_id: a/b", "must consist of letters, digits, '_', '-' and '.', not 'a/b'"),
        (f"job_id: {'a' * 129}", "must have at most 128 characters"),
    ],
)
def test_places_and_ids_that_cannot_be_are_reported_with_why(line: str, words: str) -> None:
    (result,) = problems_of(f"{LEAST}{line}\n")
    assert result.startswith("5:1: ")
    assert words in result


def test_a_dataset_elsewhere_is_reported_as_that() -> None:
    text = "dataset_path:\n  - a.jsonl\n  - hdfs://x/b.jsonl\nexport_path: b.jsonl\nprocess: [a]\n"
    (result,) = problems_of(text)
    assert result.startswith("3:5: dataset_path: hdfs://x/b.jsonl is a URL")


@pytest.mark.parametrize(
    ("written", "paths"),
    [
        ("0.8 a.jsonl .2 b", ("/data/a.jsonl", "/data/b")),
        ("a.jsonl b.parquet", ("/data/a.jsonl", "/data/b.parquet")),
        ("1 'my data.jsonl'", ("/data/my data.jsonl",)),
        ("my data.jsonl", ("/data/my data.jsonl",)),
        ("it's here.jsonl", ("/data/it's here.jsonl",)),
        ("2024", ("/data/2024",)),
    ],
)
def test_one_text_may_name_several_paths_with_weights(written: str, paths: tuple[str, ...]) -> None:
    assert recipe_of(f'dataset_path: "{written}"\nprocess: [a]\n').dataset_path == paths


def test_a_file_whose_name_looks_like_a_weighted_path_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "2024 data.jsonl").touch()
    text = f'dataset_path: "{tmp_path}/2024 data.jsonl"\nprocess: [a]\n'
    assert recipe_of(text).dataset_path == (f"{tmp_path}/2024 data.jsonl",)


def test_a_pattern_that_looks_like_a_weighted_path_is_that_pattern(tmp_path: Path) -> None:
    for folder in ("2024 logs", "logs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").touch()
    text = 'dataset_path: "2024 logs/*.jsonl"\nprocess: [a]\n'
    reading = read_recipe(text, "yaml", "r.yaml", cwd=str(tmp_path))
    assert reading.recipe is not None
    assert reading.recipe.dataset_path == (f"{tmp_path}/2024 logs/*.jsonl",)
    assert reading.path_note == ""


def test_the_paths_and_weights_that_one_text_was_read_as_are_reported() -> None:
    assert read('dataset_path: "0.8 a.jsonl b.jsonl"\nprocess: [a]\n').path_note == (
        "dataset_path '0.8 a.jsonl b.jsonl' was read as 2 paths: 'a.jsonl' (weight 0.8), 'b.jsonl'"
    )
    assert read('dataset_path: [a.jsonl, "my data"]\nprocess: [a]\n').path_note == ""


def test_weights_are_asked_to_change_nothing() -> None:
    text = "dataset: {configs: [{path: a.jsonl, weight: 0.5}]}\nprocess: [a]\n"
    assert recipe_of(text).ignored == ("weight",)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("delimiter: ab", "delimiter in load_dataset_kwargs must be one character"),
        ("columns: [text]", "columns in load_dataset_kwargs is not supported"),
    ],
)
def test_loading_that_would_give_other_rows_is_refused(line: str, problem: str) -> None:
    (result,) = problems_of(f"{LEAST}load_dataset_kwargs:\n  {line}\n")
    assert problem in result
