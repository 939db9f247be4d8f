"""Runs `joblens` commands in a store of their own and returns reports; for programs in this folder."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

COMMAND_S = 400.0

# Burns CPU time and prints the seconds that the kernel counted for the process and its children.
BURN = """
import os, resource, sys, time
def burn(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds: pass
def used():
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)
def fill(megabytes):
    block = bytearray(megabytes << 20)
    block[::4096] = b"x" * len(block[::4096])
    return block
def finish(truth):  # ends without the work of a usual exit, which the truth could not contain
    print(truth, flush=True)
    os._exit(0)
def finish_with_cpu(seconds):  # of a job that knows its start: at least and at most so much is in the record
    finish(f"{seconds - int(sys.argv[-1]) / 1e9} {seconds}")
"""


@contextmanager
def own_store() -> Iterator[str]:
    """A folder with a store that all commands of the program use; removed at the end. The state folder stays
    the user's own, so that files left in the spool are found."""
    folder = tempfile.mkdtemp(prefix="vm-test-")
    os.environ["JOBLENS_STORE"] = f"{folder}/store.db"
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def command(*argv: str, timeout: float = COMMAND_S) -> dict[str, Any]:
    """Run a command line; returns its exit code, output and duration."""
    begin = time.monotonic()
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
    )
    seconds = time.monotonic() - begin
    return {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr, "seconds": seconds}


def run_job(folder: str, name: str, argv: list[str], *options: str) -> dict[str, Any]:
    """`joblens run` with a report: its facts that tests ask for, and the ending of the command."""
    path = f"{folder}/{name}.json"
    done = command("joblens", "run", "-q", "--name", name, "--report", path, *options, "--", *argv)
    try:
        with open(path) as file:
            report = json.load(file)
    except (OSError, ValueError) as error:
        return {**done, "report": f"unreadable: {error}"}
    return {**done, **facts(report)}


def show(name: str) -> dict[str, Any]:
    """The facts of a recorded job."""
    done = command("joblens", "show", name, "--json")
    if done["code"] != 0:
        return done
    return facts(json.loads(done["stdout"]))


def facts(report: dict[str, Any]) -> dict[str, Any]:
    """The part of a report that tests ask for."""
    usage, accounting = report["resource_usage"], report["accounting"]
    return {
        "status": report["status"],
        "reason": report["reason"],
        "exit_code": report["exit_code"],
        "error": report["error"],
        "duration_s": report["duration_seconds"],
        "mode": accounting["mode"],
        "cpu_s": usage["cpu_total_seconds"],
        "peak_mb": usage["memory_peak_mb"],
        "oom_kills": usage["oom_kills"],
        "throttled_s": (usage["cpu_throttled_usec"] or 0) / 1e6,
        "pids_limit_events": usage["pids_limit_events"],
        "network_rx_bytes": usage["network_rx_bytes"],
        "unknown": {name: why for name, why in accounting["unknown"].items() if not name.startswith("gpu")},
        "lower_bounds": accounting["lower_bounds"],
        "enforced_by": accounting["enforced_by"],
        "sources": accounting["sources"],
        "findings": {finding["code"]: finding["text"] for finding in report["findings"]},
        "leftovers": report["leftovers"],
    }


def at_once(**checks: Any) -> dict[str, Any]:
    """Run functions in threads; returns their results by name."""
    with ThreadPoolExecutor(len(checks)) as pool:
        futures = {name: pool.submit(check) for name, check in checks.items()}
        return {name: future.result() for name, future in futures.items()}


def python(code: str, *arguments: str) -> list[str]:
    """A command line that runs code with the helpers of BURN."""
    return ["python3", "-c", BURN + code, *arguments]


def knowing_its_start(argv: list[str]) -> list[str]:
    """A command line whose last argument is the CPU time in nanoseconds that the process had used before it
    became the job, which no record contains: at most what it had used at the first line of a shell."""
    return ["sh", "-c", 'first=0; read -r first rest < /proc/self/schedstat; exec "$@" "$first"', "sh", *argv]


def own_group() -> str:
    with open("/proc/self/cgroup") as file:
        return file.read().strip().rsplit("::", 1)[-1]


def signal_manager(name: str) -> None:
    """Send a signal to the user manager, such as STOP."""
    unit = f"user@{os.getuid()}.service"
    show = ["systemctl", "show", unit, "--property=MainPID", "--value"]
    pid = subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run(["sudo", "kill", f"-{name}", pid], check=True)


def answer(value: Any) -> None:
    """Print the JSON that the test reads."""
    sys.stdout.flush()
    print("\n" + json.dumps(value), flush=True)
