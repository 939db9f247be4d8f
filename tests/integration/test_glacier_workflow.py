"""One workflow with every way to write sweeps, variables, references and actions, in all formats, and run."""

import json
import shutil
from pathlib import Path

import pytest

from joblens.app.workflows.loader import load_spec
from joblens.model.runs.plan import Plan
from tests.conftest import REPOSITORY
from tests.integration.workflow_cli import WorkflowCli, states

GLACIER = REPOSITORY / "tests" / "fixtures" / "glacier"
FORMATS = ("yaml", "json", "json5", "kdl", "toml")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return load_spec(str(GLACIER / "glacier.yaml")).plan


def test_it_has_what_its_tables_and_variables_say(plan: Plan) -> None:
    assert [job.name for job in plan.jobs] == [
        *("radar_hut", "radar_pass"),
        *("drill_10_01", "drill_10_02", "drill_25_01", "drill_25_02"),
        *("core_10", "core_25", "model_flat", "model_karwendel"),
        *("pair_a_karwendel", "pair_b_other", "report"),
    ]
    assert [file.path for file in plan.files] == [
        *("tables/stations.jsonl", "out/radar_hut.txt", "out/radar_pass.txt"),
        *("out/depth_10.txt", "out/depth_25.txt"),
    ]
    assert plan.jobs[0].requirements.memory_bytes == 64 << 20
    assert plan.jobs[0].env == {"SURVEY": "karwendel"}
    assert plan.user_data[1].data["height"] == ["2755"]


@pytest.mark.parametrize("form", FORMATS[1:])
def test_every_format_says_the_same(form: str, plan: Plan) -> None:
    assert load_spec(str(GLACIER / f"glacier.{form}")).plan == plan


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gets_the_same_warnings(form: str) -> None:
    warnings = load_spec(str(GLACIER / f"glacier.{form}")).warnings_for()
    result = sorted(text.split(": ", 1)[1].split(";")[0] for text in warnings)
    assert result == [
        "jobs in an action has no effect with trigger_type on_workflow_start",
        "srun_mpi in execution_config has no effect with this engine: only for --engine slurm",
        "unknown key 'metrics' in resource_monitor",
    ]


def test_it_runs_to_its_end(cli: WorkflowCli) -> None:
    shutil.copytree(GLACIER / "tables", cli.folder / "tables")
    document = cli.run((GLACIER / "glacier.yaml").read_text(), code=0)
    assert set(states(document).values()) == {"completed"}
    sites = [
        json.dumps(
            {"station": name, "note": 'it\'s "$HOME" `here`', "height": [height]}, separators=(",", ":")
        )
        for name, height in (("hut", "2310"), ("pass", "2755"))
    ]
    assert (cli.folder / "out" / "radar_hut.txt").read_text() == sites[0] + "\n"
    assert (cli.folder / "out" / "report.txt").read_text() == " and ".join(sites) + "\n"
    assert cli.lines("workers.txt") == ["begun", "left"]
    assert cli.lines("out/again.txt") == ["again"] * 4


def test_tables_are_looked_for_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_spec(str(GLACIER / "glacier.kdl")).plan == plan
