"""`joblens run -- true` with the user manager as usual, and stopped by SIGSTOP."""

import os
import subprocess

from tests.vm.inside.jobs import answer, own_store, run_job


def signal_manager(name: str) -> None:
    unit = f"user@{os.getuid()}.service"
    show = ["systemctl", "show", unit, "--property=MainPID", "--value"]
    pid = subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run(["sudo", "kill", f"-{name}", pid], check=True)


def main() -> None:
    with own_store() as folder:
        run_job(folder, "warm-up", ["true"])
        usual = run_job(folder, "usual", ["true"])
        signal_manager("STOP")
        try:
            hung = run_job(folder, "hung", ["true"])
        finally:
            signal_manager("CONT")
        answer({"usual": usual, "hung": hung})


main()
