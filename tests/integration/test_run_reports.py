"""A real run, then what is told about it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunJoblens, wait_until
from tests.integration.workflow_cli import WorkflowCli

SPEC = f"""\
name: reports
user_data:
  - name: best
jobs:
  - name: late
    command: sleep 30
    resource_requirements: {{num_cpus: 1, memory: 64m, runtime: PT0.5S}}
  - name: behind
    command: "true"
    depends_on: [late]
  - name: giver
    command: {sys.executable} -m joblens user-data set best 42
    output_user_data: [best]
  - name: taker
    command: {sys.executable} -m joblens user-data get best
    input_user_data: [best]
    resource_requirements: {{num_cpus: 4, memory: 1g, runtime: PT10M}}
"""


@pytest.mark.usefixtures("store_path")
def test_results_and_check_of_a_real_run(joblens: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(SPEC)
    joblens("run", "flow.yaml", "--cpus", "4", "--memory", "4g", code=1)

    results = {
        each["job_name"]: each for each in joblens("results", "reports", "--json", code=0).json["results"]
    }
    assert {name: each["status"] for name, each in results.items()} == {
        "late": "terminated",
        "behind": "blocked",
        "giver": "completed",
        "taker": "completed",
    }
    assert results["late"]["return_code"] == 152
    assert results["taker"]["avg_cpu_percent"] > 0
    assert joblens("logs", str(results["taker"]["job_id"]), code=0).stdout == "42\n"

    report = joblens("check", "reports", "--json", code=3).json
    assert report["total_results"] == 3
    (violation,) = report["violations"]
    assert (violation["job_name"], violation["resource_type"]) == ("late", "Runtime")
    assert (violation["specified"], violation["limit_hit"]) == ("0.5s", "timed out")
    assert violation["job_id"] == results["late"]["job_id"]

    (workflow,) = joblens("workflows", "--json", code=0).json
    last = workflow["last_run"]
    assert (last["status"], last["completed"], last["failed"], last["left"]) == ("failed", 2, 1, 1)
    assert joblens("store", "check", "--json", code=0).json["problems"] == []


WRONG = """\
name: wrong
jobs:
  - {name: lacking, command: python3 -c "import nomodule"}
  - {name: misspelt, command: pyhton3 x.py}
"""


@pytest.mark.usefixtures("store_path")
def test_results_and_summary_keep_what_a_job_said_last(joblens: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(WRONG)
    summary = " ".join(joblens("run", "flow.yaml", code=1).stdout.split())
    reasons = {
        each["job_name"]: each["reason"]
        for each in joblens("results", "wrong", "--json", code=0).json["results"]
    }
    assert reasons == {
        "lacking": "exit code 1: ModuleNotFoundError: No module named 'nomodule'",
        "misspelt": "not started: pyhton3: command not found",
    }
    assert all(f"{name} failed: {why}" in summary for name, why in reasons.items())


BUSY = """\
name: busy
jobs:
  - name: spin
    command: python3 -c "b = b'x' * (50 << 20); sum(0 for _ in iter(int, 1))"
resource_monitor: {sample_interval_seconds: 0.2}
"""


def test_a_job_that_runs_shows_its_time_and_use_so_far(cli: WorkflowCli) -> None:
    running = cli.start("run", cli.write(BUSY))
    wait_until(lambda: (_spin(cli).get("peak_mem_gb") or 0) > 0.04)
    row = _spin(cli)
    assert (row["status"], row["return_code"]) == ("running", None)
    assert row["duration_seconds"] > 0
    assert row["peak_cpu_percent"] >= row["avg_cpu_percent"] > 0
    assert row["peak_memory_is_lower_bound"]
    running.terminate()
    running.communicate(timeout=30)


def _spin(cli: WorkflowCli) -> dict[str, Any]:
    answer = cli.call("results", "busy", "--json")
    return dict(answer.json["results"][0]) if answer.code == 0 else {}
