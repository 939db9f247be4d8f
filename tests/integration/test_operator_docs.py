"""The operators that the documentation shows, as somebody would type them."""

import json
import re
from pathlib import Path

import pytest

from tests.conftest import RunJoblens

pytest.importorskip("pyarrow")

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


def test_operators_of_the_page_work_in_a_recipe(joblens: RunJoblens, tmp_path: Path) -> None:
    python = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (recipe,) = [
        text for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL) if "custom" in text
    ]
    (tmp_path / "my_operators.py").write_text("\n".join(python))
    rows = [
        {"title": "of many letters", "text": "IS it? " * 100},
        {"title": "of many letters", "text": "no"},
        {"title": "short", "text": "is it?"},
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    recipe += "  - lowercase_mapper:\n  - question_filter:\n      least: 2\n"
    paths = "dataset_path: in.jsonl\nexport_path: out.jsonl\nwork_dir: work\n"
    (tmp_path / "recipe.yaml").write_text(paths + recipe)
    ran = joblens("process", "recipe.yaml", cwd=tmp_path)
    assert ran.code == 0, ran.stderr
    (row,) = (tmp_path / "out.jsonl").read_text().splitlines()
    assert json.loads(row) == {"title": "of many letters", "text": ("is it? " * 100)[:500]}
