"""Jobs and slots of one process: where their groups are, and its own group before and after."""

import os
from typing import Any

from tests.vm.inside.jobs import answer, own_store

MOUNT = "/sys/fs/cgroup"


def own_group() -> str:
    with open("/proc/self/cgroup") as file:
        return MOUNT + file.read().strip().removeprefix("0::")


def state() -> dict[str, Any]:
    """What a job must not change about the group of its caller."""
    group = own_group()
    files = {}
    for name in ("type", "subtree_control"):
        with open(f"{group}/cgroup.{name}") as file:
            files[name] = file.read().strip()
    return {"group": group, **files, "below": [one.name for one in os.scandir(group) if one.is_dir()]}


def facts(result: Any) -> dict[str, Any]:
    attempt = result.record.attempt
    group = attempt.groups.get("unified", "")
    return {"ok": result.ok, "mode": attempt.accounting, "group": group, "enforced_by": attempt.enforced_by}


def main() -> None:
    import joblens

    with own_store():
        before = state()
        slots = [facts(result) for result in joblens.map_commands([["sleep", "0.1"]] * 3, jobs=2)]
        job = facts(joblens.run(["true"], memory="80m"))
        answer({"before": before, "slots": slots, "job": job, "after": state()})


main()
