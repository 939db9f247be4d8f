"""Jobs whose joblens, supervisor, both, or driver of a map are killed with SIGKILL: does the record say what
the job used?

Arguments: what to kill (joblens, supervisor, both, driver), how many times, how many at once. Each job writes
down its CPU time and the memory that it touches. Needs nothing but an installed joblens, so it also runs on a
machine without systemd: `python -m tests.vm.inside.kills both 50 5`."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from multiprocessing import get_context
from statistics import median
from typing import Any

from joblens.__main__ import entry
from joblens.__main__ import main as joblens
from joblens.agent.runtime.ownership import SupervisorLock
from joblens.app.wiring.drivers import spool_dir
from joblens.model.history import HistoryQuery
from joblens.stores.sqlite import SqliteStore
from tests.vm.inside.jobs import answer, facts, knowing_its_start, own_store, python

TIMEOUT_S = 120.0
WITHIN = 0.01
BURN_S = 1.0
END_S = 0.1  # a process cannot tell what its own end takes; a loaded host charges an emulated CPU for waiting
# Appears in the folder when it has begun; burns, touches memory, writes down the truth, and ends at once.
JOB = """
folder, seconds, megabytes, first = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]) / 1e9
open(folder + "/here", "w").close()
burn(seconds / 2)
block = fill(megabytes); del block
while used() < seconds: burn(0.01)
with open(folder + "/truth.new", "w") as file: file.write(f"{first} {used()}")
os.rename(folder + "/truth.new", folder + "/truth")
os._exit(0)
"""
DRIVER = "import joblens, sys; list(joblens.map_commands([sys.argv[1:]], jobs=1))"


class Try:
    """One job with a store, a state folder and a supervisor of its own."""

    def __init__(self, folder: str, chance: random.Random) -> None:
        self._folder = folder
        self._delay_s = chance.uniform(0.0, BURN_S)
        self._is_adopted = chance.random() < 0.5
        self._pause_s = chance.choice((0.0, 1.0))  # systemd has removed the groups by then
        self._megabytes = chance.randint(20, 60)
        self._store = f"{self._folder}/store.db"
        places = {"JOBLENS_STORE": self._store, "XDG_STATE_HOME": f"{self._folder}/state"}
        self._env = {**os.environ, **places, "JOBLENS_SUPERVISOR_IDLE": "300ms"}
        self._job = knowing_its_start(python(JOB, self._folder, str(BURN_S), str(self._megabytes)))

    def run(self, target: str) -> dict[str, Any]:
        if target == "supervisor":
            self._call("submit", "--name", "job", "--", *self._job)
            self._wait_in_job()
            self._kill_supervisor()
        elif target == "driver":
            self._start_and_kill(sys.executable, "-c", DRIVER, *self._job)
        else:
            self._start_and_kill("joblens", "run", "-q", "--name", "job", "--", *self._job)
        if target == "both":
            self._read("list")  # a supervisor adopts the job
            self._kill_supervisor()
        if self._is_adopted:
            self._read("list")
        _wait_until(lambda: os.path.exists(f"{self._folder}/truth"), "the job")
        time.sleep(self._pause_s)
        record = self._record()
        with open(f"{self._folder}/truth") as file:
            first_s, used_s = map(float, file.read().split())
        return self._judge(record, used_s - first_s, used_s)

    def _start_and_kill(self, *command: str) -> None:
        owner = subprocess.Popen(command, env=self._env, stdin=subprocess.DEVNULL)
        self._wait_in_job()
        owner.kill()
        owner.wait()

    def _wait_in_job(self) -> None:
        _wait_until(lambda: os.path.exists(f"{self._folder}/here"), "the beginning of the job")
        time.sleep(self._delay_s)

    def _kill_supervisor(self) -> None:
        """One that has ended by now, because its last job has, needs no kill."""
        pid = SupervisorLock(spool_dir(self._store, self._env)).holder()
        if pid is not None:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            _wait_until(lambda: not _is_alive(pid), "the end of the supervisor")

    def _record(self) -> dict[str, Any]:
        """As `joblens show` has it, once it has an end."""
        deadline_s = time.monotonic() + TIMEOUT_S
        self._read("list")
        store = SqliteStore(self._store)
        (record,) = store.records(HistoryQuery())
        store.close()
        while True:
            report = json.loads(self._read("show", record.job.uuid, "--json"))
            if report["status"] not in ("running", "queued"):
                return facts(report)
            assert time.monotonic() < deadline_s, f"no end in the record: {report}"
            time.sleep(0.2)

    def _judge(self, record: dict[str, Any], least_s: float, most_s: float) -> dict[str, Any]:
        cpu_s = record["cpu_s"]
        off = (min(0.0, cpu_s - least_s) + max(0.0, cpu_s - most_s - END_S)) / most_s
        flags = sorted({"cpu_total_usec", "memory_peak_bytes"}.intersection(record["lower_bounds"]))
        is_exact = abs(off) <= WITHIN and (record["peak_mb"] or 0) >= self._megabytes
        return {
            "is_right": is_exact and record["status"] == "success" and not flags,
            "is_wrong_without_a_flag": not is_exact and not flags,
            "off_percent": 100 * off,
            "cpu_s": cpu_s,
            "truth_s": [least_s, most_s],
            "above_s": cpu_s - most_s,
            "peak_mb": record["peak_mb"],
            "touched_mb": self._megabytes,
            "status": record["status"],
            "mode": record["mode"],
            "flags": flags,
            "was_adopted": self._is_adopted,
        }

    def _read(self, *arguments: str) -> str:
        """Run a command that only reads in a fork of this process: most of the time of a short command is
        importing, five times slower on an emulated machine."""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.dup2(writer, 1)
            os.environ.update(self._env)
            sys.argv = ["joblens", *arguments]
            entry()
        os.close(writer)
        with open(reader) as file:
            text = file.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code == 0, f"joblens {arguments[0]}: exit code {code}\n{text}"
        return text

    def _call(self, *arguments: str) -> str:
        done = subprocess.run(
            ["joblens", *arguments],
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"joblens {arguments[0]}: {done.stderr}"
        return done.stdout


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait_until(is_done: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_done():
        assert time.monotonic() < deadline_s, f"waited {TIMEOUT_S:g} s for {what}"
        time.sleep(0.01)


def _tried(work: tuple[str, int]) -> dict[str, Any]:
    target, seed = work
    with tempfile.TemporaryDirectory(prefix="kill-", ignore_cleanup_errors=True) as folder:
        try:
            return Try(folder, random.Random(seed)).run(target)
        except Exception as error:  # noqa: BLE001 - one of the results
            return {"is_right": False, "is_wrong_without_a_flag": False, "error": repr(error)}


def import_commands() -> None:
    """What `list` and `show` import when they run."""
    with own_store(), redirect_stdout(StringIO()):
        subprocess.run(["joblens", "run", "-q", "--name", "first", "--", "true"], check=True)
        joblens(["list"])
        joblens(["show", "first", "--json"])


def main() -> None:
    target, tries, at_once = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    import_commands()
    with get_context("fork").Pool(at_once) as pool:  # processes without threads, which can be forked
        results = pool.map(_tried, [(target, seed) for seed in range(tries)], chunksize=1)
    right = sum(result["is_right"] for result in results)
    worst = max((abs(result.get("off_percent", 0.0)) for result in results), default=0.0)
    ends = [result["above_s"] for result in results if "above_s" in result]
    starts = [result["truth_s"][1] - result["truth_s"][0] for result in results if "truth_s" in result]
    silent = sum(result["is_wrong_without_a_flag"] for result in results)
    print(
        f"kill -9 of {target}: {right} of {tries} exact, {silent} wrong without a flag, worst {worst:.2f} %"
    )
    answer(
        {
            "tries": tries,
            "right": right,
            "wrong_without_a_flag": silent,
            "worst_percent": worst,
            "cpu_after_the_truth_s": [min(ends), max(ends)] if ends else [],
            "cpu_before_the_job_s": [median(starts), max(starts)] if starts else [],
            "modes": sorted({result["mode"] for result in results if "mode" in result}),
            "others": [result for result in results if not result["is_right"]],
        }
    )


main()
