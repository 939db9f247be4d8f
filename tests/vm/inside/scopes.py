"""Scopes of joblens: `scopes one_owner`, `runtime_dir`, `hung` or `killed`."""

import glob
import os
import signal
import subprocess
import sys
import time
from typing import Any

from tests.vm.inside.jobs import answer, command, own_store, run_job, signal_manager

WORKFLOW = """
name: scopes
jobs:
  - {name: free, command: "cat /proc/self/cgroup > FOLDER/free"}
  - {name: limited, command: "cat /proc/self/cgroup > FOLDER/limited", memory: 50m}
  - {name: after, command: "cat /proc/self/cgroup > FOLDER/after", memory: 50m, depends_on: [limited]}
  - {name: last, command: "cat /proc/self/cgroup > FOLDER/last", depends_on: [after]}
"""


def unit_of(path: str) -> str:
    """The joblens scope in the text of a /proc/PID/cgroup; empty: none."""
    with open(path) as file:
        names = file.read().strip().split("/")
    return next((name for name in names if name.startswith("joblens-") and name.endswith(".scope")), "")


def one_owner(folder: str) -> dict[str, Any]:
    """A workflow with jobs in slots and with limits."""
    with open(f"{folder}/file.yaml", "w") as file:
        file.write(WORKFLOW.replace("FOLDER", folder))
    done = command("joblens", "run", f"{folder}/file.yaml", "-o", f"{folder}/output")
    units = {name: unit_of(f"{folder}/{name}") for name in ("free", "limited", "after", "last")}
    journal = ["journalctl", "--user", "--no-pager", "-o", "cat", f"--unit={units['free']}"]
    lines = subprocess.run(journal, capture_output=True, text=True, check=False).stdout.splitlines()
    return {**done, "units": units, "journal": lines}


def runtime_dir(folder: str) -> dict[str, Any]:
    """Without the variables that a login sets, and with wrong ones."""
    found = {}
    os.environ.pop("DBUS_SESSION_BUS_ADDRESS", None)
    for name, value in (("unset", None), ("wrong", "/nowhere"), ("empty", "")):
        os.environ.pop("XDG_RUNTIME_DIR", None)
        if value is not None:
            os.environ["XDG_RUNTIME_DIR"] = value
        found[name] = run_job(folder, name, ["true"])
    return found


def hung(_folder: str) -> dict[str, Any]:
    """Three jobs of one process while the user manager is stopped."""
    import joblens

    joblens.run(["true"])
    found = []
    signal_manager("STOP")
    try:
        for _ in range(3):
            begin = time.monotonic()
            result = joblens.run(["true"])
            seconds = time.monotonic() - begin
            attempt = result.record.attempt
            reason = attempt.accounting_reason if attempt else "no attempt"
            found.append({"seconds": seconds, "ok": result.ok, "reason": reason})
    finally:
        signal_manager("CONT")
    return {"jobs": found}


def killed(folder: str) -> dict[str, Any]:
    """An owner that is killed: units while its job runs on, after that, and of the next owner. In a state
    folder of its own, as recovery leaves a lock file."""
    os.environ["XDG_STATE_HOME"] = f"{folder}/state"
    script = f"cat /proc/self/cgroup > {folder}/part; mv {folder}/part {folder}/first; sleep 4"
    owner = subprocess.Popen(["joblens", "run", "-q", "--", "sh", "-c", script])
    while not os.path.exists(f"{folder}/first"):
        time.sleep(0.05)
    unit = unit_of(f"{folder}/first")
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    running = scope_exists(unit)
    command("joblens", "run", "-q", "--", "sh", "-c", f"cat /proc/self/cgroup > {folder}/second")
    deadline = time.monotonic() + 30
    while scope_exists(unit) and time.monotonic() < deadline:
        time.sleep(0.1)
    command("joblens", "history")  # records the end of the first job
    return {"unit": unit, "while": running, "after": scope_exists(unit), "next": unit_of(f"{folder}/second")}


def scope_exists(unit: str) -> bool:
    return bool(glob.glob(f"/sys/fs/cgroup/**/{unit}", recursive=True))


PROGRAMS = {"one_owner": one_owner, "runtime_dir": runtime_dir, "hung": hung, "killed": killed}

with own_store() as own:
    answer(PROGRAMS[sys.argv[1]](own))
