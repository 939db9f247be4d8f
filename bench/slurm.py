"""Small jobs on Slurm:

many in one allocation compared with one sbatch each, on a Slurm of two nodes of its own.

Jobs of joblens are measured and recorded durably on both sides, and the time is that of the whole command.
The third side is sbatch alone: nothing is measured or recorded. Sides with one sbatch each have fewer jobs,
because they would take minutes; rates are compared.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

from bench.commands import JOBLENS, Workbench
from bench.goals import Figure
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record, Status
from joblens.stores.sqlite import SqliteStore
from tests.servers import own_server
from tests.slurm_server import SlurmServer

PACKED, EACH = 500, 60
REPEATS = 3
_LONGEST_S = 300.0
_PAUSE_S = 0.05
_BARE = "bare"
_ONE_SBATCH_EACH = ("--packing", "jobs")
_ONE_ALLOCATION = ("--packing", "allocations", "--allocations", "1")


def figures(bench: Workbench) -> Iterator[Figure]:
    """Alternates, so that other load affects all."""
    packed, each, bare = [], [], []
    with own_server(SlurmServer) as server:
        for repeat in range(REPEATS):
            bare.append(_bare_rate(server))
            each.append(_rate(bench, server, EACH, repeat, is_sweep=False))
            packed.append(_rate(bench, server, PACKED, repeat, is_sweep=True))
    yield _compared("one sbatch each", packed, each)
    yield _compared("one bare sbatch each", packed, bare)


def _compared(with_what: str, packed: list[float], others: list[float]) -> Figure:
    ratios = [ours / theirs for ours, theirs in zip(packed, others, strict=True)]
    return Figure(
        f"{PACKED} small jobs through one Slurm allocation, against {with_what}",
        median(ratios),
        "x",
        10,
        at_least=True,
        note=f"{median(packed):.0f} jobs/s against {median(others):.1f} ({EACH} jobs)",
    )


def _bare_rate(server: SlurmServer) -> float:
    """Measures from the first submission until none waits or runs."""
    start = perf_counter()
    for _ in range(EACH):
        server.ask(
            "sbatch", "--quiet", "--output=/dev/null", "--mem=100", f"--job-name={_BARE}", "--wrap=true"
        )
    while server.ask("squeue", "--noheader", f"--name={_BARE}").strip():
        sleep(_PAUSE_S)
    return EACH / (perf_counter() - start)


def _rate(bench: Workbench, server: SlurmServer, count: int, repeat: int, *, is_sweep: bool) -> float:
    """Jobs of one sweep share an array; for one sbatch each, they are written one by one."""
    name = f"slurm-{'packed' if is_sweep else 'each'}-{repeat}"
    spec, store = Path(bench.path(f"{name}.yaml")), bench.path(f"{name}.db")
    sweep = f'  - {{name: "j{{i}}", command: "true", parameters: {{i: "1:{count}"}}}}\n'
    alone = "".join(f'  - {{name: j{number}, command: "true"}}\n' for number in range(1, count + 1))
    spec.write_text(f"name: {name}\njobs:\n{sweep if is_sweep else alone}")
    how = _ONE_ALLOCATION if is_sweep else _ONE_SBATCH_EACH
    command = [*JOBLENS, "--store", store, "run", str(spec), "--engine", "slurm", *how, "-q"]
    start = perf_counter()
    subprocess.run(
        [*command, "--output-dir", bench.path(name)],
        env={**bench.env, **server.env()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=_LONGEST_S,
        check=True,
    )
    seconds = perf_counter() - start
    _check(store, count, is_packed=is_sweep)
    return count / seconds


def _check(path: str, count: int, *, is_packed: bool) -> None:
    """Checks that every job ran, was measured, and had the right kind of allocation."""
    store = SqliteStore(path)
    records: list[Record] = list(store.records(HistoryQuery(limit=count + 1)))
    store.close()
    places = set()
    for record in records:
        assert record.status is Status.SUCCESS
        assert record.outcome is not None
        assert record.outcome.usage.cpu_total_usec
        assert record.attempt is not None
        assert record.attempt.placement is not None
        places.add(record.attempt.placement.job_id)
    assert len(records) == count
    assert len(places) == (1 if is_packed else count)
