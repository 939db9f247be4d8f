"""A job of several nodes on a real Ray: its other nodes are reached through doors, and counted."""

import os
import shutil
import sys

import pytest

from joblens.model.history import HistoryQuery
from tests.integration.ray_cluster import cluster
from tests.integration.workflow_cli import WorkflowCli
from tests.ray_head import RayCluster

__all__ = ["cluster"]

WORK = "import resource\nwhile sum(resource.getrusage(0)[:2]) < 0.6: sum(range(5000))\n"
WIDE = f"""
name: wide
resource_requirements:
  - {{name: wide, num_cpus: 1, num_nodes: 2, memory: 300m, runtime: PT5M}}
jobs:
  - name: rsh
    command: $PYTHON -P -m joblens.app.clusters.on_node ${{JOBLENS_NODE_LIST#*,}} $PYTHON work.py
    env: {{PYTHON: {sys.executable}}}
    resource_requirements: wide
  - name: mpi
    command: {{mpirun}} --hostfile $JOBLENS_NODE_FILE --map-by node -n 2 {sys.executable} work.py
    resource_requirements: wide
    depends_on: [rsh]
"""


def test_what_runs_on_the_other_node_is_in_the_record(
    cli: WorkflowCli, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    cluster.add_node()
    has_mpi = shutil.which("mpirun") is not None
    as_root = " --allow-run-as-root" if os.geteuid() == 0 else ""
    text = WIDE.replace("{mpirun}", f"mpirun{as_root}")
    if not has_mpi:
        text = text[: text.index("  - name: mpi")]
    (cli.folder / "work.py").write_text(WORK)
    cli.run(text, "--engine", "ray", "--address", cluster.address, timeout=180.0)
    store = cli.store()
    try:
        found = {one.job.name: (one, store.details(one.job.uuid)) for one in store.records(HistoryQuery())}
    finally:
        store.close()
    for name, (record, details) in found.items():
        assert record.outcome is not None
        assert record.attempt is not None
        assert record.attempt.placement is not None
        assert len(record.attempt.placement.nodes) == 2
        assert details.nodes is not None
        first, second = details.nodes.nodes
        assert (first.is_first, second.error) == (True, "")
        assert (second.usage.cpu_total_usec or 0) > 550_000
        assert ((first.usage.cpu_total_usec or 0) > 550_000) == (name == "mpi")
        total = (first.usage.cpu_total_usec or 0) + (second.usage.cpu_total_usec or 0)
        assert record.outcome.usage.cpu_total_usec == total
    assert len(found) == 1 + has_mpi
