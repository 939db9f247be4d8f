"""`joblens attach` to a process that runs already, and to a job of joblens."""

import json
import subprocess
import sys
import time
from typing import Any

from tests.vm.inside.jobs import COMMAND_S, answer, at_once, command, facts, own_store, python, run_job

# Burns for a second after the file appears, so that attach sees all of it.
BURN_AFTER_START = """
while not os.path.exists(sys.argv[1]): time.sleep(0.1)
burn(1.5); time.sleep(3)  # an attached process is known by its last sample
"""


def attached(pid: int, start: str) -> dict[str, Any]:
    argv = ["joblens", "attach", str(pid), "--name", f"attached-{pid}", "--json"]
    attach = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + COMMAND_S
    while command("joblens", "show", f"attached-{pid}", "--json")["code"] != 0 and time.monotonic() < end:
        time.sleep(0.2)
    time.sleep(1)  # the first sample
    with open(start, "w"):
        pass
    stdout, stderr = attach.communicate(timeout=COMMAND_S)
    if attach.returncode != 0:
        return {"code": attach.returncode, "stdout": stdout.decode(), "stderr": stderr.decode()}
    return {"code": 0, **facts(json.loads(stdout.decode().strip().rsplit("\n", 1)[-1]))}


def main() -> None:
    with own_store() as folder:

        def to_process() -> dict[str, Any]:
            process = subprocess.Popen(python(BURN_AFTER_START, f"{folder}/start"), stdin=subprocess.DEVNULL)
            found = attached(process.pid, f"{folder}/start")
            process.wait()
            return found

        def to_job() -> dict[str, Any]:
            code = "open(sys.argv[2], 'w').write(str(os.getpid()))" + BURN_AFTER_START
            argv = python(code, f"{folder}/start-job", f"{folder}/pid")

            def attach() -> dict[str, Any]:
                for _ in range(300):
                    try:
                        with open(f"{folder}/pid") as file:
                            return attached(int(file.read()), f"{folder}/start-job")
                    except (OSError, ValueError):
                        time.sleep(0.1)
                sys.exit("the job did not start")

            return at_once(job=lambda: run_job(folder, "watched", argv), attached=attach)

        answer({"process": to_process(), **to_job()})


main()
