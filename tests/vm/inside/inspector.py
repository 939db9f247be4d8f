"""Lists what joblens has made and not removed: one JSON array per line of input."""

import glob
import json
import os
import pwd
import subprocess
import sys

CGROUPS = "/sys/fs/cgroup"
SPOOLS = (
    "/home/*/.local/state/joblens",
    "/root/.local/state/joblens",
    "/run/user/*/joblens*",
    "/dev/shm/*joblens*",
)


def is_made_for_jobs(name: str) -> bool:
    """systemd keeps the slice of a template unit (joblens-worker@.service) when its last instance ends."""
    is_slice_of_template = name.startswith("system-joblens") and name.endswith(".slice")
    return ("joblens" in name and not is_slice_of_template) or name.startswith("run-")


def groups() -> list[str]:
    found = []
    for folder, names, _ in os.walk(CGROUPS):
        found += [f"group {folder}/{name}" for name in names if is_made_for_jobs(name)]
        if read(f"{folder}/cgroup.type") not in ("domain", ""):
            found.append(f"group {folder} of type {read(folder + '/cgroup.type')}")
    return found


def read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:  # the group or process is gone
        return ""


def processes() -> list[str]:
    """Every process that runs joblens' code, but not this one and not the shells of logins."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        command = read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
        is_own = "tests.vm.inside.inspector" in command
        if "joblens" in command and not is_own and not command.startswith("sshd"):
            found.append(f"process {pid}: {command[:200]}")
    return found


def units(*manager: str, who: str) -> list[str]:
    listing = [*manager, "systemctl", *(["--user"] if manager else []), "list-units", "--all", "--plain"]
    listed = subprocess.run(
        [*listing, "--no-legend", "--no-pager"], capture_output=True, text=True, check=False
    )
    found = []
    for line in listed.stdout.splitlines():
        name, _, active, *_ = [*line.split(), "", "", ""]
        is_transient = name.startswith("run-") and name.endswith((".scope", ".service"))
        if name.startswith("joblens") or is_transient or active == "failed":
            found.append(f"unit of {who}: {name} ({active})")
    return found


def all_units() -> list[str]:
    found = units(who="system")
    for folder in glob.glob("/run/user/*/systemd/private"):
        uid = int(folder.split("/")[3])
        if uid != 0 and read(f"{CGROUPS}/user.slice/user-{uid}.slice/user@{uid}.service/cgroup.events"):
            name = pwd.getpwuid(uid).pw_name
            as_user = ("runuser", "-u", name, "--", "env", f"XDG_RUNTIME_DIR=/run/user/{uid}")
            found += units(*as_user, who=name)
    return found


def files() -> list[str]:
    found = []
    for pattern in SPOOLS:
        for top in glob.glob(pattern):
            if os.path.isfile(top):
                found.append(f"file {top}")
            found += [
                f"file {folder}/{name}"
                for folder, _, names in os.walk(top)
                for name in names
                if not name.endswith((".lock", ".log"))  # removing a lock could let two processes in
            ]
    return found


for _ in sys.stdin:
    print(json.dumps(sorted({*groups(), *processes(), *all_units(), *files()})), flush=True)
