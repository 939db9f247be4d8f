"""What `joblens doctor` says, beside what `joblens run` and `joblens.map_commands` record."""

import json
import sys
from typing import Any

from tests.vm.inside.jobs import answer, command, own_store, run_job

LIMITS = ("--cpus", "0.5", "--memory", "100m", "--pids", "50")


def diagnosis() -> dict[str, Any]:
    done = command("joblens", "doctor", "--json")
    if done["code"] != 0:
        return done
    document = json.loads(done["stdout"])
    rows = {(row["area"], row["name"]): row for row in document["capabilities"]}
    return {
        "seconds": done["seconds"],
        "jobs": document.get("jobs"),
        "slots": document.get("slots"),
        "limits": {name: rows["limits", name]["mechanism"] for name in ("cpus", "memory", "pids")},
        "reason": rows["accounting", "cgroup-v2"].get("reason", ""),
        "fix": rows["accounting", "cgroup-v2"].get("fix", ""),
        "io_fix": rows["numbers", "io_ops"].get("fix", ""),
    }


# In a process of its own, as doctor is.
MAP = """
import joblens, json
results = list(joblens.map_commands([["sleep", "0"]] * 3))
modes = {result.record.attempt.accounting for result in results if result.record.attempt}
print(json.dumps(sorted(modes) if all(result.ok for result in results) else str(results)))
"""


def mapped_modes() -> Any:
    done = command(sys.executable, "-c", MAP)
    return json.loads(done["stdout"]) if done["code"] == 0 else done


def main() -> None:
    with own_store() as folder:
        found = diagnosis()
        if "only" not in sys.argv:
            found["run"] = run_job(folder, "limited", ["sleep", "0"], *LIMITS)
            found["map"] = mapped_modes()
        answer(found)


main()
