import os
import time
from pathlib import Path

import pytest

from joblens.model.jobs.details import GpuFacts
from joblens.probes.gpu.drm_sysfs import Card
from joblens.probes.gpu.intel_gpu_top import IntelGpuTop
from tests.unit.probes.gpu_trees import FIXTURES

CARD = Card(
    facts=GpuFacts(id="0000:00:02.0", vendor="intel", index=0),
    directory="/sys/class/drm/card1",
    nodes=frozenset({"card1", "renderD129"}),
)
PRINTED = FIXTURES / "intel_gpu_top.json"


def program(folder: Path, script: str) -> str:
    path = folder / "intel_gpu_top"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def read_until(top: IntelGpuTop, end: str) -> tuple[dict[str, int], str]:
    """Until it has numbers, or until the reason says so."""
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        fields, why = top.read(CARD)
        if fields or (end and end in why):
            return fields, why
        time.sleep(0.01)
    raise AssertionError("nothing came")


def test_numbers_come_from_the_program_while_it_runs(tmp_path: Path) -> None:
    arguments = tmp_path / "arguments"
    top = IntelGpuTop(program(tmp_path, f'echo "$@" > {arguments}; cat {PRINTED}; exec sleep 60'))
    try:
        fields, why = read_until(top, "")
        assert (fields["utilization"], why) == (8725, "")
        assert arguments.read_text().split() == ["-J", "-s", "2000", "-d", "drm:/dev/dri/card1"]
    finally:
        pid = top._running[CARD.facts.id]._process.pid
        top.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_program_that_may_not_is_the_reason(tmp_path: Path) -> None:
    top = IntelGpuTop(program(tmp_path, 'echo "Failed to initialize PMU! (Permission denied)" >&2; exit 1'))
    fields, why = read_until(top, "Permission denied")
    assert fields == {}
    assert why.startswith("intel_gpu_top: Failed to initialize PMU")
    top.close()
