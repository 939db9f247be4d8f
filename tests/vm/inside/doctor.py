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


def mapped_modes() -> list[str]:
    import joblens

    results = list(joblens.map_commands([["true"]] * 3))
    return sorted({result.record.attempt.accounting for result in results if result.record.attempt})


def main() -> None:
    with own_store() as folder:
        found = diagnosis()
        if "only" not in sys.argv:
            found["run"] = run_job(folder, "limited", ["true"], *LIMITS)
            found["map"] = mapped_modes()
        answer(found)


main()
