"""A process that is killed between the store and the history file: the next one writes the line, once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.background_jobs import open_cli

KILLED = """
import os, signal, sys
from joblens.stores.sinks.history_jsonl import HistoryJsonl
write, moment = HistoryJsonl.jobs_ended, sys.argv.pop(1)

def jobs_ended(self, records):
    if moment == "after":
        write(self, records)
    os.kill(os.getpid(), signal.SIGKILL)

HistoryJsonl.jobs_ended = jobs_ended
"""
RUN = "sys.argv[1:] = ['run', '--', 'true']\nfrom joblens.__main__ import entry\nentry()\n"
MAP = "import joblens\nlist(joblens.map_commands([['true']]))\n"
MONITOR = """
import joblens
monitor = joblens.JobMonitor()
monitor.start_monitoring("mine", tool="t", script="s")
monitor.stop_monitoring("mine", "success")
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("code", [RUN, MAP, MONITOR], ids=["run", "map", "monitor"])
def test_a_history_line_is_written_once(code: str, moment: str, tmp_path: Path) -> None:
    with open_cli("auto", tmp_path) as one:
        program = [sys.executable, "-c", KILLED + code, moment]
        killed = subprocess.run(program, env=one.env(), cwd=one.folder, check=False, capture_output=True)
        assert killed.returncode == -9, killed.stderr
        history = one.store.parent / "jobs_history.jsonl"
        assert len(_lines(history)) == (1 if moment == "after" else 0)
        for _ in range(2):
            one.call("list", code=0)
            assert _lines(history) == [record.job.uuid for record in one.records()]


def test_the_next_owner_of_jobs_writes_the_line_too(tmp_path: Path) -> None:
    with open_cli("auto", tmp_path) as one:
        program = [sys.executable, "-c", KILLED + MAP, "before"]
        subprocess.run(program, env=one.env(), cwd=one.folder, check=False)
        one.call("run", "--", "true", code=0)
        assert len(_lines(one.store.parent / "jobs_history.jsonl")) == 2
        one.call("list", code=0)


def _lines(history: Path) -> list[str]:
    lines = history.read_text().splitlines() if history.exists() else []
    return [json.loads(line)["job_uuid"] for line in lines]
