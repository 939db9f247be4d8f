"""What tests of runs on Ray have in common."""

import os
from collections.abc import Iterator

import psutil
import pytest

from tests.conftest import wait_until

FAR = """
name: far
jobs:
  - name: far_{i}
    command: |
      echo begin_{i} >> ran
      while [ ! -e go ]; do sleep 0.02; done; echo end_{i} >> ran
    parameters: {i: "1:2"}
"""


@pytest.fixture(autouse=True)
def quick_leases(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What nobody tells of is noticed soon. Nothing of a test stays behind it."""
    monkeypatch.setenv("JOBLENS_QUEUE_LEASE", "4s")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    yield
    state = os.environ.get("XDG_STATE_HOME", "")
    wait_until(lambda: not workers_and_proxies(state), what="proxies and workers to leave", timeout=30)


def workers_and_proxies(state: str) -> list[int]:
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "environ"]):
        words, environ = process.info["cmdline"] or (), process.info["environ"] or {}
        is_ours = "joblens.app.clusters.pilot_worker" in words or "joblens.runners.ray.proxy" in words
        if is_ours and environ.get("XDG_STATE_HOME") == state:
            found.append(process.info["pid"])
    return found
