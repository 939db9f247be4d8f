"""What Slurm's commands are given of the environment around them."""

from pathlib import Path

import pytest

from joblens.runners.slurm_commands import SlurmCommands

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
