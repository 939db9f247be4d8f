"""The files in examples/ do what their comments say, in a copy of the folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY, RunJoblens

EXAMPLES = REPOSITORY / "examples"
FILES = sorted(path for path in EXAMPLES.iterdir() if path.suffix in (".yaml", ".toml", ".kdl"))
RECIPE = EXAMPLES / "recipe.yaml"
FILES.remove(RECIPE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples"))


def results_of(joblens: RunJoblens, run: str) -> dict[str, Any]:
    rows = joblens("results", run, "--json", code=0).json["results"]
    return {row["job_name"]: row for row in rows}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_example_is_valid_and_named_in_the_guide(joblens: RunJoblens, file: Path) -> None:
    joblens("validate", file, code=0)
    for page in (EXAMPLES / "README.md", REPOSITORY / "docs" / "workflows.md"):
        assert file.name in page.read_text(encoding="utf-8")


def test_the_recipe_cleans_pages_and_is_the_one_of_the_guide(joblens: RunJoblens, folder: Path) -> None:
    pytest.importorskip("pyarrow")
    pages = subprocess.run(
        [sys.executable, folder / "recipe" / "make_pages.py", "500"], capture_output=True, check=True
    )
    (folder / "pages.jsonl").write_bytes(pages.stdout)
    assert b"https://" in pages.stdout
    assert b"@example.org" in pages.stdout
    document = joblens("process", "recipe.yaml", "--json", cwd=folder, code=0).json
    assert (document["status"], document["rows_in"]) == ("completed", 500)
    kept = [use["rows_out"] for use in document["operators"]]
    assert kept == sorted(kept, reverse=True)
    assert kept[2] > kept[3] > kept[4] >= kept[5] > kept[6] > 300
    exported = Path(document["export_path"]).read_text(encoding="utf-8")
    assert len(exported.splitlines()) == kept[6]
    assert "https://" not in exported
    assert "@example.org" not in exported
    written = [line for line in RECIPE.read_text().splitlines() if line and not line.startswith("#")]
    plain = "\n".join(line.partition(" # ")[0] for line in written)
    assert plain in (REPOSITORY / "docs" / "recipes.md").read_text(encoding="utf-8")


def test_the_pipeline_trains_models_and_names_the_best(joblens: RunJoblens, folder: Path) -> None:
    spec = folder / "ml_pipeline.yaml"
    spec.write_text(spec.read_text().replace("60000", "3000"))  # fits, and is quick
    joblens("run", spec, cwd=folder, code=0)
    assert joblens("logs", results_of(joblens, "1")["report"]["job_uuid"], code=0).stdout.count("right") == 3
    # there is a folder of that name too
    joblens("graph", "ml_pipeline", cwd=folder, code=0)
    drawn = joblens("plot", "ml_pipeline", "--format", "svg", "--json", cwd=folder, code=0).json
    assert any("gantt" in path for path in drawn["files"])
    changed = joblens("rightsize", "1", "--diff", "--force", code=0).stdout
    assert "-  - {name: large, num_cpus: 1, memory: 1g}   # a guess, to be on the safe side" in changed


def test_the_sweep_has_a_job_for_every_pair(joblens: RunJoblens, folder: Path) -> None:
    joblens("run", "sweep.toml", "--param", "seed=1:2", cwd=folder, code=0)
    results = results_of(joblens, "darts")
    assert len(results) == 7
    assert {row["status"] for row in results.values()} == {"completed"}
    summary = joblens("logs", results["summary"]["job_uuid"], code=0).stdout
    assert summary.count("darts/") == 6


def test_of_the_word_count_only_what_changed_runs_again(joblens: RunJoblens, folder: Path) -> None:
    joblens("run", "word_count.yaml", cwd=folder, code=0)
    assert (folder / "report.txt").read_text().split() == ["6", "is", "4", "a", "3", "what", "8", "workflow"]
    with (folder / "word_count" / "text.txt").open("a") as text:
        text.write("One more line.\n")
    joblens("run", "word_count.yaml", "--rerun-changed", cwd=folder, code=0)
    assert {row["kept_from_run"] for row in results_of(joblens, "word_count").values()} == {None}
    (folder / "longest.txt").unlink()
    joblens("run", "word_count.yaml", "--rerun-changed", cwd=folder, code=0)
    kept = [name for name, row in results_of(joblens, "word_count").items() if row["kept_from_run"]]
    assert sorted(kept) == ["count", "words"]


def test_retries_end_as_the_comments_say(joblens: RunJoblens, folder: Path) -> None:
    joblens("run", "retries.kdl", cwd=folder, code=1)
    results = results_of(joblens, "retries")
    assert {name: (row["status"], row["attempts"]) for name, row in results.items()} == {
        "hungry": ("completed", 2),
        "slow": ("completed", 2),
        "flaky": ("completed", 3),
        "broken": ("failed", 1),
        "after": ("canceled", 0),
    }


def test_the_loops_of_the_example_converge(
    joblens: RunJoblens, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = os.path.dirname(sys.executable)  # its python3 has joblens
    monkeypatch.setenv("PATH", f"{here}{os.pathsep}{os.environ['PATH']}")
    joblens("run", "converge.yaml", "--quiet", cwd=folder, code=0, timeout=300.0)
    shown = joblens("spawn-jobs", "--show", "--run", "converge", "--json", code=0).json
    found = {one["lineage"]: one["state"]["value"] for one in shown}
    assert found == pytest.approx({"root_2": 2**0.5, "root_49": 7.0})
    assert all(one["is_final"] for one in shown)


def test_the_fan_in_adds_up_all_parts_and_sees_a_change(joblens: RunJoblens, folder: Path) -> None:
    joblens("run", "fan_in.yaml", cwd=folder, code=0)
    assert (folder / "fan_in" / "total.txt").read_text() == "2370\n"
    [found] = joblens("datasets", "list", "fan_in", "--json", code=0).json
    assert (found["files"], found["producers_done"]) == (6, 6)
    with (folder / "fan_in" / "numbers" / "3.txt").open("a") as part:
        part.write("99\n")
    joblens("run", "fan_in.yaml", "--rerun-changed", cwd=folder, code=0)
    assert (folder / "fan_in" / "total.txt").read_text() == "2469\n"
    again = joblens("results", "fan_in.2", "--json", code=0).json["results"]
    assert [row["job_name"] for row in again if row["kept_from_run"] is None] == ["total"]
