"""Jobs inside a real Slurm of two nodes: what srun and mpirun start is counted, on every node."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from joblens.model.history import HistoryQuery
from tests.conftest import wait_until
from tests.integration.run_jobs import PYTHON
from tests.integration.workflow_cli import WorkflowCli
from tests.slurm_server import SlurmServer

MIB = 1 << 20
# Holds some memory, works for a while by its own clock, and says how much it used.
WORK = (
    "import sys, resource, time; held = bytearray(b'x') * (int(sys.argv[2]) << 20)\n"
    "while sum(resource.getrusage(0)[:2]) < float(sys.argv[1]): sum(range(5000))\n"
    "print(sum(resource.getrusage(0)[:2]), flush=True)"
)
# Grows on the second node alone.
GROW_THERE = (
    "import os, time\n"
    "held = []\n"
    "while os.environ['SLURMD_NODENAME'] == 'n2':\n"
    "    held.append(bytearray(b'x') * (8 << 20)); time.sleep(0.02)\n"
    "time.sleep(60)"
)
KILL_AGENT = (
    "import os, signal, time\n"
    "mark = os.environ['JOBLENS_JOB_ID'].encode()\n"
    "for pid in filter(str.isdecimal, os.listdir('/proc')):\n"
    "    try: words = open(f'/proc/{pid}/cmdline', 'rb').read()\n"
    "    except OSError: continue\n"
    "    if b'joblens.app.clusters.node_agent' in words and mark in words and b'srun' not in words:\n"
    "        os.kill(int(pid), signal.SIGKILL)\n"
)


class Inside:
    """Runs one `joblens run` as the script of a Slurm job."""

    def __init__(self, slurm: SlurmServer, folder: Path) -> None:
        folder.chmod(0o755)
        self._slurm = slurm
        self._folder = folder

    def run(self, *words: str, nodes: int = 2) -> dict[str, Any]:
        run = [
            sys.executable,
            "-m",
            "joblens",
            "--store",
            f"sqlite:///{self._folder}/jobs.db",
            "run",
            "--json",
        ]
        job = self._folder / "job.json"
        job.write_text(json.dumps([*run, *words]))
        script = self._folder / "job.sh"
        read = f"import json, os; words = json.load(open({str(job)!r})); os.execv(words[0], words)"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{read}"\n')
        output = self._folder / "out"
        options = (f"--nodes={nodes}", f"--ntasks={nodes}", "--cpus-per-task=1", "--mem=600", "--overcommit")
        job_id = self._slurm.ask("sbatch", "--parsable", *options, f"--output={output}", str(script)).strip()
        # `sbatch --wait` would look only every few seconds.
        wait_until(lambda: self._state(job_id) in ("", "COMPLETED", "FAILED"), what="the end", timeout=60)
        lines = output.read_text().splitlines()
        self.printed = [line for line in lines if not line.startswith("{")]
        found = [line for line in lines if line.startswith('{"task_id"')]
        assert found, lines
        show = [
            sys.executable,
            "-m",
            "joblens",
            "--store",
            f"sqlite:///{self._folder}/jobs.db",
            "--json",
            "show",
        ]
        record = json.loads(self._slurm.ask(*show, json.loads(found[0])["job_uuid"]))
        assert isinstance(record, dict)
        return record

    def _state(self, job_id: str) -> str:
        return self._slurm.ask(
            "squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T"
        ).strip()


@pytest.fixture
def inside(slurm: SlurmServer, tmp_path: Path) -> Inside:
    return Inside(slurm, tmp_path)


def _cpu_of_tasks(inside: Inside) -> float:
    return sum(float(line) for line in inside.printed)


@pytest.mark.parametrize("accounting", ["auto", "process_tree"])
def test_tasks_on_both_nodes_are_in_one_record(inside: Inside, accounting: str) -> None:
    words = ("--accounting", accounting, "--", "srun", "--overlap", *PYTHON, WORK, "0.8", "60")
    record = inside.run(*words)
    used = record["resource_usage"]
    assert record["status"] == "success"
    assert 0.95 * _cpu_of_tasks(inside) < used["cpu_total_seconds"] < _cpu_of_tasks(inside) + 0.5
    first, second = record["details"]["nodes"]["nodes"]
    assert (first["node"], first["is_first"], first["tasks"]) == ("n1", True, [0])
    assert (second["node"], second["tasks"], second.get("error", "")) == ("n2", [1], "")
    assert second["usage"]["cpu_total_usec"] > 700_000
    assert 60 < used["memory_peak_mb"] < 100  # of one node, not of both
    assert ("cpu_total_usec" in record["accounting"]["lower_bounds"]) == (accounting == "process_tree")


def test_what_mpirun_starts_is_counted_on_every_node(inside: Inside) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("no Open MPI here")
    record = inside.run("--", "mpirun", "--allow-run-as-root", "-n", "2", *PYTHON, WORK, "0.6", "10")
    used = record["resource_usage"]["cpu_total_seconds"]
    assert record["status"] == "success"
    assert record["leftovers"] == 0  # the srun that held mpirun's daemons ends by itself
    assert _cpu_of_tasks(inside) <= used < _cpu_of_tasks(inside) + 1.0
    assert [part["usage"]["cpu_total_usec"] > 500_000 for part in record["details"]["nodes"]["nodes"]] == [
        True
    ] * 2


def test_a_job_of_one_node_is_counted_with_what_srun_starts(inside: Inside) -> None:
    record = inside.run("--", "srun", "--overlap", *PYTHON, WORK, "0.6", "50", nodes=1)
    assert record["resource_usage"]["cpu_total_seconds"] >= _cpu_of_tasks(inside)
    assert record["resource_usage"]["memory_peak_mb"] > 50
    assert record["details"].get("nodes") is None
    assert "io_call_reads" in record["accounting"]["lower_bounds"]


def test_the_command_learns_its_nodes(inside: Inside) -> None:
    line = 'echo "$JOBLENS_NODES $JOBLENS_NODE_LIST"; cat "$JOBLENS_NODE_FILE"'
    record = inside.run("--", "sh", "-c", line)
    assert inside.printed == ["2 n1,n2", "n1", "n2"]
    assert record["details"]["nodes"]["nodes"][1]["node"] == "n2"
    assert "memory_peak_bytes" not in record["accounting"]["lower_bounds"]


@pytest.mark.parametrize("accounting", ["auto", "process_tree"])
def test_too_much_memory_on_another_node_ends_the_job_as_here(inside: Inside, accounting: str) -> None:
    limits = ("--accounting", accounting, "--memory", "100m")
    record = inside.run(*limits, "--", "srun", "--overlap", "--kill-on-bad-exit=1", *PYTHON, GROW_THERE)
    assert (record["status"], record["reason"], record["exit_code"]) == ("failed", "out-of-memory", 137)
    assert "out-of-memory" in [finding["code"] for finding in record["findings"]]


def test_a_node_whose_agent_was_killed_says_so(inside: Inside) -> None:
    record = inside.run("--", *PYTHON, KILL_AGENT)
    assert record["status"] == "success"
    part = record["details"]["nodes"]["nodes"][1]
    assert "the joblens agent there ended before the job" in part["error"]
    assert "cpu_total_usec" in record["accounting"]["lower_bounds"]


WIDE_AND_PACKED = """
name: nodes
resource_requirements:
  - {{name: wide, num_cpus: 1, num_nodes: 2, memory: 300m, runtime: PT5M}}
  - {{name: slim, num_cpus: 1, memory: 200m, runtime: PT5M}}
