"""Recipes whose rows were recorded from DataJuicer: `tests/record_recipe_rows_fixture.py`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from joblens.app.recipes.jobs import make_job
from joblens.app.recipes.process import ProcessOptions, plan_recipe
from joblens.app.wiring.drivers import StoreConnection, warn_in_python
from joblens.model.settings import Settings
from tests.record_recipe_rows_fixture import recipe_in, rows_in

pytest.importorskip("pyarrow")

RECORDED = json.loads((Path(__file__).parent.parent / "fixtures" / "recipes" / "rows.json").read_text())[
    "cases"
]


@pytest.mark.parametrize("case", RECORDED, ids=[case["name"] for case in RECORDED])
def test_the_same_rows_come_out(tmp_path: Path, case: dict[str, Any]) -> None:
    recipe = recipe_in(str(tmp_path), case["keys"], case["files"])
    # Several partitions: what a row becomes does not depend on where the data is cut.
    recipe |= {"work_dir": str(tmp_path / "work"), "partition": {"num_of_partitions": 3}}
    planned = plan_recipe(recipe, ProcessOptions(job_id="job"), StoreConnection(Settings(), warn_in_python))
    make_job(planned.job)
    argv = [sys.executable, "-P", "-m", "joblens.data", planned.job.plan.job_dir]
    subprocess.run(argv, check=True, timeout=60)
    assert _without_nulls(rows_in(str(tmp_path))) == _without_nulls(case["rows"])


def _without_nulls(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """DataJuicer gives every row all fields; here rows of JSON have those that they came with."""
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def test_an_index_is_the_same_after_a_kill(tmp_path: Path) -> None:
    from tests.integration import recipe_executor as executors

    data = executors.write_lines(tmp_path / "in.jsonl", executors.documents(300))
    made = []
    process = [*executors.FILTERS, {"clean_links_mapper": {"index_key": "number"}}, executors.MAPPERS[1]]
    for name in ("undisturbed", "killed"):
        (tmp_path / name).mkdir()
        job = executors.plan(tmp_path / name, data, process, partition={"num_of_partitions": 4})
        if name == "killed":
            executors.kill_after_events(job, 60)
        assert executors.carry_out(job) == 0
        made.append((tmp_path / name / "out.jsonl").read_text())
    assert made[0] == made[1]
    numbers = [json.loads(line)["number"] for line in made[0].splitlines()]
    assert numbers == list(range(len(numbers)))
