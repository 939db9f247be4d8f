"""`joblens.map_commands` of N commands: modes, endings, and the rate against a bare loop."""

import os
import sys
import time
from collections import Counter
from typing import Any

from tests.vm.inside.jobs import answer, own_store


def bare_loop(count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        os.waitpid(os.posix_spawnp("true", ["true"], os.environ), 0)
    return time.perf_counter() - begin


def mapped(count: int) -> tuple[float, list[Any]]:
    import joblens

    begin = time.perf_counter()
    results = list(joblens.map_commands([["true"]] * count))
    return time.perf_counter() - begin, results


def main() -> None:
    count, rounds = int(sys.argv[1]), int(sys.argv[2])
    ratios, modes, failures = [], Counter[str](), []
    with own_store():
        for _ in range(rounds):
            bare = bare_loop(count)
            took, results = mapped(count)
            ratios.append(bare / took)
            modes.update(result.record.attempt.accounting for result in results if result.record.attempt)
            failures += [str(result.record.outcome)[:500] for result in results if not result.ok]
    answer({"ratio": max(ratios), "modes": modes, "failures": failures[:3], "count": count * rounds})


main()
