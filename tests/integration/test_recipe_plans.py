"""Recipes on real files: what is refused before anything runs, and the plans that are made of the others."""

import json
import os
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from joblens.app.recipes.jobs import make_job, new_job_id
from joblens.app.recipes.process import PlannedRecipe, ProcessOptions, plan_recipe
from joblens.app.wiring.drivers import StoreConnection, warn_in_python
from joblens.app.wiring.settings import load_settings
from joblens.data.base.job_folder import read_plan
from joblens.model.errors import InputError, RecipeError
from joblens.model.recipes.recipe import Stage

pytest.importorskip("pyarrow")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With rows to read; the current folder."""
    folder = tmp_path / "place"
    folder.mkdir()
    lines = [json.dumps({"text": f"row {number} of many", "id": number}) for number in range(100)]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(folder)
    return folder


def recipe(**other: Any) -> dict[str, Any]:
    return {
        "dataset_path": "rows.jsonl",
        "export_path": "out/rows.jsonl",
        "process": [{"text_length_filter": {"min_len": 5}}, {"document_deduplicator": None}],
        **other,
    }


def plan(given: "str | dict[str, Any] | None", **options: Any) -> PlannedRecipe:
    with closing(StoreConnection(load_settings().settings, warn_in_python)) as connection:
        return plan_recipe(given, ProcessOptions(**options), connection)


def test_a_plan_has_stages_columns_inputs_and_partitions(place: Path) -> None:
    made = plan(recipe(), np=2).job.plan
    assert made.stages == (
        Stage(index=0, first=0, end=1, closing=1),
        Stage(index=1, first=2, end=2),
    )
    assert made.columns == ("text",)
    assert [each.path for each in made.inputs] == [str(place / "rows.jsonl")]
    assert sum(each.size_bytes for each in made.partitions) == (place / "rows.jsonl").stat().st_size
    assert made.job_dir == str(place / "out" / made.job_id)


def test_planning_writes_nothing(place: Path) -> None:
    plan(recipe())
    assert sorted(os.listdir(place)) == ["rows.jsonl"]


def test_ids_tell_the_time_and_differ() -> None:
    ids = {new_job_id() for _ in range(50)}
    assert len(ids) == 50
    assert all(len(each) == len("20250809_040053_a001de") for each in ids)


def test_the_folder_of_a_job_is_private_and_has_plan_and_recipe(place: Path) -> None:
    (place / "mine.yaml").write_text(json.dumps(recipe()))
    planned = plan("mine.yaml", job_id="first")
    folder = make_job(planned.job)
    assert stat.S_IMODE(os.stat(folder.path).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(folder.plan).st_mode) == 0o600
    assert Path(folder.path, "mine.yaml").read_text() == (place / "mine.yaml").read_text()
    assert read_plan(folder.path) == planned.job.plan


def test_operators_and_parameters_are_all_checked_with_their_places(place: Path) -> None:
    (place / "bad.yaml").write_text(
        "dataset_path: rows.jsonl\nexport_path: x.jsonl\nprocess:\n"
        "  - text_lenth_filter:\n  - text_length_filter:\n      min_length: 5\n"
        "  - words_num_filter: {min_num: many}\n"
    )
    with pytest.raises(RecipeError) as caught:
        plan("bad.yaml")
    first, second, third = caught.value.problems
    assert first.startswith("bad.yaml:4:5: ")
    assert "did you mean 'text_length_filter'?" in first
    assert second.startswith("bad.yaml:6:7: ")
    assert "did you mean 'min_len'?" in second
    assert third.startswith("bad.yaml:7:24: ")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"dataset_path": "no_such.jsonl"}, "no_such.jsonl"),
        ({"dataset_path": "*.parquet"}, "*.parquet"),
        ({"export_path": "rows.jsonl"}, "is a file of the dataset"),
        ({"custom_operator_paths": "no_such.py"}, "no_such.py"),
    ],
)
def test_what_cannot_work_is_refused(place: Path, other: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(recipe(**other))
    assert words in str(caught.value)
    assert sorted(os.listdir(place)) == ["rows.jsonl"]


@pytest.mark.parametrize(
    "options",
    [{"job_id": "a/b"}, {"resume": "../x"}, {"job_id": "a", "resume": "b"}, {"np": 0}, {"executor": "cloud"}],
)
def test_wishes_that_cannot_be_are_refused(place: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        plan(recipe(), **options)


def test_a_job_that_is_not_there_cannot_be_gone_on_with(place: Path) -> None:
    make_job(plan(recipe(), job_id="monday").job)
    with pytest.raises(RecipeError, match="no job mondai") as caught:
        plan(recipe(), resume="mondai")
    assert caught.value.hint == "did you mean monday?"


@pytest.mark.parametrize("how", ["resume", "job_id"])
def test_a_job_that_is_there_goes_on_with_its_plan_and_other_workers(place: Path, how: str) -> None:
    before = plan(recipe(np=1), job_id="monday").job
    make_job(before)
    after = plan(recipe(np=1), **{how: "monday"}, executor="local").job
    assert after.is_resumed
    assert after.plan.partitions == before.plan.partitions
    assert after.plan.created_at_us == before.plan.created_at_us


def test_a_changed_recipe_is_refused_with_what_changed_and_starts_over_when_reported(place: Path) -> None:
    make_job(plan(recipe(), job_id="monday").job)
    changed = recipe(process=[{"text_length_filter": {"min_len": 6}}, "document_deduplicator"])
    with pytest.raises(RecipeError) as caught:
        plan(changed, resume="monday")
    assert caught.value.problems == ("operator 1, text_length_filter.min_len was 5, is 6",)
    again = plan(changed, resume="monday", start_over=True).job
    assert (again.is_resumed, again.starts_over) == (False, True)


def test_changed_data_is_refused_with_what_changed(place: Path) -> None:
    make_job(plan(recipe(dataset_path="*.jsonl"), job_id="monday").job)
    (place / "more.jsonl").write_text('{"text": "one more row"}\n')
    with pytest.raises(RecipeError, match="the data has changed") as caught:
        plan(recipe(dataset_path="*.jsonl"), resume="monday")
    assert "more.jsonl" in caught.value.problems[0]


def test_starting_over_removes_what_the_job_had_left(place: Path) -> None:
    folder = make_job(plan(recipe(), job_id="monday").job)
    left = Path(folder.checkpoints, "partition_000000", "op_000_text_length_filter.arrow")
    left.parent.mkdir()
    left.write_bytes(b"old")
    Path(folder.events).write_text("{}\n")
    make_job(plan(recipe(), job_id="monday", start_over=True).job)
    assert not left.exists()
    assert not os.path.exists(folder.events)
    assert os.path.exists(folder.plan)


@pytest.mark.parametrize("key", ["work_dir", "export_path", "checkpoint_dir", "event_log_dir"])
@pytest.mark.parametrize("where", ["/proc/of_mine", "rows.jsonl/below"])
def test_a_place_that_cannot_be_written_is_refused_with_its_line(place: Path, key: str, where: str) -> None:
    value = f"{where}/x.jsonl" if key == "export_path" else where
    others = "" if key == "export_path" else "export_path: out/x.jsonl\n"
    (place / "r.yaml").write_text(
        f"dataset_path: rows.jsonl\n{others}process: [text_length_filter]\n{key}: {value}\n"
    )
    with pytest.raises(RecipeError) as caught:
        plan("r.yaml")
    line = 3 if key == "export_path" else 4
    assert str(caught.value).startswith(f"r.yaml:{line}:1: {key}: ")
    assert sorted(os.listdir(place)) == ["r.yaml", "rows.jsonl"]


def test_a_place_that_was_given_as_an_option_is_named_so(place: Path) -> None:
    with pytest.raises(RecipeError, match=r"^--work-dir: .*rows\.jsonl is not a directory$"):
        plan(recipe(), work_dir="rows.jsonl")
    with pytest.raises(InputError, match="--work-dir must not be empty"):
        plan(recipe(), work_dir="")


def test_an_export_that_is_a_folder_is_refused(place: Path) -> None:
    (place / "out").mkdir()
    with pytest.raises(RecipeError, match="out is a directory; give a file in it"):
        plan(recipe(export_path="out", export_type="jsonl"))


@pytest.mark.parametrize(
    ("dataset", "export", "is_refused"),
    [
        ("data", "data/out/x.jsonl", True),
        ("data", "data/_out/x.jsonl", False),  # such names are never read
        ("data/*.jsonl", "data/x.jsonl", True),
        ("data/*.jsonl", "data/out/x.jsonl", False),
        ("data/*", "data/out/x.jsonl", True),  # a folder that matches is read with all below it
        ("data/**/*.jsonl", "data/out/x.jsonl", True),
        ("data/a.jsonl", "data/x.jsonl", False),
    ],
)
def test_a_job_never_writes_where_the_next_one_reads(
    place: Path, dataset: str, export: str, is_refused: bool
) -> None:
    (place / "data").mkdir()
    (place / "rows.jsonl").rename(place / "data" / "a.jsonl")
    other = recipe(dataset_path=dataset, export_path=export, work_dir="jobs")
    if not is_refused:
        plan(other)
        return
    with pytest.raises(RecipeError, match="would be input of the next one"):
        plan(other)


def test_anothers_job_is_reported_as_that(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_job(plan(recipe(), job_id="monday").job)
    really_stat = os.stat

    def stat_of_another_user(path: Any, *args: Any, **more: Any) -> os.stat_result:
        if path == folder.plan:  # whoever runs tests may be allowed everything
            raise PermissionError(13, "Permission denied", path)
        return really_stat(path, *args, **more)

    monkeypatch.setattr(os, "stat", stat_of_another_user)
    with pytest.raises(RecipeError, match="job monday belongs to another user"):
        plan(recipe(), resume="monday")


@pytest.mark.parametrize("how", ["folder", "below work_dir", "folder and recipe"])
def test_a_job_is_gone_on_with_from_anywhere(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    (place / "mine.yaml").write_text(json.dumps(recipe(np=2)))
    before = plan("mine.yaml", job_id="monday", work_dir="elsewhere", strict=True, np=1).job
    folder = make_job(before)
    if how == "folder and recipe":
        again = plan("mine.yaml", resume=folder.path, strict=True, np=1).job
    else:
        monkeypatch.chdir(tmp_path)
        below = {"resume": "monday", "work_dir": "place/elsewhere"}
        again = plan(None, **({"resume": folder.path} if how == "folder" else below)).job
    assert again.is_resumed
    assert (again.plan.workers, again.plan.recipe_path) == (1, str(place / "mine.yaml"))
    assert replace(again.plan.recipe, resume="") == before.plan.recipe


def test_a_recipe_that_was_never_a_file_is_gone_on_with_too(place: Path) -> None:
    values = recipe(process=[{"alphanumeric_filter": {"max_ratio": float("inf")}}])
    before = plan(values, job_id="monday").job
    folder = make_job(before)
    assert os.path.exists(before.plan.recipe_path)
    assert read_plan(folder.path) == before.plan
    assert plan(None, resume=folder.path).job.is_resumed
    assert plan(values, resume="monday").job.is_resumed


def test_without_a_recipe_there_has_to_be_a_job(place: Path) -> None:
    with pytest.raises(InputError, match="no recipe given"):
        plan(None)
    with pytest.raises(RecipeError, match="no job tuesday"):
        plan(None, resume="tuesday")
    with pytest.raises(RecipeError, match="not a job directory"):
        plan(None, resume="./tuesday")


def test_a_job_that_was_moved_is_not_gone_on_with(place: Path) -> None:
    folder = make_job(plan(recipe(), job_id="monday").job)
    os.rename(folder.path, place / "moved")
    with pytest.raises(RecipeError, match="was created in"):
        plan(None, resume="./moved")


def test_a_workflow_file_is_reported_from_a_recipe(place: Path) -> None:
    (place / "flow.yaml").write_text("name: w\njobs: [{name: a, command: ls}]\n")
    with pytest.raises(RecipeError, match="is a workflow file"):
        plan("flow.yaml")


def test_an_empty_dataset_is_a_plan_without_rows(place: Path) -> None:
    (place / "rows.jsonl").write_text("")
    made = plan(recipe()).job.plan
    assert sum(each.size_bytes for each in made.partitions) == 0