jobs:
  - name: {name}
    command: srun --overlap --mem=0 {options} {python} work.py
    resource_requirements: {needs}
"""


@pytest.mark.parametrize(
    ("needs", "options", "engine"),
    [
        ("wide", "", ("--packing", "jobs")),
        ("slim", "-N1 -n1 -w $SLURMD_NODENAME", ("--packing", "allocations", "--nodes", "2")),
    ],
)
def test_jobs_of_a_workflow_are_counted_with_what_srun_starts(
    slurm: SlurmServer, cli: WorkflowCli, needs: str, options: str, engine: tuple[str, ...]
) -> None:
    work = "import resource\nwhile sum(resource.getrusage(0)[:2]) < 0.6: sum(range(5000))\n"
    (cli.folder / "work.py").write_text(work)
    text = WIDE_AND_PACKED.format(name=needs, needs=needs, options=options, python=sys.executable)
    cli.run(text, "--engine", "slurm", *engine)
    store = cli.store()
    try:
        (record,) = store.records(HistoryQuery())
        nodes = store.details(record.job.uuid).nodes
    finally:
        store.close()
    assert record.attempt is not None
    assert record.attempt.placement is not None
    assert record.outcome is not None
    count = 2 if needs == "wide" else 1
    assert len(record.attempt.placement.nodes) == count
    assert 590_000 * count < (record.outcome.usage.cpu_total_usec or 0) < 900_000 * count
    assert (nodes is not None) == (count == 2)
