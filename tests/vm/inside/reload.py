"""A job with limits while the manager of its unit reloads: the limits of its group before and after."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.vm.inside.jobs import answer, own_store, python, run_job

BUSY = """
open(sys.argv[1], "w").write(open("/proc/self/cgroup").read())
end = time.monotonic() + 12
while time.monotonic() < end: pass
"""


def limits(group: str) -> dict[str, str]:
    values = {}
    for name in ("cpu.max", "memory.max"):
        with open(f"/sys/fs/cgroup{group}/{name}") as file:
            values[name] = file.read().strip()
    return values


def wait_for_group(path: str) -> str:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            with open(path) as file:
                if text := file.read().strip():
                    return text.rsplit("::", 1)[-1]
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("the job did not start")


def main() -> None:
    manager = sys.argv[1:]
    options = ("--cpus", "0.3", "--memory", "200m")
    with own_store() as folder, ThreadPoolExecutor(1) as pool:
        job = pool.submit(run_job, folder, "limited", python(BUSY, f"{folder}/group"), *options)
        group = wait_for_group(f"{folder}/group")
        before = limits(group)
        subprocess.run(["systemctl", *manager, "daemon-reload"], check=True)
        scope = ["systemd-run", "--quiet", *manager, "--scope", "true"]
        subprocess.run(scope, check=True)
        answer({"before": before, "after": limits(group), "job": job.result()})


main()
