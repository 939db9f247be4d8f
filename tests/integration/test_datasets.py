"""Datasets: directories that several jobs fill and others read once all of it is there."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.integration.workflow_desk import WorkflowDesk, states

FAN_IN = """\
name: fan_in
datasets:
  - name: parts
    path: out/parts/
    hash_mode: content
jobs:
  - name: part_{i}
    command: cd ${datasets.output.parts} && sleep 0.{i} && echo {i} > part_{i}.txt
    invocation_script: mkdir -p ${datasets.output.parts} &&
    parameters: {i: "0:4"}
  - name: combine
    command: cat ${datasets.input.parts}/*.txt > combined.txt
"""


def datasets_of(desk: WorkflowDesk, *words: str) -> dict[str, dict[str, Any]]:
    listed = desk.call("datasets", "list", "1.1", "--json", *words, code=0).json
    return {one["name"]: one for one in listed}


def test_a_fan_in_waits_for_all_producers_and_records_what_was_made(desk: WorkflowDesk) -> None:
    document = desk.run(FAN_IN)
    assert set(states(document).values()) == {"completed"}
    assert (desk.folder / "combined.txt").read_text().split() == ["0", "1", "2", "3", "4"]
    [found] = datasets_of(desk).values()
    digest = hashlib.sha256()
    for number in range(5):
        digest.update(f"part_{number}.txt\0".encode() + hashlib.sha256(f"{number}\n".encode()).digest())
    assert found["status"] == "finalized"
    assert (found["files"], found["bytes"], found["sha256"]) == (5, 10, digest.hexdigest())
    assert (found["producers"], found["producers_done"]) == (5, 5)
    [stamp] = desk.records()["combine"].inputs
    assert (stamp.path, stamp.files, stamp.digest) == ("out/parts/", 5, digest.hexdigest())
