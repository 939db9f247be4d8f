"""The script that Slurm runs, and what its answers mean."""

import subprocess
import time

from joblens.runners.slurm.orders import batch_script


def test_it_runs_in_an_environment_with_nothing_in_it() -> None:
    script = batch_script(["/bin/echo", "two  words"], env={"A": "1"})
    done = subprocess.run(["/bin/sh"], input=script, env={}, capture_output=True, text=True, check=True)
    assert done.stdout == "two  words\n"


def test_on_several_nodes_srun_starts_one_on_each() -> None:
    script = batch_script(["/py"], on_each_node=True)
    assert "exec srun " in script
    assert "--ntasks-per-node=1" in script
    subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=True)


def test_the_worker_knows_when_its_time_is_up() -> None:
    script = batch_script(["/bin/sh", "-c", "echo $SLURM_JOB_END_TIME"], time_s=120)
    done = subprocess.run(["/bin/sh"], input=script, env={}, capture_output=True, text=True, check=True)
    assert 100 < int(done.stdout) - time.time() < 140
    result = {"SLURM_JOB_END_TIME": "77"}
    done = subprocess.run(["/bin/sh"], input=script, env=result, capture_output=True, text=True, check=True)
    assert done.stdout == "77\n"
