"""Where jobs of a run are, while it goes on and afterwards."""

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import python_path, wait_until
from tests.integration.workflow_cli import WorkflowCli

ROOT = Path(__file__).parents[2]
FLOW = "name: flow\njobs: [{name: a, command: 'while [ ! -e go ]; do sleep 0.05; done'}]\n"


@pytest.fixture(autouse=True)
def with_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path(ROOT))


def test_a_run_on_a_cluster_says_where_each_job_is(cli: WorkflowCli) -> None:
    path = cli.write(FLOW)
    driver = cli.adopt(
        subprocess.Popen(
            [sys.executable, "-m", "tests.local_backend", "run", str(path), "--engine", "slurm"],
            cwd=cli.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    )
    wait_until(lambda: any(one.status == "running" for one in cli.records().values()), timeout=30)
    progress = cli.call("watch", "1.1", "--once", "--json", code=0).json
    placed = cli.records()["a"].attempt
    assert placed is not None
    assert placed.placement is not None
    ident = placed.placement.job_id
    assert progress["running"][0]["where"].endswith(f"(slurm {ident})")
    assert progress["cpus"] == {"reserved": 1.0, "offered": None}
    assert progress["memory_bytes"]["offered"] is None
    (cli.folder / "go").touch()
    driver.communicate(timeout=60)
    (row,) = cli.call("results", "1.1", "--json", code=0).json["results"]
    assert (row["engine"], row["cluster_job_id"], row["host"]) == ("slurm", ident, placed.owner.host)
    assert row["worker"]
    head, line = cli.call("results", "1.1", code=0).stdout.splitlines()[:2]
    assert "Where" in head
    assert f"(slurm {ident})" in line
    (exported,) = csv.DictReader(io.StringIO(cli.call("export", "csv", code=0).stdout))
    assert (exported["engine"], exported["cluster_job_id"]) == ("slurm", ident)
    assert row["worker"] in cli.call("show", "a", code=0).stdout
    assert cli.call("show", "a", "--json", code=0).json["cluster_job_id"] == ident


def test_a_run_of_this_machine_has_no_such_column(cli: WorkflowCli) -> None:
    (cli.folder / "go").touch()
    cli.call("run", cli.write(FLOW), code=0)
    table = cli.call("results", "1.1", code=0).stdout
    assert "Status" in table
    assert "Where" not in table
    (row,) = cli.call("results", "1.1", "--json", code=0).json["results"]
    assert (row["engine"], row["nodes"], row["worker"]) == ("local", [], None)
    assert row["host"]
