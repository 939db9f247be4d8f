"""What a waiting job costs, measured in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import wait_until

JOBS = 20_000
MOST_BYTES = 1024

_SIZE = """
import ctypes, gc, os, sys
from joblens.app.workflows.loader import load_spec
from joblens.engine.schedule.capacity import RunCapacity
from joblens.engine.schedule.schedule import Schedule

def resident() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

load_spec(sys.argv[2])
before = resident()
loaded = load_spec(sys.argv[1])
schedule = Schedule(loaded.plan, RunCapacity(cpus=2, memory_bytes=1 << 34))
schedule.begin(0.0)
text = len(loaded.text) + sum(len(job.name) + len(job.command) for job in loaded.plan.jobs)
print((resident() - before - text) / len(loaded.plan.jobs))
"""


def written_out(count: int) -> str:
    entries = (
        f"  - name: job_{place}\n    command: python work.py --part {place}\n    num_cpus: 1\n"
        + (f"    depends_on: [job_{place - 100}]\n" if place >= 100 else "")
        for place in range(count)
    )
    return "name: many\njobs:\n" + "".join(entries)


def sweep(count: int) -> str:
    return (
        f"name: many\njobs:\n  - {{name: 'j{{i}}', command: 'echo {{i}}', parameters: {{i: '1:{count}'}}}}\n"
    )


@pytest.mark.parametrize("text_of", [written_out, sweep])
def test_a_waiting_job_takes_less_than_a_kilobyte(text_of: Callable[[int], str], tmp_path: Path) -> None:
    files = []
    for count in (JOBS, 10):
        file = tmp_path / f"{count}.yaml"
        file.write_text(text_of(count), encoding="utf-8")
        files.append(str(file))
    done = subprocess.run([sys.executable, "-c", _SIZE, *files], check=True, capture_output=True, text=True)
    assert 100 < float(done.stdout) < MOST_BYTES


def test_a_driver_has_little_of_each_job_that_waits(
    store_path: Path, tmp_path: Path, processes_to_end: list[subprocess.Popen[bytes]]
) -> None:
    resident, texts = {}, {}
    for count in (JOBS, 10):
        file, began = tmp_path / f"{count}.yaml", tmp_path / f"began-{count}"
        work = "touch $BEGAN; sleep 60;"
        text = written_out(count).replace("python work.py", work)
        file.write_text(text, encoding="utf-8")
        options = ("--jobs", "1", "-o", str(tmp_path / f"o-{count}"))
        command = [sys.executable, "-m", "joblens", "run", str(file), *options]
        driver = subprocess.Popen(
            command, cwd=tmp_path, env={**os.environ, "BEGAN": str(began)}, stdout=subprocess.DEVNULL
        )
        processes_to_end.append(driver)
        wait_until(began.exists, what="the first job")
        status = Path(f"/proc/{driver.pid}/status").read_text(encoding="utf-8")
        resident[count] = 1024 * int(status.partition("VmRSS:")[2].split()[0])
        driver.terminate()
        driver.wait(30)
        names_and_commands = sum(len(f"job_{place}{work} --part {place}") for place in range(count))
        texts[count] = len(text) + names_and_commands
    each = (resident[JOBS] - resident[10] - texts[JOBS] + texts[10]) / JOBS
    assert 100 < each < MOST_BYTES, each
