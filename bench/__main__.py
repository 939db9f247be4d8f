"""`python -m bench [PART …]`: prints every figure of all parts, or of the named ones, with its goal."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import (
    accuracy,
    agent,
    containers,
    faults,
    gpu_figures,
    launching,
    network,
    overhead,
    recipes,
    remembering,
    scraping,
    workflows,
)
from bench.commands import Workbench, new_folder
from bench.goals import Figure, render

PEERS = Path(__file__).parent.parent / ".venv-peers"
DATAJUICER = PEERS.with_name(".venv-datajuicer")


def _queue(bench: Workbench) -> Iterator[Figure]:
    from bench import queue  # needs the extras celery and postgres

    return queue.figures(bench)


def _slurm(bench: Workbench) -> Iterator[Figure]:
    from bench import slurm  # needs Slurm and the tests' set-up of it

    return slurm.figures(bench)


def _scale(bench: Workbench) -> Iterator[Figure]:
    from bench import scale  # needs the extra postgres

    return scale.figures(bench)


def _lists(bench: Workbench) -> Iterator[Figure]:
    from bench import lists  # needs the extra postgres

    return lists.figures(bench)


def _ray(bench: Workbench) -> Iterator[Figure]:
    from bench import ray  # needs the extra ray

    return ray.figures(bench)


def _reports(bench: Workbench) -> Iterator[Figure]:
    from bench import reports  # needs the extra server

    return reports.figures(bench)


def _server(bench: Workbench) -> Iterator[Figure]:
    from bench import server  # needs the extra server

    return server.figures(bench)


def _dashboard(bench: Workbench) -> Iterator[Figure]:
    from bench import dashboard  # needs the extra server, Playwright and Chromium

    return dashboard.figures(bench)


PARTS: dict[str, Callable[[Workbench], Iterator[Figure]]] = {
    "accuracy": accuracy.figures,
    "launching": launching.figures,
    "workflows": workflows.figures,
    "store": remembering.figures,
    "lists": _lists,
    "faults": faults.figures,
    "metrics": scraping.figures,
    "queue": _queue,
    "ray": _ray,
    "slurm": _slurm,
    "scale": _scale,
    "server": _server,
    "reports": _reports,
    "dashboard": _dashboard,
    "gpu": gpu_figures.figures,
    "network": network.figures,
    "containers": containers.figures,
    "agent": agent.figures,
    "recipes": lambda bench: recipes.figures(bench, DATAJUICER),
    "overhead": lambda bench: overhead.figures(bench, PEERS),
}


def main() -> None:
    wanted = sys.argv[1:] or list(PARTS)
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        sys.exit(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    found: list[Figure] = []
    with new_folder() as folder:
        bench = Workbench(folder)
        for name in wanted:
            for figure in PARTS[name](bench):
                print(render([figure]), flush=True)
                found.append(figure)
    if found:
        print(f"\n{render(found)}\n")
    met = sum(figure.is_met for figure in found)
    print(f"{met} of {len(found)} goals met")


main()
