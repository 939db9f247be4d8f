"""Answers made for the pages of runs, workflows and recipes."""

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from joblens.analysis.charts.timeline import timeline_of
from joblens.app.server import run_charts
from joblens.model.access import Role, Scope
from joblens.model.runs.run import RunStatus
from joblens.model.writes import Write
from tests.builders import past_runs
from tests.builders.large_runs import fill_large_run
from tests.builders.runs import begun, over, run, workflow
from tests.builders.writes import NOON_US, SECOND
from tests.conftest import RunJoblens
from tests.integration.served import Served

API = "/api/v1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as one:
        yield one


@pytest.fixture
def past(server: Served) -> Served:
    """With a run in which one job failed twice and one waits for it, and a run that repeats that part."""
    server.apply(*past_runs.first_run(), *past_runs.second_run())
    return server


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With a run of 600 jobs, three of which failed."""
    with Served(tmp_path_factory.mktemp("large")) as server:
        with server.store() as store:
            fill_large_run(store, 600, failed=frozenset({7, 300, 598}))
        yield server


def rows_of(answer: dict[str, Any]) -> dict[str, str]:
    states, rows = answer["states"], answer["rows"]
    return {name: states[state] for name, state in zip(rows["name"], rows["state"], strict=True)}


def test_the_first_view_has_counts_and_failures_without_the_plan(past: Served) -> None:
    found = past.get(f"{API}/runs/1.1/page").json
    assert found["head"]["counts"] == {"completed": 2, "failed": 1, "waiting": 1}
    assert (found["head"]["status"], found["head"]["name"]) == ("failed", "ml-pipeline")
    assert next(iter(rows_of(found).items())) == ("train", "failed")
    assert found["rows"]["why"]["1"].startswith("out of memory")
    assert (found["head"]["can_rerun_failed"], found["head"]["can_cancel"]) == (True, False)


def test_the_table_has_every_job_with_its_exact_state(past: Served) -> None:
    found = past.get(f"{API}/runs/1.1/table").json
    assert rows_of(found) == {
        "preprocess": "completed",
        "train": "failed",
        "evaluate": "blocked",
        "notes": "completed",
    }
    assert found["rows"]["attempts"] == [1, 2, 0, 1]
    assert "train" in found["rows"]["why"]["2"]


def test_a_table_asked_again_has_only_rows_that_changed(server: Served) -> None:
    uuid, flow = past_runs.FIRST, past_runs.FLOW
    server.apply(
        workflow(flow, "ml-pipeline"), run(uuid, flow, spec_text=past_runs.SPEC, jobs=4), begun(uuid)
    )
    first = server.get(f"{API}/runs/1.1/table").json
    assert (first["is_complete"], len(first["rows"]["name"])) == (True, 4)
    server.apply(*past_runs.attempt(uuid, past_runs.NOTES, "notes"))
    server.apply(over(uuid, RunStatus.STOPPED))  # the table of an ended run is read at once
    again = server.get(f"{API}/runs/1.1/table?since={first['turn']}").json
    assert again["is_complete"] is False
    assert "notes" in again["rows"]["name"]
    assert again["head"]["can_resume"] is True
    unchanged = server.get(f"{API}/runs/1.1/table?since={again['turn']}").json
    assert unchanged["rows"]["name"] == []


def test_a_run_that_repeats_a_part_shows_the_results_it_keeps(past: Served) -> None:
    found = past.get(f"{API}/runs/1.2/table").json
    assert rows_of(found)["preprocess"] == "completed"
    assert found["head"]["base"] == "1.1"


def test_a_small_graph_has_a_box_per_job_and_can_be_grouped(past: Served) -> None:
    graph = past.get(f"{API}/runs/1.1/graph").json["graph"]
    assert [box["title"] for box in graph["boxes"]] == ["preprocess", "notes", "train", "evaluate"]
    titles = [box["title"] for box in graph["boxes"]]
    arrows = {(titles[edge["source"]], titles[edge["target"]]) for edge in graph["edges"]}
    assert arrows == {("preprocess", "train"), ("train", "evaluate")}


def test_a_large_graph_is_grouped_and_an_opened_group_shows_failed_jobs_first(large: Served) -> None:
    closed = large.get(f"{API}/runs/1.1/graph").json
    assert closed["is_grouped"]
    shown = [(box["title"], box["jobs"]) for box in closed["graph"]["boxes"]]
    assert shown == [("prepare", 1), ("work_*", 598), ("report", 1)]
    opened = large.get(f"{API}/runs/1.1/graph?open=1").json
    single = {box["title"] for box in opened["graph"]["boxes"] if box["jobs"] == 1}
    assert {"work_7", "work_300", "work_598"} <= single
    assert sum(box["jobs"] for box in opened["graph"]["boxes"]) == 600


def test_a_timeline_has_bars_and_the_critical_path(past: Served) -> None:
    found = past.get(f"{API}/runs/1.1/timeline").json["timeline"]
    assert [(bar["name"], bar["attempt"]) for bar in found["bars"]].count(("train", 2)) == 1
    assert found["critical"][-1]["ended_us"] == found["end_us"]
    assert found["critical_ran_s"] > 0
    assert found["use"]["values"]["cpus_offered"][-1] == 4.0


def test_a_timeline_of_a_run_that_repeats_a_part_has_its_own_attempts_only(past: Served) -> None:
    found = past.get(f"{API}/runs/1.2/timeline").json["timeline"]
    assert "preprocess" not in {bar["name"] for bar in found["bars"]}
    assert "preprocess" not in {part["name"] for part in found["critical"]}
    assert (found["attempts"], found["not_started"]) == (1, 1)


def test_a_timeline_is_computed_once_for_all_clients(past: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int | None] = []
    compute = timeline_of

    def counted(*arguments: Any) -> Any:
        computed.append(arguments[-1])
        return compute(*arguments)

    monkeypatch.setattr(run_charts, "timeline_of", counted)
    first = past.get(f"{API}/runs/1.1/timeline").json
    assert past.get(f"{API}/runs/1.1/timeline").json == first
    past.get(f"{API}/runs/1.1/timeline?group=1")
    assert computed == [None, 1]
    past.apply(over(past_runs.FIRST, RunStatus.FAILED, at_us=NOON_US + 3600 * SECOND))
    assert past.get(f"{API}/runs/1.1/timeline").json["at_us"] > first["at_us"]


def test_questions_about_whole_runs_do_not_delay_others(past: Served) -> None:
    run_uuid = past.get(f"{API}/runs/1.1").json["uuid"]
    with past.store() as store:
        view = past.serving.application.context.runs.of(store.find_run(run_uuid))
    with ThreadPoolExecutor(12) as pool:
        with view.lock:  # as while its table is computed
            waiting = [
                pool.submit(past.get, f"{API}/runs/1.1/{part}") for part in ("table", "graph", "timeline") * 4
            ]
            time.sleep(0.3)
            assert past.get(f"{API}/runs/1.1/page").status == 200
            assert not any(each.done() for each in waiting)
        assert {each.result().status for each in waiting} == {200}


def test_a_timeline_of_many_attempts_has_a_lane_per_group(large: Served) -> None:
    found = large.get(f"{API}/runs/1.1/timeline").json["timeline"]
    assert [(lane["name"], lane["attempts"], lane["failed"]) for lane in found["lanes"]] == [
        ("prepare", 1, 0),
        ("work_*", 598, 3),
    ]
    assert (found["bars"], max(found["lanes"][1]["running"])) == ([], 8)
    opened = large.get(f"{API}/runs/1.1/timeline?group=1").json["timeline"]["bars"]
    assert len(opened) == 500
    assert {"work_7", "work_300", "work_598"} <= {bar["name"] for bar in opened}


def test_runs_of_others_are_unknown(past: Served) -> None:
    own = past.token(Role.READER, Scope.OWN, user="eve")
    for part in ("page", "table", "graph", "timeline"):
        assert past.get(f"{API}/runs/1.1/{part}", own).status == 404
    assert past.get(f"{API}/runs", own).json["items"] == []
    assert past.get(f"{API}/workflows/1/page", own).status == 404


def test_runs_of_all_workflows_are_listed_newest_first(past: Served) -> None:
    other, second = "dddd1111-0000-4000-8000-000000000000", "eeee1111-0000-4000-8000-000000000000"
    past.apply(workflow(other, "other"), run(second, other, spec_text=past_runs.SPEC, jobs=4))
    found = past.get(f"{API}/runs?limit=2").json
    assert (found["total"], found["next"], len(found["items"])) == (3, 2, 2)
    rest = past.get(f"{API}/runs?limit=2&after=2").json["items"]
    labels = [each["label"] for each in [*found["items"], *rest]]
    assert sorted(labels) == ["1.1", "1.2", "2.1"]
    failed = next(each for each in [*found["items"], *rest] if each["label"] == "1.1")
    assert (failed["done"], failed["failed"], failed["left"]) == (2, 1, 1)


def test_a_workflow_shows_its_runs_and_advice_as_a_diff(server: Served) -> None:
    spec = "name: sized\njobs:\n  - name: a\n    command: 'true'\n    memory: 4g\n"
    flow = "ffff1111-0000-4000-8000-000000000000"
    writes: list[Write] = [workflow(flow, "sized", source="/home/ann/sized.yaml")]
    for number in range(12):
        uuid = f"{number:08d}-0000-4000-8000-000000000000"
        writes += [run(uuid, flow, spec_text=spec, jobs=1), begun(uuid)]
        writes += past_runs.attempt(uuid, 0, "a")
        writes += [over(uuid)]
    server.apply(*writes)
    page = server.get(f"{API}/workflows/sized/page").json
    assert [each["label"] for each in page["runs"]][:2] == ["1.12", "1.11"]
    advice = server.get(f"{API}/workflows/sized/advice").json
    assert "-    memory: 4g" in advice["diff"]
    assert any(line.startswith("+    memory: ") for line in advice["diff"])
    assert advice["command"].startswith("joblens rightsize 1 --write")


def test_a_recipe_has_a_grid_keep_rates_and_rejects_with_examples(
    server: Served, tmp_path: Path, joblens: RunJoblens
) -> None:
    rows = [json.dumps({"text": f"some words of page {number} " * 3}) for number in range(200)]
    rows[50] = "{broken"
    rows += [json.dumps({"text": "x"})] * 20
    (tmp_path / "pages.jsonl").write_text("\n".join(rows))
    (tmp_path / "recipe.yaml").write_text(
        "project_name: clean\ndataset_path: pages.jsonl\nexport_path: out.jsonl\nwork_dir: work\n"
        "np: 1\nprocess:\n  - text_length_filter:\n      min_len: 10\n"
    )
    joblens("process", "recipe.yaml", env={"JOBLENS_STORE": str(tmp_path / "joblens.db")}, code=0)
    found = server.get(f"{API}/jobs/1/recipe").json
    (operator,) = found["operators"]
    assert (operator["name"], set(operator["cells"]) <= set("ds")) == ("text_length_filter", True)
    assert (found["rows_in"], found["rows_out"], found["rejected_rows"]) == (219, 199, 1)
    assert operator["keep_rate"] == pytest.approx(199 / 219)
    shown = server.get(f"{API}/jobs/1").json  # the same time as `joblens show` has
    assert found["duration_s"] == shown["outcome"]["duration_s"]
    assert found["rows_per_second"] == pytest.approx(219 / found["duration_s"])
    (reject,) = found["rejects"]
    assert (reject["rows"], reject["examples"][0]["position"]) == (1, "line 51")
    assert "{broken" in reject["examples"][0]["row"]
    assert (found["status"], found["checkpoints"]["is_resumable"]) == ("completed", False)


def test_a_job_without_a_recipe_has_no_recipe_page(past: Served) -> None:
    answer = past.get(f"{API}/jobs/1/recipe")
    assert (answer.status, "ran no recipe" in answer.json["detail"]) == (400, True)


def test_a_recipe_whose_folder_is_gone_shows_what_the_store_has(
    server: Served, tmp_path: Path, joblens: RunJoblens
) -> None:
    (tmp_path / "pages.jsonl").write_text("\n".join(json.dumps({"text": "a b c d"}) for _ in range(30)))
    (tmp_path / "recipe.yaml").write_text(
        "project_name: clean\ndataset_path: pages.jsonl\nexport_path: out.jsonl\nwork_dir: work\n"
        "np: 1\nprocess:\n  - words_num_filter:\n      min_num: 2\n"
    )
    joblens("process", "recipe.yaml", env={"JOBLENS_STORE": str(tmp_path / "joblens.db")}, code=0)
    shutil.rmtree(tmp_path / "work")
    found = server.get(f"{API}/jobs/1/recipe").json
    assert (found["is_from_folder"], found["rows_in"]) == (False, 30)
    assert found["operators"][0]["cells"] == ""
