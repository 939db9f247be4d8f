"""Seconds of `joblens run -- true`, of a bare scope and of a run without one, measured in turn."""

import sys

from tests.vm.inside.jobs import answer, command, own_store, run_job

RUN = ("joblens", "run", "-q", "--", "true")
TREE = ("joblens", "run", "-q", "--accounting", "process_tree", "--", "true")
SCOPE = ("systemd-run", "--quiet", "--user", "--scope", "true")


def main() -> None:
    seconds: dict[str, list[float]] = {"run": [], "scope": [], "tree": []}
    with own_store() as folder:
        mode = run_job(folder, "warm-up", ["true"]).get("mode")
        for _ in range(int(sys.argv[1])):
            for name, argv in (("run", RUN), ("scope", SCOPE), ("tree", TREE)):
                seconds[name].append(command(*argv)["seconds"])
        answer({**seconds, "mode": mode})


main()
