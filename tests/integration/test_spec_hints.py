"""What is said about workflow files that are right and may not mean what they say, and about other files."""

from pathlib import Path

import pytest

from joblens.app.wiring.machine import machine_offer
from joblens.app.workflows.loader import load_spec
from joblens.app.workflows.validation import check_spec
from joblens.model.errors import SpecError
from joblens.model.runs.run import RunOptions
from joblens.model.values.units import format_bytes
from tests.conftest import RunJoblens

SLIP = """\
name: sweep
jobs:
- name: train_{lr}
  command: echo lr={lr} mb={mbb}
  parameters: {lr: [0.1, 0.2], mb: [1]}
"""


def test_a_slip_in_a_sweep_is_reported_by_validate_and_when_it_runs(
    joblens: RunJoblens, tmp_path: Path
) -> None:
    (tmp_path / "flow.yaml").write_text(SLIP)
    checked = joblens("validate", "flow.yaml", cwd=tmp_path, code=0)
    assert "did you mean {mb}?" in checked.stdout
    ran = joblens("run", "flow.yaml", "--dry-run", cwd=tmp_path, code=0)
    assert "did you mean {mb}?" in ran.stderr
    assert "does not use its parameter 'mb'" in ran.stderr


def test_a_script_beside_the_file_is_reported_when_the_run_starts_elsewhere(
    joblens: RunJoblens, tmp_path: Path
) -> None:
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "flow.yaml").write_text("name: f\njobs:\n- {name: a, command: python3 train.py}\n")
    (folder / "train.py").write_text("print(1)\n")
    elsewhere = joblens("run", "w/flow.yaml", cwd=tmp_path, code=1)
    assert "train.py, which is next to the file, not in this directory" in elsewhere.stderr
    assert "cd w first" in elsewhere.stderr
    assert "next to the file" in joblens("validate", "w/flow.yaml", cwd=tmp_path, code=0).stdout
    assert "next to the file" not in joblens("run", "flow.yaml", cwd=folder, code=0).stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("nofile.yaml", ""), ("flow", "flow.yaml"), ("flwo.yaml", "flow.yaml"), ("flow.yml", "flow.yaml")],
)
def test_only_a_file_of_a_similar_name_is_suggested(tmp_path: Path, typed: str, meant: str) -> None:
    for name in ("flow.kdl", "flow.yaml", "orig.yaml"):
        (tmp_path / name).touch()
    with pytest.raises(SpecError) as caught:
        load_spec(str(tmp_path / typed))
    assert caught.value.hint == (f"did you mean {tmp_path / meant}?" if meant else "")


@pytest.mark.parametrize(
    ("name", "text"),
    [("report.md", "# Results\n\n- *a*: 1\nb: [\n"), ("train.py", "import os\nprint('x')\n")],
)
def test_a_file_of_another_kind_is_called_no_workflow_file(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SpecError, match="is not a workflow file"):
        load_spec(str(path))


def test_a_workflow_of_another_ending_is_reported_its_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "flow.txt"
    path.write_text("name: x\njobs:\n- {name: a, comand: x}\n")
    with pytest.raises(SpecError, match="did you mean 'command'"):
        load_spec(str(path))


def test_jobs_around_the_nodes_of_a_kdl_file_are_said_to_go(tmp_path: Path) -> None:
    path = tmp_path / "flow.kdl"
    path.write_text('name "x"\njobs {\n  job "a" {\n    command "true"\n  }\n}\n')
    with pytest.raises(SpecError, match=r'without jobs around them: job "a" \{'):
        load_spec(str(path))


def test_validate_measures_by_what_a_run_would_be_offered(tmp_path: Path) -> None:
    offered = machine_offer(RunOptions()).memory_bytes
    path = tmp_path / "flow.yaml"
    path.write_text(f"name: x\njobs:\n- {{name: a, command: x, memory: {offered + 4096}}}\n")
    warnings = check_spec(load_spec(str(path))).warnings
    assert f"more memory than the {format_bytes(offered)} available on this machine: 'a'" in warnings
