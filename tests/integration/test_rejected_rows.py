"""Rows that a recipe rejects: reported by reason, and limited by --max-rejects."""

import json
from pathlib import Path
from typing import Any

import pytest

import joblens as public
from joblens.model.errors import InputError
from tests.conftest import RunJoblens

pytest.importorskip("pyarrow")

OWN = """
import joblens

@joblens.operator
def picky(row: dict) -> dict:
    if row["id"] >= 5:
        raise ValueError(f"row {row['id']} is bad")
    return row
"""
REASON = "ValueError: row 5 is bad (own.py, line 7)"


@pytest.fixture
def place(tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = [json.dumps({"id": number, "text": f"row {number}"}) for number in range(39)]
    (tmp_path / "rows.jsonl").write_text("\n".join([*rows, '{"id": 1}']) + "\n")
    (tmp_path / "own.py").write_text(OWN)
    write_recipe(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_recipe(place: Path, **keys: Any) -> None:
    recipe = {
        "dataset_path": "rows.jsonl",
        "export_path": "out/rows.jsonl",
        "np": 1,
        "custom_operator_paths": "own.py",
        "process": ["text_length_filter", "picky"],
        **keys,
    }
    recipe["process"] = [{"text_length_filter": {"min_len": 1}}, "picky"]
    (place / "mine.yaml").write_text(json.dumps(recipe))


def test_rejects_are_reported_by_reason_in_the_summary_and_the_record(
    place: Path, joblens: RunJoblens
) -> None:
    done = joblens("process", "mine.yaml", "--job-id", "monday", cwd=place, code=0)
    assert "39 in, 5 out (12.8%), 35 rejected (1 invalid)" in done.stdout
    assert f"34 picky: {REASON}" in done.stdout
    assert "1 reading: missing field 'text'" in done.stdout
    rejects = [
        {"operator": "picky", "reason": REASON, "rows": 34},
        {"reason": "missing field 'text'", "rows": 1},
    ]
    shown = joblens("show", "monday", "--json", cwd=place, code=0).json
    assert shown["details"]["operators"]["rejects"] == rejects
    assert f"34 picky: {REASON}" in joblens("show", "monday", cwd=place, code=0).stdout
    summary = json.loads((place / "out" / "monday" / "job_summary.json").read_text())
    assert summary["rejects"] == rejects
    # A job that is complete tells them again.
    again = joblens("process", "--resume", "out/monday", "--json", cwd=place, code=0).json
    assert again["rejects"] == rejects


def test_a_quiet_job_warns_once_of_the_rows_it_rejected(place: Path, joblens: RunJoblens) -> None:
    done = joblens("process", "mine.yaml", "-q", "--job-id", "monday", cwd=place, code=0)
    assert done.stdout == ""
    (warning,) = done.stderr.splitlines()
    assert f"job monday: 35 rows rejected: 34 picky: {REASON}; 1 reading: missing field 'text'" in warning
    assert str(place / "out" / "monday" / "rejects") in warning


@pytest.mark.parametrize(("limit", "code"), [("34", 1), ("35", 0), ("87%", 1), ("87.5%", 0), ("0", 1)])
def test_more_rejects_than_allowed_fail_the_job(
    place: Path, joblens: RunJoblens, limit: str, code: int
) -> None:
    done = joblens(
        "process", "mine.yaml", "--max-rejects", limit, "--job-id", "monday", "--json", cwd=place, code=code
    )
    assert done.json["status"] == ("failed" if code else "completed")
    assert (place / "out" / "rows.jsonl").exists() is not bool(code)
    if code:
        assert f"more than max_rejects ({limit}) allows" in done.json["error"]
        assert done.json["rejects"][0]["reason"] == REASON
        # The limit holds for a resumed job too, until it is raised.
        joblens("process", "--resume", "out/monday", "-q", cwd=place, code=1)
        joblens("process", "--resume", "out/monday", "-q", "--max-rejects", "100%", cwd=place, code=0)
        assert len((place / "out" / "rows.jsonl").read_text().splitlines()) == 5


def test_a_recipe_may_have_the_limit(place: Path, joblens: RunJoblens) -> None:
    write_recipe(place, max_rejects="10%")
    joblens("process", "mine.yaml", "-q", cwd=place, code=1)
    joblens("process", "mine.yaml", "-q", "--max-rejects", "40", cwd=place, code=0)


@pytest.mark.parametrize("bad", ["-1", "many", "101%", "5.5", "%", "", "nan%", -1, True, 5.5])
def test_a_limit_that_is_none_is_refused(place: Path, bad: Any) -> None:
    for given in ({"max_rejects": bad}, {}):
        with pytest.raises(InputError, match=r"max.rejects must be a number of rows or a percentage"):
            public.process("mine.yaml", **given)
        write_recipe(place, max_rejects=bad)
    assert not (place / "out").exists()


def test_a_bad_limit_ends_with_2(place: Path, joblens: RunJoblens) -> None:
    done = joblens("process", "mine.yaml", "--max-rejects", "many", cwd=place, code=2)
    assert "--max-rejects must be a number of rows or a percentage such as 5%, not 'many'" in done.stderr


def test_a_program_gets_rejects_by_reason(place: Path) -> None:
    result = public.process("mine.yaml", max_rejects=35)
    assert result.ok
    assert [(each.operator, each.rows) for each in result.rejects] == [("picky", 34), ("", 1)]
