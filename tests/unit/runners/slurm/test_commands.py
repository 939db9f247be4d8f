"""Slurm's commands: the environment they are given, and their errors."""

from pathlib import Path

import pytest

from joblens.model.errors import PlacingError
from joblens.runners.slurm.commands import SlurmCommands

_WITH_PASSWORD = "postgresql://joe:hunter2@db/jobs"


def test_sbatch_is_given_no_password_of_store_or_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "sbatch"
    program.write_text(f'#!/bin/sh\n/usr/bin/env > "{tmp_path}/given"\necho 7\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JOBLENS_STORE", _WITH_PASSWORD)
    monkeypatch.setenv("JOBLENS_STORE_URL", _WITH_PASSWORD)
    monkeypatch.setenv("JOBLENS_STORE_FROM_PARENT", _WITH_PASSWORD)
    monkeypatch.setenv("JOBLENS_QUEUE_BROKER", "redis://:hunter2@broker:1/0")
    assert SlurmCommands().sbatch([], "#!/bin/sh\n") == "7"
    given = (tmp_path / "given").read_text()
    assert "JOBLENS_STORE=postgresql://joe@db/jobs\n" in given
    assert "hunter2" not in given


@pytest.mark.parametrize(
    "lines",
    [
        ("slurm_load_partitions: Unable to contact slurm controller (connect failure)",),
        ("sinfo: error: fetch_config: DNS SRV lookup failed",
         "sinfo: fatal: Could not establish a configuration source"),
        ("sinfo: error: ClusterName needs to be specified",
         "sinfo: fatal: Unable to process configuration file"),
    ],
)  # fmt: skip
def test_a_slurm_that_cannot_be_reached_is_called_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: tuple[str, ...]
) -> None:
    program = tmp_path / "sinfo"
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in lines) + "exit 1\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlacingError) as caught:
        SlurmCommands().sinfo()
    assert str(caught.value) == f"Slurm cannot be reached: {lines[-1]}"
    assert "scontrol ping" in caught.value.hint
