"""A workflow whose jobs have no limits, limits that suffice, and a limit that is too small."""

import json
import os

from tests.vm.inside.jobs import BURN, answer, command, facts, own_store

WORKFLOW = """
name: small
jobs:
  - name: plain
    command: python3 burn.py 1 0
  - name: limited
    command: python3 burn.py 1 50
    depends_on: [plain]
    num_cpus: 1
    memory: 200m
  - name: hungry
    command: python3 burn.py 0 300
    memory: 100m
"""


def main() -> None:
    with own_store() as folder:
        os.chdir(folder)
        with open("burn.py", "w") as file:
            file.write(BURN + "\nblock = fill(int(sys.argv[2])); burn(float(sys.argv[1])); time.sleep(0.3)\n")
        with open("flow.yaml", "w") as file:
            file.write(WORKFLOW)
        done = command("joblens", "run", "flow.yaml")
        history = json.loads(command("joblens", "history", "--json")["stdout"])
        jobs = {report["name"].rsplit("/", 1)[-1]: facts(report) for report in history}
        answer({**done, "jobs": jobs})


main()
