"""The signal that jobs get before their time is up, as srun writes it."""

import signal

import pytest

from joblens.model.errors import PlanError
from joblens.model.runs.workflow_spec import ExecutionSpec
from joblens.plan.workflows.slurm import srun_signal


@pytest.mark.parametrize(
    ("text", "number", "lead_s"),
    [
        ("TERM@120", signal.SIGTERM, 120),
        ("SIGUSR1@30", signal.SIGUSR1, 30),
        ("B:USR2@5", signal.SIGUSR2, 5),
        ("INT", signal.SIGINT, 60),
    ],
)
def test_it_is_read_as_srun_reads_it(text: str, number: int, lead_s: float) -> None:
    assert srun_signal(ExecutionSpec(mode="slurm", srun_termination_signal=text)) == (number, lead_s)


def test_none_is_none() -> None:
    assert srun_signal(ExecutionSpec()) is None


@pytest.mark.parametrize("text", ["soon", "NOSUCH@3", "TERM@soon", "@5"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="srun_termination_signal"):
        srun_signal(ExecutionSpec(srun_termination_signal=text))
