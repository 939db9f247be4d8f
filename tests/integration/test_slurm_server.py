"""The Slurm that other tests stand on: two nodes, steps across both, accounting."""

from pathlib import Path

from tests.conftest import wait_until
from tests.slurm_server import SlurmServer


def test_a_job_runs_on_two_nodes_and_is_accounted_for(slurm: SlurmServer, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    line = "srun --overlap sh -c 'echo $SLURMD_NODENAME'; exit 3"
    output = tmp_path / "out"
    words = ["--parsable", "--nodes=2", f"--output={output}", "--wrap", line]
    job_id = slurm.ask("sbatch", *words).strip()
    asked = ("sacct", "-n", "-P", "-X", "-j", job_id, "--format=State,ExitCode,NNodes")
    wait_until(lambda: slurm.ask(*asked).strip() == "FAILED|3:0|2", timeout=60.0, what="sacct to tell")
    assert sorted(output.read_text().split()) == ["n1", "n2"]
