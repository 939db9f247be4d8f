"""Records the job folders under tests/fixtures/recipes with a real DataJuicer 1.6.1 (needs Ray beside it):

    python tests/record_datajuicer_jobs.py VENV/bin/python

A job that finished, one whose operator failed, one that was killed, the same gone on with, and one with a
global operator. Only what a snapshot reads is kept, without names of this machine; numbers of processes are
replaced by such as no process can have."""

import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "fixtures", "recipes")
NO_PROCESS = 4_194_305  # above the largest number the kernel gives
WORDS = ("alpha", "beta", "gamma", "delta", "river", "stone", "paper", "light", "cloud", "winter", "music")

RECIPE = """\
project_name: demo
executor_type: ray_partitioned
dataset_path: ./pages.jsonl
work_dir: ./jobs
export_path: ./jobs/{job_id}/result.jsonl
np: 2
partition: {mode: manual, num_of_partitions: 3}
checkpoint: {enabled: true, strategy: every_op}
event_logging: {enabled: true}
custom_operator_paths: [./own_operators]
skip_op_error: false
process:
"""
OPERATOR = """\
import time
from data_juicer.ops.base_op import OPERATORS, Mapper


@OPERATORS.register_module("slow_mapper")
class SlowMapper(Mapper):
    def __init__(self, seconds: float = 0.0, fail_on: str = "", *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seconds, self.fail_on = seconds, fail_on

    def process_single(self, sample):
        time.sleep(self.seconds)
        if self.fail_on and self.fail_on in sample[self.text_key]:
            raise ValueError("this text may not be here: " + self.fail_on)
        return sample
"""
FILTERS = ["text_length_filter: {min_len: 40}", "words_num_filter: {min_num: 6}"]
CLEANING = ["clean_links_mapper: {}", "clean_email_mapper: {}", "whitespace_normalization_mapper: {}"]


def write_inputs(folder: str) -> None:
    draw = random.Random(5)
    with open(os.path.join(folder, "pages.jsonl"), "w") as file:
        for number in range(240):
            text = " ".join(draw.choice(WORDS) for _ in range(draw.choice([3, 8, 30, 60])))
            if number % 5 == 0:
                text += f" mail me{number}@example.org or see https://example.org/{number}"
            file.write(json.dumps({"text": text, "id": number}) + "\n")
    os.mkdir(os.path.join(folder, "own_operators"))
    with open(os.path.join(folder, "own_operators", "__init__.py"), "w") as file:
        file.write("from . import slow_mapper\n")
    with open(os.path.join(folder, "own_operators", "slow_mapper.py"), "w") as file:
        file.write(OPERATOR)


def start(python: str, folder: str, name: str, operators: list[str], *, resume: bool = False) -> Any:
    with open(os.path.join(folder, f"{name}.yaml"), "w") as file:
        file.write(RECIPE + "".join(f"  - {operator}\n" for operator in operators))
    process = os.path.join(os.path.dirname(python), "dj-process")
    return subprocess.Popen(
        [process, "--config", f"{name}.yaml", "--resume" if resume else "--job_id", name],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill_in_the_middle(process: Any, job: str) -> None:
    """All of its processes, once seven checkpoints are kept."""
    while True:
        saved = 0
        for path in glob.glob(os.path.join(job, "events_*.jsonl")):
            with open(path) as file:
                saved += file.read().count('"checkpoint_save"')
        if saved >= 7:
            break
        time.sleep(0.05)
    for pid in descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(name))
    found, left = [], [root]
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def keep(folder: str, job: str, kept_as: str, python: str) -> None:
    target = os.path.join(FIXTURES, kept_as)
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    venv = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    numbers: dict[str, int] = {}

    def process_number(found: re.Match[str]) -> str:
        return found[1] + str(numbers.setdefault(found[2], NO_PROCESS + len(numbers)))

    for path in sorted(glob.glob(os.path.join(folder, "jobs", job, "*.*"))):
        if not os.path.isfile(path):
            continue
        with open(path) as file:
            text = file.read()
        text = text.replace(folder, "/data").replace(venv, "/opt/datajuicer")
        text = re.sub(r'("process_id": |pid=)(\d+)', process_number, text)
        text = re.sub(r"ip=[\d.]+", "ip=127.0.0.1", text)
        with open(os.path.join(target, os.path.basename(path)), "w") as file:
            file.write(text)


def main(python: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(folder)
        start(python, folder, "finished", [*CLEANING, *FILTERS]).wait()
        keep(folder, "finished", "datajuicer-finished", python)
        fails = 'slow_mapper: {fail_on: "me100@"}'
        start(python, folder, "failed", [CLEANING[0], CLEANING[2], fails, *FILTERS]).wait()
        keep(folder, "failed", "datajuicer-failed", python)
        slow = [*CLEANING, "slow_mapper: {seconds: 0.06}", *FILTERS]
        process = start(python, folder, "killed", slow)
        kill_in_the_middle(process, os.path.join(folder, "jobs", "killed"))
        keep(folder, "killed", "datajuicer-killed", python)
        start(python, folder, "killed", slow, resume=True).wait()
        keep(folder, "killed", "datajuicer-resumed", python)
        last = ["ray_document_deduplicator: {}", "alphanumeric_filter: {}"]
        start(python, folder, "global", [*CLEANING, *FILTERS, *last]).wait()
        keep(folder, "global", "datajuicer-global", python)


if __name__ == "__main__":
    main(sys.argv[1])
