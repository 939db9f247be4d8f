"""I/O of a job that writes 20 MiB past the page cache, and of one whose child nobody waits for."""

import json
import os
from typing import Any

from tests.vm.inside.jobs import answer, command, own_store

MIB = 1 << 20
UNREAPED = f"""
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    file = os.open('unreaped', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(10): os.write(file, b'x' * {MIB})
    os._exit(0)
time.sleep(1.5)
"""


def io_of(name: str, *argv: str) -> dict[str, Any]:
    command("joblens", "run", "-q", "--report", f"{name}.json", "--", *argv)
    with open(f"{name}.json") as file:
        report = json.load(file)
    numbers = {
        number: value for number, value in report["resource_usage"].items() if number.startswith("io_")
    }
    accounting = report["accounting"]
    return {**numbers, "lower_bounds": accounting["lower_bounds"], "unknown": accounting["unknown"]}


def main() -> None:
    with own_store():
        folder = os.path.expanduser("~/device-io")  # on a device, which /tmp may not be
        os.makedirs(folder, exist_ok=True)
        os.chdir(folder)
        try:
            direct = io_of("direct", "dd", "if=/dev/zero", "of=direct", "bs=1M", "count=20", "oflag=direct")
            unreaped = io_of("unreaped", "python3", "-c", UNREAPED)
        finally:
            command("rm", "-rf", folder)
        answer({"direct": direct, "unreaped": unreaped})


main()
