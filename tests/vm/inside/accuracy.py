"""CPU time of N forks, a memory spike and a daemon, each beside the truth that the job knows itself."""

import sys
from typing import Any

from tests.vm.inside.jobs import answer, at_once, knowing_its_start, own_store, python, run_job

FORKS = """
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if not child:
        burn(0.003); os._exit(0)
    os.waitpid(child, 0)
finish_with_cpu(used())
"""

SPIKE = """
block = fill(300); time.sleep(0.2)
lines = [line.split() for line in open("/proc/self/status")]
print(next(int(line[1]) for line in lines if line[0] == "RssAnon:") / 1024)
del block; time.sleep(0.5)
"""

# The daemon leaves session and parent; the job waits for its end, so its CPU time is part of the job.
DAEMON = """
path = sys.argv[1]
if not os.fork():
    os.setsid()
    if os.fork(): os._exit(0)
    burn(3)
    with open(path + ".new", "w") as file: file.write(str(used()))
    os.rename(path + ".new", path)
    os._exit(0)
os.wait()
while not os.path.exists(path): time.sleep(0.1)
time.sleep(0.3)
finish_with_cpu(float(open(path).read()) + used())
"""


def main() -> None:
    with own_store() as folder:

        def forks() -> dict[str, Any]:
            return run_job(folder, "forks", knowing_its_start(python(FORKS, sys.argv[1])))

        def others() -> dict[str, Any]:
            spike = run_job(folder, "spike", python(SPIKE))
            daemon = knowing_its_start(python(DAEMON, f"{folder}/daemon-cpu"))
            return {"spike": spike, "daemon": run_job(folder, "daemon", daemon)}

        results = at_once(forks=forks, others=others)
        answer({"forks": results["forks"], **results["others"]})


main()
