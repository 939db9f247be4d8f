"""The tables of docs/migrating.md about workflow files have every key. That their commands exist is tested
for all pages in test_examples."""

import re

from joblens.spec.keys.workflow import SECTIONS
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "migrating.md").read_text()
TORC = PAGE[PAGE.index("## Torc\n") : PAGE.index("## Joblet\n")]
HEADINGS = {
    "workflow": "Keys at the top of the file",
    "job": "Keys of `jobs`",
    "file": "Keys of `files`",
    "user_data": "Keys of `user_data`",
    "dataset": "Keys of `datasets`",
    "resource_requirements": "Keys of `resource_requirements`",
    "inline_requirements": "Keys of `resource_requirements`",
    "failure_handler": "Keys of `failure_handlers` and their `rules`",
    "rule": "Keys of `failure_handlers` and their `rules`",
    "action": "Keys of `actions`",
    "resource_monitor": "Keys of `resource_monitor`",
    "monitor_jobs": "Keys of `resource_monitor`",
    "monitor_compute_node": "Keys of `resource_monitor`",
    "execution_config": "Keys of `execution_config` and `stdio`",
    "stdio": "Keys of `execution_config` and `stdio`",
    "slurm_scheduler": "Keys of `slurm_schedulers` and `slurm_defaults`",
    "dynamic_jobs": "Keys of `dynamic_jobs`",
    "container": "Keys of `container`",
}


def rows(heading: str) -> list[list[str]]:
    section = TORC.split(f"### {heading}\n")[1].split("\n### ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def test_every_key_of_a_workflow_file_is_in_its_table() -> None:
    missing = {}
    for name, section in SECTIONS.items():
        known = {key for row in rows(HEADINGS[name]) for key in re.findall(r"`([^`]+)`", row[0])}
        lacking = [key for key in section.keys if key not in known]
        if lacking:
            missing[name] = lacking
    assert missing == {}


def test_every_row_says_what_happens_here() -> None:
    for heading in {*HEADINGS.values(), "References", "Files", "Commands"}:
        assert [row for row in rows(heading) if len(row) != 2 or not row[1]] == []
