"""Recipes that are planned here and carried out by an executor of their own, to be killed."""

import hashlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from joblens.app.recipes.jobs import make_job
from joblens.app.recipes.process import ProcessOptions, plan_recipe
from joblens.app.wiring.drivers import StoreConnection, warn_in_python
from joblens.data.base.job_folder import JobFolder
from joblens.model.recipes.recipe import RecipeEvent, RecipePlan
from joblens.model.settings import Settings

WORDS = ("the", "of", "a", "job", "row", "text", "data", "clean", "value", "number", "small", "reads", "ends")
TIMEOUT_S = 60.0

MAPPERS: list[Any] = [
    {"clean_links_mapper": None},
    {"clean_email_mapper": None},
    {"whitespace_normalization_mapper": None},
]
FILTERS: list[Any] = [{"text_length_filter": {"min_len": 60}}, {"words_num_filter": {"min_num": 12}}]
WITH_GLOBAL: list[Any] = [
    *MAPPERS,
    FILTERS[0],
    {"document_deduplicator": None},
    {"clean_ip_mapper": None},
    FILTERS[1],
    {"random_selector": {"select_ratio": 0.7}},
    {"replace_content_mapper": {"pattern": "number", "repl": "figure"}},
]


def documents(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Some are the same, some have links and addresses, some are too short."""
    chance = random.Random(seed)
    made: list[dict[str, Any]] = []
    for number in range(count):
        if made and chance.random() < 0.1:
            made.append({**chance.choice(made), "id": number})
            continue
        words = [chance.choice(WORDS) for _ in range(chance.randrange(4, 40))]
        if chance.random() < 0.3:
            words.insert(2, f"https://example.org/{number}")
        if chance.random() < 0.3:
            words.insert(1, f"somebody{number}@example.org")
        made.append({"id": number, "text": "  ".join(words), "meta": {"big": 2**70 + number}})
    return made


def write_lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def plan(folder: Path, data: Path, process: Sequence[Any], **keys: Any) -> RecipePlan:
    """A job in `folder`, ready to be carried out."""
    wanted = {name: keys.pop(name, False) for name in ("strict", "start_over")}
    options = ProcessOptions(job_id="job", **wanted)
    recipe = {
        "project_name": "kills",
        "dataset_path": str(data),
        "export_path": str(folder / "out.jsonl"),
        "work_dir": str(folder / "work"),
        "np": 2,
        "checkpoint": {"enabled": True, "strategy": "every_op"},
        "process": list(process),
        **keys,
    }
    planned = plan_recipe(recipe, options, StoreConnection(Settings(), warn_in_python))
    make_job(planned.job)
    return planned.job.plan


def start(job: RecipePlan) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "joblens.data", job.job_dir],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def carry_out(job: RecipePlan) -> int:
    process = start(job)
    _, result = process.communicate(timeout=TIMEOUT_S)
    if result and process.returncode == 0:
        raise AssertionError(result.decode())
    return process.returncode


def folder_of(job: RecipePlan) -> JobFolder:
    return JobFolder.of_plan(job)


def events_of(job: RecipePlan) -> list[RecipeEvent]:
    """Every whole event of the log; a killed job leaves torn lines."""
    events = []
    for line in Path(folder_of(job).events).read_bytes().splitlines():
        with suppress(msgspec.DecodeError):
            events.append(msgspec.json.decode(line, type=RecipeEvent))
    return events


def summary_of(job: RecipePlan) -> dict[str, Any]:
    return msgspec.json.decode(Path(folder_of(job).summary).read_bytes(), type=dict[str, Any])


def fingerprint(path: str | Path) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> bool:
    """False: the process ended first."""
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        if condition():
            return True
        if process is not None and process.poll() is not None:
            return False
        time.sleep(0.001)
    raise AssertionError("that never came")


def count_lines(path: str) -> int:
    try:
        return Path(path).read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def children_of(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def kill_after_events(job: RecipePlan, count: int) -> None:
    """Starts the executor, and kills it with SIGKILL when that many more events have been written."""
    path = folder_of(job).events
    wanted = count_lines(path) + count
    process = start(job)
    wait_for(lambda: count_lines(path) >= wanted, process)
    process.kill()
    process.communicate()


def saved_checkpoints(job: RecipePlan) -> dict[int, int]:
    """Partition -> the last operator whose checkpoint has its manifest."""
    found: dict[int, int] = {}
    for path in Path(folder_of(job).checkpoints).glob("partition_*/op_*.json"):
        partition, index = int(path.parent.name[-6:]), int(path.name[3:6])
        found[partition] = max(index, found.get(partition, -1))
    return found
